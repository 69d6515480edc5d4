"""Chat rows and preference pairs from the documentation strings of Python's standard library.

The text is the running Python's own: another minor version documents other things, and so gives other rows.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import random
import re
import sys
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import VeriError

if TYPE_CHECKING:
    from collections.abc import Iterator

SFT_ROWS = 600
HELDOUT_ROWS = 100
MIN_CHARACTERS = 40
MAX_CHARACTERS = 500

# In every Python from 3.11 on, in every build of it, and not on the way out: nothing that needs an
# optional C library (ssl, sqlite3, zlib) and nothing whose members depend on the kernel (os, signal, socket).
# fmt: off
MODULES = (
    "argparse", "ast", "asyncio", "base64", "bisect", "builtins", "calendar", "cmath", "codecs",
    "collections", "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "email.message", "email.utils", "enum", "fileinput", "fnmatch", "fractions", "functools",
    "glob", "heapq", "html", "http.client", "http.cookies", "inspect", "io", "ipaddress", "itertools",
    "json", "linecache", "logging", "math", "mimetypes", "operator", "pathlib", "pickle", "pprint",
    "queue", "random", "re", "sched", "secrets", "shelve", "shlex", "shutil", "socketserver", "statistics",
    "string", "struct", "subprocess", "tempfile", "textwrap", "threading", "timeit", "tokenize",
    "traceback", "types", "unicodedata", "unittest", "unittest.mock", "urllib.parse", "urllib.request",
    "uuid", "warnings", "weakref", "xml.dom.minidom", "xml.etree.ElementTree", "zipfile",
)
# fmt: on

QUESTIONS = (
    "What does `{name}` do?",
    "What is `{name}` for?",
    "Explain `{name}` in Python.",
    "Describe what `{name}` does.",
    "How does Python document `{name}`?",
)

# A paragraph of sentences: no signature, no example, no list. It also keeps out the texts that dataclasses
# and named tuples write themselves, which may hold an object's address.
_SENTENCES = re.compile(r"[A-Z].*\.", re.DOTALL)


def data_sets() -> dict[str, list[dict[str, Any]]]:
    """The rows of ``sft``, ``heldout`` and ``dpo``, the same ones on each run.

    ``sft`` and ``heldout`` share no function and no answer. ``dpo`` asks what ``sft`` asks, and its rejected
    text is the answer of another row.

    Raises:
        VeriError: This Python carries too few documentation strings.
    """
    entries = list(documented().items())
    needed = SFT_ROWS + HELDOUT_ROWS
    if len(entries) < needed:
        message = f"This Python documents {len(entries)} functions, and the sample data needs {needed}."
        raise VeriError("dependency_error", message, "`python -OO` and PYTHONOPTIMIZE=2 strip them.")
    rng = random.Random(0)
    rng.shuffle(entries)
    pairs = [(rng.choice(QUESTIONS).format(name=name), text) for name, text in entries]
    sft = pairs[:SFT_ROWS]
    neighbours = sft[1:] + sft[:1]
    return {
        "sft": [_chat(*pair) for pair in sft],
        "heldout": [_chat(*pair) for pair in pairs[SFT_ROWS:needed]],
        "dpo": [
            {"prompt": question, "chosen": text, "rejected": other}
            for (question, text), (_, other) in zip(sft, neighbours, strict=True)
        ],
    }


def documented() -> dict[str, str]:
    """Public functions, methods and classes by qualified name, each with what its documentation says in prose.

    The order is fixed, and no two texts begin with the same paragraph: many methods share one.
    """
    found: dict[str, str] = {}
    openings: set[str] = set()
    for name, member in _public_members():
        text = _prose(member.__doc__)
        opening = text.partition("\n\n")[0].casefold()
        if len(text) >= MIN_CHARACTERS and opening not in openings:
            openings.add(opening)
            found[name] = text
    return found


def _chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def _public_members() -> Iterator[tuple[str, Any]]:
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        prefix = "" if module_name == "builtins" else f"{module_name}."
        for name in sorted(getattr(module, "__all__", vars(module))):
            member = getattr(module, name)
            if name.startswith("_") or not _is_of_the_library(member):
                continue
            yield prefix + name, member
            if inspect.isclass(member):
                for attribute, value in sorted(vars(member).items()):
                    if not attribute.startswith("_") and inspect.isroutine(value):
                        yield f"{prefix}{name}.{attribute}", value


def _is_of_the_library(member: Any) -> bool:
    """False for constants, and for what other packages put into ``builtins``."""
    if not (inspect.isclass(member) or inspect.isroutine(member)):
        return False
    package = (getattr(member, "__module__", None) or "").partition(".")[0]
    return package in sys.stdlib_module_names


def _prose(documentation: object) -> str:
    """The leading paragraphs that are sentences, one line each, as many as `MAX_CHARACTERS` hold."""
    if not isinstance(documentation, str):
        return ""
    paragraphs = inspect.cleandoc(documentation).split("\n\n")
    kept = ""
    for paragraph in itertools.takewhile(_SENTENCES.fullmatch, paragraphs):
        longer = f"{kept}\n\n{' '.join(paragraph.split())}".lstrip()
        if len(longer) > MAX_CHARACTERS:
            break
        kept = longer
    return kept
