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

from kernel_launcher.data.chat.compare import shared
from kernel_launcher.data.chat.mark import Marker

if TYPE_CHECKING:
    from kernel_launcher.data.chat.codec import Codec, Tokens
    from kernel_launcher.data.chat.mark import LossOn, Marked
    from kernel_launcher.data.rows.examples import Messages, PromptCompletion, Text

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
        straddled: Whether a token holds characters of a prompt and of its answer; it counts as answer.
    """

    input_ids: list[int]
    labels: list[int]
    length: int
    answer_cut: bool
    straddled: bool = False

    @property
    def cut(self) -> bool:
        """Whether the row was longer than allowed, and lost its end."""
        return self.length > len(self.input_ids)

    @property
    def trained_tokens(self) -> int:
        """Tokens in the loss. The first token of a row is none: nothing comes before it that could predict it."""
        predicted = self.labels[1:]
        return len(predicted) - predicted.count(IGNORED)


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """One comparison as the trainer takes it; the lists are columns of the prepared file.

    Attributes:
        prompt_ids: Token ids of what both sides answer, shape (length,).
        chosen_ids: Token ids of the preferred answer with its end, all of them in the loss.
        rejected_ids: Token ids of the other answer, the same.
        length_chosen: Tokens of prompt and preferred answer before any cut.
        length_rejected: Tokens of prompt and other answer before any cut.
        prompt_dropped: Tokens that the prompt lost behind its BOS.
        straddled: Whether a token holds characters of the prompt and of an answer; it counts as answer.
    """

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    length_chosen: int
    length_rejected: int
    prompt_dropped: int
    straddled: bool

    @property
    def chosen_cut(self) -> bool:
        """Whether the preferred answer lost its end."""
        return len(self.prompt_ids) + self.prompt_dropped + len(self.chosen_ids) < self.length_chosen

    @property
    def rejected_cut(self) -> bool:
        """Whether the other answer lost its end."""
        return len(self.prompt_ids) + self.prompt_dropped + len(self.rejected_ids) < self.length_rejected

    @property
    def cut(self) -> bool:
        """Whether anything was cut."""
        return bool(self.prompt_dropped) or self.chosen_cut or self.rejected_cut


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
    straddled = False
    for start, end in marked.spans:
        first, after = _place(tokens, start, end)
        labels[first:after] = ids[first:after]
        straddled |= first < after and tokens.offsets[first][0] < start
    if marked.plain:
        ids, labels = _closed(ids, labels, codec)
    lost = labels[max_length:]
    return Encoded(ids[:max_length], labels[:max_length], len(ids), lost.count(IGNORED) < len(lost), straddled)


def pair_of(
    marked: tuple[Marked, Marked],
    tokens: tuple[Tokens, Tokens],
    codec: Codec,
    *,
    max_length: int,
    max_prompt_length: int | None = None,
) -> EncodedPair:
    """The two sides of a comparison, as ``Marker.pair`` marked them, behind one prompt.

    Each side was tokenised as a whole; the prompt is the tokens before the answer that both share. What follows the
    end of an answer is left out: all that is no prompt is in the loss.

    Args:
        marked: The preferred side and the other.
        tokens: Those of each text.
        codec: The tokenizer.
        max_length: Tokens of prompt and answer at most; what is longer loses its end.
        max_prompt_length: Tokens of the prompt at most, cut first; what is longer loses its start but for the BOS.
    """
    (given, chosen), (given_too, rejected) = (_parts(*one, codec) for one in zip(marked, tokens, strict=True))
    at = shared(given, given_too)
    prompt = given[:at]
    chosen, rejected = given[at:] + chosen, given_too[at:] + rejected
    dropped = 0 if max_prompt_length is None else max(0, at - max_prompt_length)
    opening = len(codec.bos) if tuple(prompt[: len(codec.bos)]) == codec.bos else 0
    kept = prompt[:opening] + prompt[opening + dropped :]
    room = max(0, max_length - len(kept))
    return EncodedPair(
        prompt_ids=kept[:max_length],
        chosen_ids=chosen[:room],
        rejected_ids=rejected[:room],
        length_chosen=at + len(chosen),
        length_rejected=at + len(rejected),
        prompt_dropped=dropped,
        straddled=any(_straddles(*one) for one in zip(marked, tokens, strict=True)) or len(given) != len(given_too),
    )


def _parts(marked: Marked, tokens: Tokens, codec: Codec) -> tuple[list[int], list[int]]:
    """The ids before an answer, and those of the answer with its end."""
    ((start, end),) = marked.spans
    first, after = _place(tokens, start, end)
    given, answer = tokens.ids[:first], tokens.ids[first:after]
    if marked.plain:
        bos, eos = _missing_ends(tokens.ids, codec)
        return [*bos, *given], [*answer, *eos]
    return given, answer


def _straddles(marked: Marked, tokens: Tokens) -> bool:
    ((start, end),) = marked.spans
    first, after = _place(tokens, start, end)
    return first < after and tokens.offsets[first][0] < start


def _place(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """The tokens that hold any of the characters from ``start`` to ``end``: the first, and one past the last."""
    return bisect_right(tokens.offsets, start, key=_end), bisect_left(tokens.offsets, end, key=_start)


def _closed(ids: list[int], labels: list[int], codec: Codec) -> tuple[list[int], list[int]]:
    """The text between its BOS and its EOS, neither of which is doubled."""
    bos, eos = _missing_ends(ids, codec)
    opening = bos if labels[:1] == ids[:1] else [IGNORED] * len(bos)
    return [*bos, *ids, *eos], [*opening, *labels, *eos]


def _missing_ends(ids: list[int], codec: Codec) -> tuple[list[int], list[int]]:
    bos = [] if tuple(ids[: len(codec.bos)]) == codec.bos else list(codec.bos)
    eos = [] if codec.eos is None or ids[-1:] == [codec.eos] else [codec.eos]
    return bos, eos
