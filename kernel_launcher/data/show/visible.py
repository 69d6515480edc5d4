"""Somebody's text made visible: nothing in it moves a cursor, changes a colour or turns the writing direction."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE_END, TAB, SPACE, CONTINUES = "↵", "→", "·", "⋯"
# What stands around trained text, around a control token, and around what is cut off.
TRAINED, CONTROL, CUT = ("⟦", "⟧"), ("⟪", "⟫"), ("✂", "✂")
_OURS = str.maketrans({mark: f"⟨U+{ord(mark):04X}⟩" for mark in (*TRAINED, *CONTROL, *CUT)})
# Spaces that nobody would see: where a line or the whole text begins or ends.
_HIDDEN = re.compile(r"^ +| +$", re.MULTILINE)


def visible(text: str) -> str:
    """The text with each character that has no picture of its own as ⟨U+001B⟩; line ends stay, and are marked."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([_character(character) for character in text])


def visible_pieces(texts: Iterable[str]) -> list[str]:
    """Neighbouring texts as ``visible`` has them, with a dot for each space where a line or the whole ends.

    An empty text is a token that only goes on with the character before: a mark of its own stands for it.
    """
    pieces = list(texts)
    whole = _HIDDEN.sub(lambda found: SPACE * len(found[0]), "".join(pieces))
    ends = accumulate(map(len, pieces), initial=0)
    return [visible(whole[start:end]) or CONTINUES for start, end in pairwise(ends)]


def foreign(text: str) -> str:
    """Text of a row, without our own marks in it."""
    return text.translate(_OURS)


def _character(character: str) -> str:
    if character == "\n":
        return f"{LINE_END}\n"
    if character == "\t":
        return TAB
    return character if character.isprintable() else f"⟨U+{ord(character):04X}⟩"
