"""A row token by token: who said it, and whether it is trained. Made on request, for a person to see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernel_launcher.data.chat.compare import shared
from kernel_launcher.data.rows.examples import PromptCompletion, Text
from kernel_launcher.data.training.encode import IGNORED, label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.data.chat.codec import Codec, Tokens
    from kernel_launcher.data.chat.mark import Marked
    from kernel_launcher.data.rows.examples import Messages, Turns

Role = Literal["system", "user", "assistant", "tool", "prompt", "completion", "text"]
_NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a row.

    Attributes:
        id: Its id.
        text: The characters that it adds; empty for the later tokens of one character. Together they are the text.
        role: Who said it: a role of the chat, or the column of plain text; None for the template's own text.
        trained: Whether it is in the loss, or would be if it were not cut.
        special: Whether the tokenizer takes it whole, wherever it stands.
        cut: Whether the row lost it.
        part: Its bytes in hex where it is a part of a character only, if they are known.
    """

    id: int
    text: str
    role: Role | None
    trained: bool
    special: bool
    cut: bool
    part: str = ""


class Span(NamedTuple):
    """Characters of a text that one speaker said: first, and one past the last."""

    start: int
    end: int
    role: Role


def token_rows(
    example: Messages | PromptCompletion | Text,
    marked: Marked,
    tokens: Tokens,
    codec: Codec,
    max_length: int,
    *,
    prompt_dropped: int = 0,
) -> tuple[Token, ...]:
    """Every token of a row, also of the part that is cut.

    Args:
        example: The row; of a comparison one of its ``sides``.
        marked: What ``Marker.mark`` (or ``pair``) says of it.
        tokens: Those of the marked text.
        codec: The tokenizer.
        max_length: Tokens that are kept.
        prompt_dropped: Tokens that a comparison's prompt loses behind its BOS, as in ``EncodedPair``.
    """
    row = label(marked, tokens, codec, _NO_END)
    before = _found(tokens.ids, row.input_ids)
    opening = len(codec.bos) if tuple(row.input_ids[: len(codec.bos)]) == codec.bos else 0
    dropped = range(opening, opening + prompt_dropped)
    spans = speakers(example, marked.text, codec)
    names = {token: text for text, token in codec.control.items()}
    broken = _broken(tokens)
    shown, at = 0, 0
    found = []
    for i, (token, trained) in enumerate(zip(row.input_ids, row.labels, strict=True)):
        inside = before <= i < before + len(tokens.ids)
        role: Role | None = None
        text = names.get(token, "")
        if inside:
            start, end = tokens.offsets[i - before]
            while at < len(spans) and spans[at].end <= start:
                at += 1
            role = spans[at].role if at < len(spans) and spans[at].start < end else None
            text, shown = marked.text[max(start, shown) : end], max(shown, end)
        found.append(
            Token(
                id=token,
                text=text,
                role=role,
                trained=trained != IGNORED and i > 0,
                special=token in names,
                cut=i in dropped or i >= max_length + prompt_dropped,
                part=codec.bytes_of(token).hex(" ") if i - before in broken else "",
            )
        )
    return tuple(found)


def _broken(tokens: Tokens) -> set[int]:
    """The places of tokens that share a character with a neighbour."""
    pairs = enumerate(pairwise(tokens.offsets))
    return {place for i, (one, other) in pairs if other[0] < one[1] for place in (i, i + 1)}


def speakers(example: Messages | PromptCompletion | Text, text: str, codec: Codec) -> list[Span]:
    """Where each speaker's words stand in the rendered text, in order.

    The words of a turn stand where the text changes when the turn says something else.
    """
    if isinstance(example, Text):
        return [Span(0, len(text), "text")]
    if isinstance(example, PromptCompletion):
        border = len(example.prompt)
        return [span for span in (Span(0, border, "prompt"), Span(border, len(text), "completion")) if span.end]
    found = [_words(example.messages, i, text, codec) for i in range(len(example.messages))]
    return sorted(span for span in found if span.start < span.end)


def _words(turns: Turns, index: int, text: str, codec: Codec) -> Span:
    one, other = (_saying(turns, index, word, codec) for word in "01")
    ahead, behind = shared(one, other), shared(one[::-1], other[::-1])
    if ahead == len(one):  # the template leaves the turn out
        return Span(0, 0, _role(turns, index))
    start = shared(one[:ahead], text)
    end = len(text) - shared(one[len(one) - behind :][::-1], text[::-1])
    return Span(start, end, _role(turns, index))


def _saying(turns: Turns, index: int, word: str, codec: Codec) -> str:
    said = (*turns[:index], replace(turns[index], content=word), *turns[index + 1 :])
    return codec.render(said, add_generation_prompt=False)


def _role(turns: Turns, index: int) -> Role:
    return turns[index].role  # type: ignore[return-value] # a Message holds one of the four


def _found(ids: Sequence[int], within: Sequence[int]) -> int:
    """How many ids were put before a text."""
    return 0 if within[: len(ids)] == ids else next(i for i in range(len(within)) if within[i : i + len(ids)] == ids)
