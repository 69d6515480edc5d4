"""Answers of a model while it was trained, side by side: base, step 25, step 50."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kernel_launcher.protocol.files import readable
from kernel_launcher.protocol.summary import after
from veri_jupyter.monitor.static import CELL, FONT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.protocol.fold import Round

_NONE_YET = "no samples"
_WRAPPED = f"{CELL}; white-space: pre-wrap; max-width: 26em"


class SampleTable:
    """A row for each prompt, a column for each round of answers; empty while there are none.

    Attributes:
        rounds: As the job reported them.
    """

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = list(rounds)

    def to_json(self) -> list[dict[str, Any]]:
        """One object a round: ``step``, and ``samples`` as in the events."""
        return [{"step": answered.step, "samples": answered.samples} for answered in self.rounds]

    def __len__(self) -> int:
        return len(self.rounds)

    def __str__(self) -> str:
        lines = []
        for prompt, answers in self._rows():
            lines.append(f"> {_line(prompt)}")
            lines += [f"  {after(step)}: {_line(text)}" for step, text in answers]
        return "\n".join(lines) or _NONE_YET

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        if not self.rounds:
            return f"<div>{_NONE_YET}</div>"
        heads = ["prompt", *(after(answered.step) for answered in self.rounds)]
        top = "".join(f'<th scope="col" style="{CELL}">{head}</th>' for head in heads)
        body = "".join(_row(prompt, [text for _, text in answers]) for prompt, answers in self._rows())
        return f'<table style="{FONT}; color: inherit"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'

    def _rows(self) -> list[tuple[str, list[tuple[int, str]]]]:
        """Each prompt, and the step and the text of each answer to it."""
        prompts = [str(sample["prompt"]) for sample in self.rounds[0].samples] if self.rounds else []
        said = [{str(s["prompt"]): _text(s) for s in answered.samples} for answered in self.rounds]
        steps = [answered.step for answered in self.rounds]
        return [
            (prompt, [(step, answers.get(prompt, "")) for step, answers in zip(steps, said, strict=True)])
            for prompt in prompts
        ]


def _line(text: str) -> str:
    return readable(" ".join(text.split()))


def _text(sample: dict[str, Any]) -> str:
    return f"{str(sample['text']).strip()}{'' if sample.get('finished') else '…'}"


def _row(prompt: str, answers: Sequence[str]) -> str:
    head = f'<th scope="row" style="{_WRAPPED}; font-weight: normal">{escape(prompt)}</th>'
    return f"<tr>{head}" + "".join(f'<td style="{_WRAPPED}">{escape(text)}</td>' for text in answers) + "</tr>"
