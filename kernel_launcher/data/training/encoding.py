"""A row as the trainer takes it, by the settings of a job: one text of most rows, two of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.data.rows.examples import Preference
from kernel_launcher.data.training.encode import label, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_launcher.data.chat.codec import Codec, Tokens
    from kernel_launcher.data.chat.mark import Marked, Marker
    from kernel_launcher.data.rows.examples import Example
    from kernel_launcher.data.training.encode import Encoded, EncodedPair
    from kernel_launcher.spec.fields import Method

    Texts = tuple[Marked] | tuple[Marked, Marked]


def texts_of(example: Example, marker: Marker) -> Texts:
    """The marked text of an example, or the two of a comparison.

    Raises:
        DataRefusal: The row cannot be marked.
        InvalidRequest: The tokenizer lacks what rows of this kind need.
    """
    return marker.pair(example) if isinstance(example, Preference) else (marker.mark(example),)


def encode_texts(texts: Texts, tokens: Iterable[Tokens], codec: Codec, method: Method) -> Encoded | EncodedPair:
    """The ids that are trained on, cut as a plan says; ``tokens`` has those of each text."""
    most = most_tokens(method)
    if len(texts) == 1:
        (its,) = tokens
        return label(texts[0], its, codec, most)
    chosen, rejected = tokens
    return pair_of(texts, (chosen, rejected), codec, max_length=most, max_prompt_length=method.max_prompt_length)


def most_tokens(method: Method) -> int:
    """Tokens a row at most, as planned."""
    most = method.max_length if method.type == "dpo" else method.max_seq_length
    assert most is not None, "a plan decides it"
    return most
