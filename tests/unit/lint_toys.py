"""Toy tokenizers under real chat templates, and rows without a fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.codec import Tokens
from kernel_launcher.data.chat.template import Template
from kernel_launcher.data.lint import lint_rows
from kernel_launcher.data.rows.columns import Columns
from kernel_launcher.spec.fields import Method

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernel_launcher.data.chat.template import Spans
    from kernel_launcher.data.lint import Finding
    from kernel_launcher.data.rows.examples import Message

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"  # noqa: E501 - as models ship it
METHODS = {"sft_text": {"max_seq_length": 200}, "dpo": {"type": "dpo", "max_length": 200}}


class TemplateCodec:
    """Words, single characters and control tokens, each with an id, under a chat template.

    Args:
        template: None for a base model.
        control: The control tokens, the first of them with id 0.
        eos: Which of them ends plain text.
        bos: Which of them begins it.
    """

    tagged = False

    def __init__(
        self, template: str | None, control: Sequence[str], *, eos: str | None = None, bos: str = ""
    ) -> None:
        names = {"bos_token": bos or control[0], "eos_token": eos or control[-1]}
        self._template = None if template is None else Template(template, names)
        self.ids = {text: number for number, text in enumerate(control)}
        self._token = re.compile("|".join([*map(re.escape, control), r"\w+", r"\W"]), re.DOTALL)
        self.control: Mapping[str, int] = dict(self.ids)
        self.chat = template is not None
        self.bos = (self.ids[bos],) if bos else ()
        self.eos = None if eos is None else self.ids[eos]

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        assert self._template is not None
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def render_tagged(self, messages: Sequence[Message]) -> tuple[str, Spans]:
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        return [self._tokens(text) for text in texts]

    def _tokens(self, text: str) -> Tokens:
        found = list(self._token.finditer(text))
        ids = [self.ids.setdefault(match[0], len(self.ids)) for match in found]
        return Tokens(ids, [match.span() for match in found])


def chatml(template: str = CHATML) -> TemplateCodec:
    return TemplateCodec(template, ("<|im_start|>", "<|im_end|>"), eos="<|im_end|>")


def chat(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def chats(count: int = 12) -> list[dict[str, Any]]:
    """Rows that differ from each other, with nothing to say against them."""
    return [
        chat(("user", f"What comes after {n}?"), ("assistant", f"After {n} comes {n + 1}, of course."))
        for n in range(count)
    ]


def completions(count: int = 12) -> list[dict[str, Any]]:
    return [{"prompt": f"Q: what comes after {n}?\nA:", "completion": f" It is {n + 1}."} for n in range(count)]


def pairs(count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"Q: what comes after {n}?\nA:",
            "chosen": f" It is {n + 1}.",
            "rejected": f" Nothing at all, {n} times.",
        }
        for n in range(count)
    ]


def with_rows(rows: list[dict[str, Any]], planted: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with others in some of their places, by number."""
    return [planted.get(number, row) for number, row in enumerate(rows, 1)]


def lint(rows: Sequence[Any], codec: Any, method: str = "sft_text", **settings: Any) -> tuple[Finding, ...]:
    """What the linter says of these rows."""
    model, held_out = settings.pop("model", None), settings.pop("held_out", None)
    more = {"model": model} if model else {}
    planned = Method(**{**METHODS[method], **settings})
    return lint_rows(enumerate(rows, 1), Columns(), planned, codec, held_out=held_out, **more)
