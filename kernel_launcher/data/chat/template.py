"""A chat template: jinja2 in a sandbox, with what such templates use beyond plain jinja2.

Names, white space and the generation tag are as in transformers, which templates are written for.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from kernel_launcher.data.chat.sandbox import environment, tracked
from kernel_launcher.data.rows.faults import DataRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template as Compiled

    from kernel_launcher.data.rows.examples import Message

Spans = tuple[tuple[int, int], ...]
_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")
# A template raises by itself, or through what it does with a value that it did not expect.
_RAISED = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError,
)  # fmt: skip


class Template:
    """One chat template.

    Args:
        source: Its text.
        tokens: The special tokens that it may name, ``bos_token``, ``eos_token`` and so on.
    """

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        self.source = source
        self.tagged = bool(_TAG.search(source))
        self._tokens = dict(tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The conversation as the template writes it.

        Raises:
            DataRefusal: The template is broken, or does not take these turns.
        """
        try:
            return self._compiled.render(self._variables(messages, add_generation_prompt))
        except _RAISED as error:
            raise _refused(error) from error

    def render_tagged(self, messages: Sequence[Message]) -> tuple[str, Spans]:
        """The conversation, and the characters of it inside the template's generation tags.

        Raises:
            DataRefusal: As ``render``.
        """
        try:
            with tracked() as (pieces, spans):
                pieces.extend(self._compiled.generate(self._variables(messages, False)))
        except _RAISED as error:
            raise _refused(error) from error
        return "".join(pieces), tuple(spans)

    def _variables(self, messages: Sequence[Message], add_generation_prompt: bool) -> dict[str, Any]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self._tokens | {
            "messages": turns,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }

    @cached_property
    def _compiled(self) -> Compiled:
        return environment().from_string(self.source)


def _refused(error: Exception) -> DataRefusal:
    reason = str(error).rstrip(".") or type(error).__name__  # a MemoryError says nothing
    return DataRefusal(f"the chat template does not take it: {reason}.")
