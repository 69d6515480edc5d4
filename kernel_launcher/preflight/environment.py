"""Whether the environment that will train has what it takes."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_launcher import __version__
from kernel_launcher.errors import Fault
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
# Known of each environment, and needed by a job that asks for it.
OPTIONAL = ("liger-kernel", "unsloth")
_INSTALL = 'pip install "veri-jupyter[train]"'
_ASK = f"""
import json
from importlib.metadata import PackageNotFoundError, version
found = {{}}
for name in {("veri-jupyter", *NEEDED, *OPTIONAL)!r}:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def environment_faults(python: str | None) -> Iterator[Fault]:
    """What is missing in the environment that trains: the kernel's own, or that of another interpreter."""
    key = "resources.python"
    if python is None:
        missing = [name for name in NEEDED if versions(None)[name] is None]
        if missing:
            reason = f"the environment that trains lacks {', '.join(missing)}."
            yield Fault(
                key, "", reason, f"{_INSTALL}, or name another environment's interpreter.", "dependency_error"
            )
        return
    given = redact(python)
    if not Path(python).is_file() or not os.access(python, os.X_OK):
        yield Fault(key, given, "is no interpreter.", 'Name one: python = "/path/to/env/bin/python".', "config_error")
        return
    answer = _ask(python)
    if isinstance(answer, str):
        yield Fault(key, given, f"does not run: {redact(answer)}.", "Name a Python interpreter.", "config_error")
        return
    missing = [name for name, known in answer.items() if known is None and name not in OPTIONAL]
    if missing:
        reason = f"that environment lacks {', '.join(missing)}."
        yield Fault(key, given, reason, f'{python} -m pip install "veri-jupyter[train]"', "dependency_error")
    elif answer["veri-jupyter"] != __version__:
        reason = f"that environment has veri-jupyter {answer['veri-jupyter']}, this one {__version__}."
        fix = f'{python} -m pip install "veri-jupyter=={__version__}"'
        yield Fault(key, given, reason, fix, "dependency_error")


def versions(python: str | None) -> dict[str, str | None]:
    """The packages that train, None for one that is missing; empty where the interpreter does not tell."""
    if python is None:
        return {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    answer = _ask(python)
    return {} if isinstance(answer, str) else answer


def _ask(python: str) -> dict[str, str | None] | str:
    """The versions in an environment, or why its interpreter did not tell."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        return said[-1] if said else f"it ended with exit code {error.returncode}"
    except subprocess.TimeoutExpired as error:
        return f"it said nothing for {error.timeout:g} seconds"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return "it answered with something else"
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
