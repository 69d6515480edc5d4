"""The control tokens of a chat template that is not the model's own, which may not be tokens to its tokenizer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernel_launcher.data.rows.examples import Message
from kernel_launcher.data.rows.faults import DataRefusal

if TYPE_CHECKING:
    from kernel_launcher.data.chat.codec import Codec

# <|im_start|>, <start_of_turn>, </s>, [INST]
_LIKE_A_TOKEN = re.compile(r"<\|[^|<>\s]+\|>|</?\w+>|\[/?[A-Z]+\]")
_ASKED, _ANSWERED = Message("user", "0"), Message("assistant", "0")


def split_controls(codec: Codec) -> tuple[str, ...]:
    """What the template writes as control tokens, and the tokenizer cuts into pieces."""
    found = dict.fromkeys(_LIKE_A_TOKEN.findall(_sample(codec)))
    pieces = zip(found, codec.encode(list(found)), strict=True) if found else ()
    return tuple(text for text, tokens in pieces if len(tokens.ids) > 1)


def control_warning(codec: Codec) -> str | None:
    """What to say of them."""
    split = split_controls(codec)
    if not split:
        return None
    return (
        f"the chat template writes {', '.join(split)}, which the model's tokenizer cuts into pieces. These are "
        "learned as text, and generation cannot stop at them. Better is a template whose control tokens it knows."
    )


def _sample(codec: Codec) -> str:
    chat = (_ASKED, _ANSWERED, _ASKED)
    for turns in ((Message("system", "0"), *chat), chat):  # many have no place for a system turn
        try:
            return codec.render(turns, add_generation_prompt=True)
        except DataRefusal:
            continue
    return ""
