"""What the tokens of a row tell, as the trainer gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernel_launcher.data.training.encode import IGNORED
from kernel_launcher.protocol.files import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, Self

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.lint.finding import Book
    from kernel_launcher.data.lint.parts import Parts
    from kernel_launcher.data.training.encode import Encoded, EncodedPair

# A stop token is mostly the last or the last but one: the others are looked at only if it is not. No BOS is longer.
_ENDS = 4
_SHOWN = 12


class ModelTokens(NamedTuple):
    """What a model does with tokens.

    Attributes:
        vocabulary: How many it knows: the rows of its embedding; None if that is unknown.
        stops: Those at which it stops to generate; None if they are unknown, and the tokenizer's EOS is the one.
    """

    vocabulary: int | None = None
    stops: frozenset[int] | None = None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """As a model folder's files have it, of which none need be there."""
        config = _object(folder / "config.json")
        config |= config.get("text_config") or {}
        generation = _object(folder / "generation_config.json")
        stops = generation.get("eos_token_id", config.get("eos_token_id"))
        vocabulary = config.get("vocab_size")
        return cls(
            vocabulary if isinstance(vocabulary, int) else None,
            None if stops is None else frozenset([stops] if isinstance(stops, int) else stops),
        )

    def stopping_at(self, token: int | None) -> Self:
        """The same model, which stops at this token, too."""
        return self if token is None else self._replace(stops=(self.stops or frozenset()) | {token})


class TokenFindings:
    """Looks at the tokens of each row.

    Args:
        book: Where findings go.
        codec: The tokenizer.
        model: What the model does with its tokens.
    """

    def __init__(self, book: Book, codec: Codec, model: ModelTokens) -> None:
        self._book = book
        self._bos = codec.bos
        self._names = {token: text for text, token in codec.control.items()}
        self._vocabulary = model.vocabulary
        # Servers stop at the tokenizer's EOS too, whatever the model says of itself.
        self._stops = (model.stops or frozenset()) | ({codec.eos} if codec.eos is not None else frozenset())

    def see(self, number: int, parts: Parts, row: Encoded) -> None:
        """Look at a row of one text."""
        self._see_start(number, parts, row.input_ids)
        self._see_ids(number, row.input_ids)
        if row.trained_tokens == 0:
            cut = "the cut takes all of the answers" if row.answer_cut else "its text has nothing of an answer"
            self._book.add("nothing_trained", number, cut)
        elif row.answer_cut:
            self._book.add("answers_cut", number, f"{row.length:,} tokens")
        else:
            self._see_end(number, row.labels)
        if row.straddled:
            self._book.add("prompt_ends_inside_token", number, _border(parts))

    def see_pair(self, number: int, parts: Parts, row: EncodedPair) -> None:
        """Look at a row of two texts."""
        self._see_start(number, parts, row.prompt_ids[:_ENDS] + row.chosen_ids[:_ENDS])
        for ids in (row.prompt_ids, row.chosen_ids, row.rejected_ids):
            self._see_ids(number, ids)
        if not (row.chosen_ids and row.rejected_ids):
            self._book.add("nothing_trained", number, "the cut takes an answer")
        elif row.chosen_ids == row.rejected_ids:
            self._book.add("difference_cut" if row.cut else "chosen_equals_rejected", number)
        elif row.chosen_cut or row.rejected_cut:
            self._book.add("answers_cut", number, f"{max(row.length_chosen, row.length_rejected):,} tokens")
        else:
            for answer in (row.chosen_ids, row.rejected_ids):
                self._see_end(number, answer)
        if row.straddled:
            self._book.add("prompt_ends_inside_token", number, _border(parts))

    def _see_start(self, number: int, parts: Parts, ids: Sequence[int]) -> None:
        if len(ids) > 1 and ids[0] == ids[1] and ids[0] in self._names:
            self._book.add("double_bos", number, self._name(ids[0]))
        elif self._bos and parts.roles and tuple(ids[: len(self._bos)]) != self._bos:
            self._book.add("bos_missing", number, ", ".join(map(self._name, self._bos)))

    def _see_ids(self, number: int, ids: Sequence[int]) -> None:
        if self._vocabulary is not None and ids and (largest := max(ids)) >= self._vocabulary:
            self._book.add("id_past_embedding", number, f"{largest} of {self._vocabulary}")

    def _see_end(self, number: int, labels: Sequence[int]) -> None:
        if self._stops.isdisjoint(labels[-_ENDS:]) and self._stops.isdisjoint(labels):
            trained = next((label for label in reversed(labels) if label != IGNORED), None)
            if trained is not None:
                stops = ", ".join(map(self._name, sorted(self._stops))) or "nothing"
                ends = f"it ends with {self._name(trained)}, and the model stops at {stops}"
                self._book.add("stop_token_never_trained", number, ends)

    def _name(self, token: int) -> str:
        return repr(self._names[token]) if token in self._names else f"token {token}"


def _border(parts: Parts) -> str:
    prompt = "" if parts.roles or not parts.prompt else parts.prompt[-1]
    return f"{prompt[-_SHOWN:]!r} and {parts.answers[-1][:_SHOWN]!r}" if prompt else f"{parts.answers[-1][:_SHOWN]!r}"


def _object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    return dict(found) if isinstance(found, dict) else {}
