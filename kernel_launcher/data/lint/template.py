"""What a chat template does to turns: told from turns of words that no row has, once for each order of roles."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.data.chat.mark import Marker
from kernel_launcher.data.rows.examples import Message
from kernel_launcher.data.rows.faults import DataRefusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.lint.finding import Book
    from kernel_launcher.data.lint.parts import Parts
    from kernel_launcher.data.rows.examples import Turns

_ORDERS = 4096
_OTHERS = ("system", "tool")


class _Trait(NamedTuple):
    """What the template does to every conversation with this order of roles."""

    code: str
    detail: str


class TemplateFindings:
    """Looks at the chats among the rows.

    Args:
        book: Where findings go.
        codec: The tokenizer with its template.
    """

    def __init__(self, book: Book, codec: Codec) -> None:
        self._book = book
        self._codec = codec
        self._marker = Marker(codec, "all")
        self._traits = lru_cache(_ORDERS)(lambda roles: tuple(self._look_at(roles)))
        self._control = _alternatives(codec)

    def see(self, number: int, parts: Parts) -> None:
        """Look at one row."""
        if not parts.roles:
            return
        for code, detail in self._traits(parts.roles):
            self._book.add(code, number, detail)
        if self._control:
            for content in parts.contents:
                if found := self._control.search(content):
                    self._book.add("control_tokens_in_text", number, repr(found[0]))
                    break

    def _look_at(self, roles: tuple[str, ...]) -> Iterator[_Trait]:
        words = [f"zq{i}qz" for i in range(len(roles))]
        turns = tuple([Message(role, word) for role, word in zip(roles, words, strict=True)])
        last = max((i for i, role in enumerate(roles) if role == "assistant"), default=0)
        try:
            whole = self._codec.render(turns, add_generation_prompt=False)
            prompt = self._marker.prompt(turns[:last])
        except DataRefusal:  # it judges what turns say, and takes the row's words but not these
            return
        places = [whole.find(word) for word in words]
        yield from _lost(roles, places)
        yield from _merged(roles, places, words, whole)
        if not whole.startswith(prompt):
            yield _Trait("prompt_differs", f"the prompt ends with {prompt[-20:]!r}")
        for i, turn in enumerate(turns):
            if turn.role in _OTHERS and places[i] >= 0 and whole == self._said_by_the_model(turns, i):
                yield _Trait("roles_confused", f"turn {i + 1}, of the {turn.role}")

    def _said_by_the_model(self, turns: Turns, index: int) -> str | None:
        """The conversation with this turn as an answer; None if the template does not take that."""
        answer = Message("assistant", turns[index].content)
        try:
            return self._codec.render((*turns[:index], answer, *turns[index + 1 :]), add_generation_prompt=False)
        except DataRefusal:
            return None


def _lost(roles: Sequence[str], places: Sequence[int]) -> Iterator[_Trait]:
    for i, (role, place) in enumerate(zip(roles, places, strict=True), 1):
        if place < 0:
            yield _Trait("turns_dropped", f"turn {i}, of the {role}")


def _merged(roles: Sequence[str], places: Sequence[int], words: Sequence[str], whole: str) -> Iterator[_Trait]:
    """Turns of one role with nothing but white space between what they say."""
    for i, ((one, here), (other, there)) in enumerate(pairwise(zip(roles, places, strict=True))):
        between = whole[here + len(words[i]) : there]
        if one == other and 0 <= here < there and not between.strip():
            yield _Trait("turns_merged", f"turns {i + 1} and {i + 2}, of the {one}")


def _alternatives(codec: Codec) -> re.Pattern[str] | None:
    """Finds the control tokens that the tokenizer takes out of any text, in which some hide them."""
    texts = [text for text in codec.control if text.strip()]
    read = zip(texts, codec.encode(texts), strict=True) if texts else ()
    taken = sorted((text for text, tokens in read if tokens.ids == [codec.control[text]]), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, taken))) if taken else None
