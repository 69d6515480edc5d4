"""All that a picture of a job is made of, as it was at one time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from kernel_launcher.facts.gpus import KINDS
from kernel_launcher.protocol.files import read_json
from kernel_launcher.protocol.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry

_SHORTEST_SPAN, _LONGEST_SPAN = 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan in the run folder says, memory in bytes of a rank; 0 where it cannot say.

    Attributes:
        method: Training method.
        ranks: How many.
        on_gpu: Whether the ranks have GPUs.
        gpu_ids: Which ones; empty for the first ones.
        peak_bytes: What a rank will hold at its worst moment; with rows of full length, or of the longest one's.
        length: Tokens of a row that it is for, where it is not the full length.
        band_bytes: How far off that may be.
        limit_bytes: What a rank finds.
        phase: The worst moment.
        has_samples: Whether the model answers prompts during the run.
        tokens_per_second_at_most: What the ranks' matrix units could do of this job if they were never idle; 0 where
            that is not known. Six operations a parameter and token (Kaplan et al., 2020), four where the base is
            frozen; attention and recomputation are not counted.
    """

    method: str = ""
    ranks: int = 1
    on_gpu: bool = False
    gpu_ids: tuple[int, ...] = ()
    peak_bytes: int = 0
    length: int = 0
    band_bytes: int = 0
    limit_bytes: int = 0
    phase: str = ""
    has_samples: bool = True
    tokens_per_second_at_most: float = 0.0

    @classmethod
    def of(cls, entry: Entry) -> Planned:
        """Read it; an empty one where there is no plan that can be read."""
        plan: Any = read_json(entry.run.plan)
        try:
            resources, peak = dict(plan["resources"]), dict(plan["peak"] or {})
            return cls(
                method=str(plan["method"]["type"]),
                ranks=int(resources.get("gpu_count") or 1),
                on_gpu=resources.get("gpu_type", "CPU") != "CPU",
                gpu_ids=tuple(resources.get("gpu_ids") or ()),
                peak_bytes=int(peak.get("total_bytes", 0)),
                band_bytes=int(peak.get("band_bytes", 0)),
                limit_bytes=int(peak.get("limit_bytes", 0)),
                phase=str(peak.get("phase", "")),
                has_samples=plan["method"].get("sample_every") != 0,
                tokens_per_second_at_most=_most_tokens(plan),
            )
        except (KeyError, TypeError, ValueError):
            return cls()

    def for_rows(self, peak: Mapping[str, Any] | None) -> Planned:
        """The same, once it is known how long the rows are: ``peak`` as in the event ``data``."""
        if not peak or not self.peak_bytes:
            return self
        return replace(
            self,
            peak_bytes=peak["total_bytes"],
            length=peak["length"],
            band_bytes=peak["band_bytes"],
            phase=peak["phase"],
        )


def _most_tokens(plan: dict[str, Any]) -> float:
    resources, method = plan["resources"], plan["method"]
    kind = KINDS.get(resources.get("gpu_type", ""))
    count = plan.get("resolved_parallelism", {}).get("estimate", {}).get("param_count")
    if kind is None or not count or method["type"] != "sft_text":
        return 0.0
    operations = (4 if method.get("lora_rank") else 6) * count
    return float(int(resources.get("gpu_count") or 1) * kind.bf16_tflops * 1e12 / operations)


class Busy:
    """How busy the GPUs of a job are, by the driver's own count of the last second."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned

    def share(self) -> float | None:
        """From 0 to 1; None where there is no GPU, or a driver that does not say."""
        if not self._planned.on_gpu:
            return None
        import pynvml

        try:
            pynvml.nvmlInit()
            try:
                ids = self._planned.gpu_ids or range(min(self._planned.ranks, pynvml.nvmlDeviceGetCount()))
                handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in ids]
                found = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
            finally:
                pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return None
        return sum(found) / len(found) / 100 if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One look at a job.

    Attributes:
        entry: The job.
        view: Its state.
        summary: Its state in words.
        planned: What was expected.
        busy: Share of time that the job's GPUs compute, 0 to 1; None without a GPU.
    """

    entry: Entry
    view: JobView
    summary: Summary
    planned: Planned
    busy: float | None = None

    @classmethod
    def of(cls, entry: Entry, view: JobView, planned: Planned, busy: float | None = None) -> Moment:
        """The job as of now."""
        summary = Summary.of(entry, view, datetime.now(UTC).astimezone())
        planned = planned.for_rows((view.data or {}).get("peak"))
        return cls(entry=entry, view=view, summary=summary, planned=planned, busy=busy)

    @property
    def is_dpo(self) -> bool:
        return self.planned.method == "dpo"

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: the share of the GPUs' dense bfloat16 that goes into the model."""
        speed, most = self.view.latest("tokens_per_second"), self.planned.tokens_per_second_at_most
        return speed / most if speed is not None and most else None

    @property
    def span(self) -> int:
        """Steps that the smoothed curves look back: a fiftieth of the run, so that it does not change as it goes."""
        return min(_LONGEST_SPAN, max(_SHORTEST_SPAN, self.view.total_steps // 50))

    @property
    def epochs(self) -> tuple[float, float] | None:
        """Epochs done, and of the whole run; None while they are not known."""
        done, view = self.view.latest("epoch"), self.view
        if not done or not view.step or not view.total_steps:
            return None
        return done, done * view.total_steps / view.step

    def evaluations(self, metric: str) -> list[tuple[int, float]]:
        """Step and value of each evaluation that has this metric, with or without ``eval_`` before its name."""
        found = [(step, _number(row, metric)) for step, row in self.view.evaluations]
        return [(step, value) for step, value in found if value is not None]

    @property
    def samples(self) -> list[tuple[int, list[dict[str, Any]]]]:
        """Answers of the model by step, oldest first; empty where the run takes none."""
        return [(answered.step, answered.samples) for answered in self.view.samples if answered.samples]


def _number(row: dict[str, Any], metric: str) -> float | None:
    value = row.get(f"eval_{metric}", row.get(metric))
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
