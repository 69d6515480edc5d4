"""What a look at a data set shows: rows as tokens with their marks, lengths, findings. Values, and no picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.data.lint import Finding
    from kernel_launcher.data.show.tokens import Token

State = Literal["context", "trained", "cut"]
Kind = Literal["random", "longest", "cut", "suspicious"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Of a long row as much is shown as somebody reads: an answer's beginning and end, and the places where marks change.
_FIRST, _LAST, _MOST_RUNS = 300, 100, 200
_TEMPLATE = "template"


class Marks(NamedTuple):
    """What tokens that are shown alike have in common; see ``Token``."""

    role: str | None
    trained: bool
    special: bool
    cut: bool

    @classmethod
    def of(cls, token: Token) -> Marks:
        """Those of one token."""
        return cls(token.role, token.trained, token.special, token.cut)

    @property
    def state(self) -> State:
        """What becomes of such tokens: cut off, or trained, or read only."""
        return "cut" if self.cut else "trained" if self.trained else "context"


class Run(NamedTuple):
    """Neighbouring tokens with the same marks; of many only the first and the last are shown."""

    marks: Marks
    first: tuple[Token, ...]
    hidden: int = 0
    last: tuple[Token, ...] = ()

    @property
    def size(self) -> int:
        """How many tokens it has, the hidden ones too."""
        return len(self.first) + self.hidden + len(self.last)


class Turn(NamedTuple):
    """What belongs to one speaker, with the text that the template puts around it; ``role`` is empty for a gap."""

    role: str
    runs: tuple[Run, ...]

    def stretches(self) -> list[tuple[State, tuple[Run, ...]]]:
        """The runs of each state."""
        return [(state, tuple(runs)) for state, runs in groupby(self.runs, key=lambda run: run.marks.state)]


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence that the model reads: a row, or one side of a pair.

    Attributes:
        name: ``chosen`` or ``rejected``; empty for a row that is one sequence.
        tokens: All of them, those that are cut too.
    """

    name: str
    tokens: tuple[Token, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many tokens there are, are trained, and are cut."""
        return {
            "tokens": len(self.tokens),
            "trained": sum(token.trained and not token.cut for token in self.tokens),
            "cut": sum(token.cut for token in self.tokens),
        }

    def turns(self) -> tuple[Turn, ...]:
        """The tokens to show, by speaker, and within that by their marks."""
        turns: list[Turn] = []
        left = _MOST_RUNS
        spoken = zip(_speakers(self.tokens), self.tokens, strict=True)
        for role, said in groupby(spoken, key=itemgetter(0)):
            runs = [_run(marks, tuple(run)) for marks, run in groupby((token for _, token in said), key=Marks.of)]
            turns.append(Turn(role, tuple(runs[:left])))
            left -= len(runs)
            if left <= 0:
                break
        rest = len(self.tokens) - sum(run.size for turn in turns for run in turn.runs)
        nothing = Marks(None, trained=False, special=False, cut=False)
        return (*turns, Turn("", (Run(nothing, (), rest),))) if rest else tuple(turns)

    def to_json(self) -> dict[str, Any]:
        """The sequence as a JSON object."""
        tokens = [asdict(token) for token in self.tokens]
        return {"name": self.name, "counts": self.counts, "tokens": tokens}


def _run(marks: Marks, tokens: tuple[Token, ...]) -> Run:
    if len(tokens) <= _FIRST + _LAST:
        return Run(marks, tokens)
    return Run(marks, tokens[:_FIRST], len(tokens) - _FIRST - _LAST, tokens[-_LAST:])


def _speakers(tokens: tuple[Token, ...]) -> list[str]:
    """Whose turn each token stands in.

    What the template writes between two turns belongs to the one that it opens, but for what closes the turn before:
    what is trained, one control token, and white space. What it opens and closes by itself is its own turn.
    """
    names: list[str] = [token.role or "" for token in tokens]
    closers = {last.id for word, last in pairwise(tokens) if word.role and not last.role and last.special}
    speaker, closed, start = "", True, 0
    for i, token in enumerate(tokens):
        if token.role:
            speaker, closed = token.role, False
        elif not token.text.strip() or (not closed and (token.trained or token.special)):
            names[i], closed = speaker, closed or token.special
        elif token.id in closers and not speaker:
            names[start : i + 1] = [_TEMPLATE] * (i + 1 - start)
            speaker = _TEMPLATE
        elif speaker:
            speaker, start = "", i
    opened = next((name for name in reversed(names) if name), _TEMPLATE)
    for i in reversed(range(len(names))):
        opened = names[i] = names[i] or opened
    return names


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the data set.

    Attributes:
        number: Its number in the data set, from 1; in a file of lines, the line.
        parts: One, or the two sides of a pair.
        prompt: What comes before the last answer, as it is sent to the model when it is used; None for plain text.
        why: What there is to say of it: that it is cut or dropped, and the findings that name it.
    """

    number: int
    parts: tuple[Part, ...]
    prompt: str | None = None
    why: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return {
            "row": self.number,
            "why": list(self.why),
            "prompt": self.prompt,
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DataView:
    """A data set as a model would learn from it, with some of its rows.

    Attributes:
        source: Where the rows come from.
        model: Whose tokenizer and template made tokens of them.
        settings: What decides about tokens: method, loss_on, max_seq_length and the like.
        rows_seen: Rows that were looked at.
        complete: Whether these were all.
        formats: How many of them are of each format.
        micro_batch_size: Rows that are padded to one length.
        lengths: Their lengths in tokens, and what becomes of them: ``PrepareReport.summary``; ``packing_rows``, how
            many of them packing puts into a sequence; ``packing_saves``, the share of the computed tokens that it
            takes away (both None for pairs).
        findings: What is suspicious about them.
        kind: Which rows are shown.
        of_kind: How many such rows there are among those looked at.
        rows: The first of them.
    """

    source: str
    model: str
    settings: Mapping[str, Any]
    rows_seen: int
    complete: bool
    formats: Mapping[str, int]
    micro_batch_size: int
    lengths: Mapping[str, Any]
    findings: tuple[Finding, ...]
    kind: Kind
    of_kind: int
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """The whole view as a JSON object."""
        return {
            "source": self.source,
            "model": self.model,
            "settings": dict(self.settings),
            "rows_seen": self.rows_seen,
            "complete": self.complete,
            "formats": dict(self.formats),
            "micro_batch_size": self.micro_batch_size,
            "lengths": dict(self.lengths),
            "findings": [asdict(finding) for finding in self.findings],
            "kind": self.kind,
            "of_kind": self.of_kind,
            "rows": [row.to_json() for row in self.rows],
        }
