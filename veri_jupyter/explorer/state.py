"""What the explorer is set to, and what comes of it: settings -> spec -> plan, or faults. No widgets here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernel_launcher import preflight
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.preflight.resources import check_resources
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.fields import Dataset
from kernel_launcher.spec.refusals import run_refusals
from veri_jupyter.explorer.knobs import HEADS, knob, knobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.planner import Plan
    from kernel_launcher.spec import JobSpec

_TYPE, _RANK = "method.type", "method.lora_rank"
_LENGTHS = {"sft_text": "method.max_seq_length", "dpo": "method.max_length"}
# What only one of them knows.
_OWN = {
    "sft_text": ("method.packing", "method.loss_on"),
    "dpo": ("method.beta", "method.loss_type", "method.max_prompt_length"),
}


@dataclass(frozen=True, slots=True)
class State:
    """Settings by dotted name, as they were typed, right or wrong; what is left open is not there.

    Attributes:
        settings: Dotted name to value.
        rows: Name of the variable that holds the rows; empty where a file or nothing does.
    """

    settings: Mapping[str, Any]
    rows: str = ""

    def with_rows(self, name: str) -> State:
        """With the rows of a variable, in the place of a file."""
        return replace(self.set({"dataset.id": None}), rows=name)

    def set(self, changes: Mapping[str, Any]) -> State:
        """With some settings changed; None, and a field's default, leave it open."""
        settings = {**self.settings, **changes}
        return replace(self, settings={key: value for key, value in settings.items() if not _is_open(key, value)})

    def with_method(self, method: str) -> State:
        """With another training method: the length goes along, what only the other one knows is left out."""
        before, after = self.length_key, _LENGTHS.get(method, _LENGTHS["sft_text"])
        changes = {before: None, after: self.settings.get(before, self.settings.get(after)), _TYPE: method}
        others = _OWN["sft_text" if method == "dpo" else "dpo"]
        return self.set({**dict.fromkeys(others), **changes})

    def with_lora(self, rank: int | None) -> State:
        """With an adapter, or without any of its settings."""
        if rank is not None:
            return self.set({_RANK: self.settings.get(_RANK, rank)})
        return self.set(dict.fromkeys([*HEADS["LoRA"], "method.load_in_4bit"]))

    @property
    def length_key(self) -> str:
        """What the length of a row is called for this method."""
        return _LENGTHS["dpo" if self.settings.get(_TYPE) == "dpo" else "sft_text"]

    @property
    def has_lora(self) -> bool:
        return self.settings.get(_RANK) is not None

    def changed(self, head: str) -> int:
        """How many settings under a head are not at their defaults."""
        return sum(not _is_open(each.key, self.settings.get(each.key)) for each in knobs()[head])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What comes of a state.

    Attributes:
        spec: What is asked; None where it cannot be read.
        plan: What would run; None where it is refused.
        faults: Why it is refused.
        not_here: Why it can be planned, and not be started on this machine.
    """

    spec: JobSpec | None = None
    plan: Plan | None = None
    faults: tuple[Fault, ...] = ()
    not_here: tuple[Fault, ...] = ()

    @property
    def awaits_model(self) -> bool:
        """Whether all that is wrong is that there is no model yet."""
        return [(fault.key, fault.value) for fault in self.faults] == [("model.base", "")]


def plan_of(spec: JobSpec) -> Plan:
    """The plan of a spec, without a look at its rows: that takes longer than a slider moves, and ``RowsOf`` does it.

    Raises:
        InvalidRequest: With everything that is wrong.
    """
    return preflight.prepare(spec.model_copy(update={"dataset": Dataset()}), to_run=False).plan


def judge(state: State) -> Judged:
    """Read and plan the settings, whatever they are."""
    spec = None
    try:
        spec = read_spec(state.settings)
        plan = plan_of(spec)
    except InvalidRequest as error:
        return Judged(spec=spec, faults=error.faults)
    _, elsewhere = check_resources(spec, to_run=True)
    missing = [] if state.rows or spec.dataset.id else [Fault("dataset.id", "", "no data.", "Name rows or a file.")]
    return Judged(spec=spec, plan=plan, not_here=(*run_refusals(spec), *elsewhere, *missing))


def _is_open(key: str, value: Any) -> bool:
    """Whether a value leaves a setting as it is by itself; a tuple is written as a list, and True is not 1."""
    if value is None:
        return True
    known = knob(key)
    if known is None:
        return False
    value = tuple(value) if isinstance(value, list) else value
    return type(value) is type(known.default) and bool(value == known.default)
