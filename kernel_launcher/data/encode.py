"""Marked text -> token ids and labels.

The text is tokenised once, as a whole, which is what the model reads at inference. A token is trained if it holds a
trained character: one that straddles the start of an answer ("\\n " before an indented answer) belongs to the answer,
because leaving it out would take the answer's first characters from the loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from kernel_launcher.data.mark import Marker

if TYPE_CHECKING:
    from kernel_launcher.data.codec import Codec, Tokens
    from kernel_launcher.data.examples import Messages, PromptCompletion, Text
    from kernel_launcher.data.mark import LossOn, Marked

IGNORED = -100
_start, _end = itemgetter(0), itemgetter(1)


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row as the trainer takes it.

    Attributes:
        input_ids: Token ids, shape (length,).
        labels: The same where a token is trained, -100 elsewhere; not shifted, shape (length,).
        length: Tokens before the cut.
        answer_cut: Whether the cut took trained tokens.
    """

    input_ids: list[int]
    labels: list[int]
    length: int
    answer_cut: bool

    @property
    def cut(self) -> bool:
        """Whether the row was longer than allowed, and lost its end."""
        return self.length > len(self.input_ids)

    @property
    def trained_tokens(self) -> int:
        """Tokens in the loss. The first token of a row is none: nothing comes before it that could predict it."""
        predicted = self.labels[1:]
        return len(predicted) - predicted.count(IGNORED)


def encode_example(
    example: Messages | PromptCompletion | Text, codec: Codec, *, max_length: int, loss_on: LossOn = "answers"
) -> Encoded:
    """One example as token ids and labels.

    Raises:
        DataRefusal: The chat template refuses it, or has no fixed place for an answer.
        InvalidRequest: The tokenizer lacks what examples of this kind need.
    """
    marked = Marker(codec, loss_on).mark(example)
    return label(marked, codec.encode([marked.text])[0], codec, max_length)


def label(marked: Marked, tokens: Tokens, codec: Codec, max_length: int) -> Encoded:
    """Ids and labels of a marked text, cut at ``max_length`` tokens; plain text gets its BOS and EOS."""
    ids, labels = tokens.ids, [IGNORED] * len(tokens.ids)
    for start, end in marked.spans:
        first = bisect_right(tokens.offsets, start, key=_end)
        after = bisect_left(tokens.offsets, end, key=_start)
        labels[first:after] = ids[first:after]
    if marked.plain:
        ids, labels = _closed(ids, labels, codec)
    lost = labels[max_length:]
    return Encoded(ids[:max_length], labels[:max_length], len(ids), lost.count(IGNORED) < len(lost))


def _closed(ids: list[int], labels: list[int], codec: Codec) -> tuple[list[int], list[int]]:
    """The text between its BOS and its EOS, neither of which is doubled."""
    bos = [] if tuple(ids[: len(codec.bos)]) == codec.bos else list(codec.bos)
    eos = [] if codec.eos is None or ids[-1:] == [codec.eos] else [codec.eos]
    opening = bos if labels[:1] == ids[:1] else [IGNORED] * len(bos)
    return [*bos, *ids, *eos], [*opening, *labels, *eos]
