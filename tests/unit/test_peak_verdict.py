"""The word for a peak, and how sure it is."""

from __future__ import annotations

import pytest

from kernel_launcher.planner.peak import Peak, host_memory, peak
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import GIB, Fit, Overhead, Verdict, calibrated, judge
from kernel_launcher.planner.workload import Lora, Workload
from tests.unit.peak_rows import shape

L4 = 22 * GIB
FULL = Workload(zero_stage=3, world_size=4, micro_batch_size=1, length=1024, loss="logits")


def verdict(job: Workload, model: str, limit: float, overhead: Overhead | None = None) -> Verdict:
    return judge(peak(job, shape(model)), limit, job.world_size, *([overhead] if overhead else []))


def test_a_verdict_in_one_line():
    """Need, limit, doubt and the worst moment, in GiB."""
    assert "FITS 11.7 of 22.0 GiB per rank, +-1.1; worst: end of backward" == str(verdict(FULL, "Qwen3-4B", L4))


@pytest.mark.parametrize(
    ("limit_gib", "fit"), [(13.0, Fit.FITS), (12.0, Fit.TIGHT), (11.0, Fit.TIGHT), (10.0, Fit.DOES_NOT_FIT)]
)
def test_within_the_band_it_is_tight(limit_gib: float, fit: Fit):
    """11.7 GiB, give or take 1.1."""
    assert fit is verdict(FULL, "Qwen3-4B", limit_gib * GIB).fit


def test_nothing_is_said_of_what_is_not_known():
    """No number stands in for a reason."""
    found = judge(Unknown("its layers are mixtures of experts"), L4, 4)
    assert (Fit.CANNOT_SAY, None) == (found.fit, found.needed_bytes)
    assert "CAN'T SAY: its layers are mixtures of experts" == str(found)


def test_a_run_calibrates_the_next_verdict():
    """What was measured once is what is said of the same job, with less doubt."""
    found = peak(FULL, shape("Qwen3-4B"))
    assert isinstance(found, Peak)
    measured = 12.3 * GIB
    again = verdict(FULL, "Qwen3-4B", L4, calibrated(found.tensor_bytes, measured, 4))
    assert again.needed_bytes == pytest.approx(measured, abs=1)
    assert again.band_bytes < verdict(FULL, "Qwen3-4B", L4).band_bytes


def test_terms_add_up_to_the_peak():
    """The bars of a picture are as long as the number beside it."""
    found = peak(FULL, shape("Qwen3-4B"))
    assert isinstance(found, Peak)
    assert found.tensor_bytes == sum(found.worst.terms.values()) == max(found.by_phase.values())
    assert all(size > 0 for size in found.worst.terms.values())


def test_gradients_that_wait_are_whole():
    """accelerate leaves gradients of earlier micro-batches unreduced: whole, in the format they are reduced in."""
    s = shape("Qwen3-8B")
    job = Workload(
        zero_stage=3, world_size=8, micro_batch_size=1, length=1024, precision="bf16_mixed", accumulation_steps=4
    )
    waiting, reduced = peak(job, s), peak(Workload(**{**_fields(job), "sync_each_batch": True}), s)
    assert isinstance(waiting, Peak)
    assert isinstance(reduced, Peak)
    assert 4 * s.params * 7 / 8 == pytest.approx(waiting.tensor_bytes - reduced.tensor_bytes, rel=0.2)


def test_offloading_moves_states_to_the_host():
    """Weights, gradients and moments are in host memory, spread over the ranks."""
    s = shape("Qwen3-8B")
    job = Workload(zero_stage=3, world_size=4, micro_batch_size=1, length=1024, cpu_offload=True)
    found, host = peak(job, s), host_memory(job, s)
    assert isinstance(found, Peak)
    assert not {"weights", "optimizer"} & found.worst.terms.keys()
    assert 8 * s.params / 4 == host.offloaded
    assert 2 * s.params == host.loading


def test_four_bits_take_half_a_byte():
    """A packed base, its embedding left as it is."""
    s = shape("Llama-3.1-8B")
    adapter = Lora(rank=16, targets=("q_proj", "v_proj"), four_bit=True)
    found = peak(Workload(zero_stage=0, world_size=1, micro_batch_size=1, length=1024, lora=adapter), s)
    assert isinstance(found, Peak)
    packed = s.layers * s.linear_params
    assert 0.516 * packed + 2 * (s.params - packed) == pytest.approx(found.worst.terms["weights"], rel=0.01)


def _fields(job: Workload) -> dict[str, object]:
    return {name: getattr(job, name) for name in Workload.__dataclass_fields__}
