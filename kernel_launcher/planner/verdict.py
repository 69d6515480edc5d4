"""Whether a peak fits a GPU, said with number, limit and doubt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kernel_launcher.planner.shape import Unknown

if TYPE_CHECKING:
    from kernel_launcher.planner.peak import Peak

GIB = 2**30


class Fit(StrEnum):
    """How sure it is that a run fits; the order is from good to bad."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"
    CANNOT_SAY = "can't say"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What a process holds beside the tensors of a step, and how far the sum can be off.

    The defaults are from the literature; ``calibrated`` takes their place after a run on that kind of GPU.

    Attributes:
        context_bytes: CUDA context and kernels (seen: 0.14 to 0.9 GiB); on a CPU, Python with torch, transformers,
            TRL and PEFT (0.44 GB measured).
        communication_bytes: NCCL's buffers, where there is somebody to talk to (seen: 0.5 to 1.5 GiB).
        fragmentation: What the caching allocator holds beyond what is in use, as a share (seen: 2 to 5 %).
        band_share: Doubt about the peak, as a share of it.
        band_bytes: Doubt on top of it.
    """

    context_bytes: int = GIB // 2
    communication_bytes: int = GIB // 2
    fragmentation: float = 0.03
    band_share: float = 0.05
    band_bytes: int = GIB // 2

    def process_bytes(self, tensor_bytes: float, world_size: int) -> float:
        """All that a process takes of a GPU."""
        fixed = self.context_bytes + (self.communication_bytes if world_size > 1 else 0)
        return tensor_bytes * (1 + self.fragmentation) + fixed


UNCALIBRATED = Overhead()


def calibrated(predicted_tensor_bytes: float, measured_process_bytes: float, world_size: int) -> Overhead:
    """The overhead that makes a prediction meet what was measured once; the doubt is then 2 % of the peak."""
    plain = Overhead(context_bytes=0, communication_bytes=0)
    found = measured_process_bytes - plain.process_bytes(predicted_tensor_bytes, world_size)
    return Overhead(context_bytes=round(found), communication_bytes=0, band_share=0.02, band_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a run fits one GPU.

    Attributes:
        fit: The word for it.
        needed_bytes: What a process will take.
        limit_bytes: What the driver shows of the GPU, not what is printed on its box.
        band_bytes: How far off the need may be.
        phase: The worst moment.
        term: What takes most then.
        reason: Why nothing can be said.
    """

    fit: Fit
    limit_bytes: float
    needed_bytes: float | None = None
    band_bytes: float = 0.0
    phase: str = ""
    term: str = ""
    reason: str = ""

    def __str__(self) -> str:
        word = self.fit.value.upper()
        if self.needed_bytes is None:
            return f"{word}: {self.reason}"
        return (
            f"{word} {self.needed_bytes / GIB:.1f} of {self.limit_bytes / GIB:.1f} GiB per rank, "
            f"+-{self.band_bytes / GIB:.1f}; worst: {self.phase}"
        )


def judge(peak: Peak | Unknown, limit_bytes: float, world_size: int, overhead: Overhead = UNCALIBRATED) -> Verdict:
    """Compare a peak with the memory that a GPU shows."""
    if isinstance(peak, Unknown):
        return Verdict(fit=Fit.CANNOT_SAY, limit_bytes=limit_bytes, reason=peak.reason)
    needed = overhead.process_bytes(peak.tensor_bytes, world_size)
    band = overhead.band_share * needed + overhead.band_bytes
    if needed + band <= limit_bytes:
        fit = Fit.FITS
    elif needed - band <= limit_bytes:
        fit = Fit.TIGHT
    else:
        fit = Fit.DOES_NOT_FIT
    return Verdict(
        fit=fit,
        needed_bytes=needed,
        limit_bytes=limit_bytes,
        band_bytes=band,
        phase=peak.worst.name,
        term=peak.term,
    )
