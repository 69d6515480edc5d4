"""What would lower a peak, and what else could be run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.planner.alternatives import alternatives, largest_micro_batch, traffic
from kernel_launcher.planner.levers import LORA_TARGETS, levers
from kernel_launcher.planner.peak import Peak, peak
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.planner.verdict import GIB, Fit, judge
from kernel_launcher.planner.workload import Lora, Workload
from tests.unit.peak_rows import shape

L4 = 22 * GIB
JOB = Workload(zero_stage=0, world_size=4, micro_batch_size=8, length=1024, recompute=False)


def tensor_bytes(job: Workload, model: str) -> float:
    found = peak(job, shape(model))
    assert isinstance(found, Peak)
    return found.tensor_bytes


adapters = st.none() | st.builds(
    Lora, rank=st.sampled_from([8, 64]), targets=st.just(LORA_TARGETS), dropout=st.sampled_from([0.0, 0.1]),
    four_bit=st.booleans(),
)  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> Workload:
    """Any job that is not refused."""
    adapter = draw(adapters)
    world_size = draw(st.sampled_from([1, 2, 8]))
    sharded = world_size > 1 and not (adapter and adapter.four_bit)
    stage = draw(st.sampled_from([0, 2, 3])) if sharded else 0
    return Workload(
        zero_stage=stage,
        world_size=world_size,
        micro_batch_size=draw(st.integers(1, 64)),
        length=draw(st.integers(2, 40_000)),
        precision=draw(st.sampled_from(["bf16", "bf16_mixed", "fp32"])),
        recompute=draw(st.booleans()),
        method=draw(st.sampled_from(["sft_text", "dpo"])),
        lora=adapter,
        optimizer=draw(st.sampled_from(["fused", "foreach"])),
        loss=draw(st.sampled_from(["fused", "logits"])),
        mask=draw(st.sampled_from(["padded", "always", "never"])),
        accumulation_steps=draw(st.integers(1, 5)),
        sync_each_batch=draw(st.booleans()),
        cpu_offload=stage > 0 and draw(st.booleans()),
        units=draw(st.sampled_from(["accelerate", "root"])),
        device=draw(st.sampled_from(["cuda", "cpu"])),
    )


models = st.sampled_from(["Qwen3-0.6B", "Llama-3.1-8B", "Gemma-3-1B", "Phi-4-mini", "OLMo-2-1B"])


@given(jobs(), models)
def test_any_job_has_a_peak(job: Workload, model: str):
    """No job raises, and each holds at least its weights and what it trains."""
    found = peak(job, shape(model))
    assert isinstance(found, Peak)
    assert all(size >= 0 for phase in found.phases for size in phase.terms.values())
    assert found.tensor_bytes > 0


@given(jobs(), models)
def test_a_lever_does_what_it_says(job: Workload, model: str):
    """Its gain is the difference of two peaks, and it changes something."""
    for lever in levers(job, shape(model)):
        assert lever.workload != job
        assert lever.gain_bytes > 0
        assert tensor_bytes(job, model) - lever.gain_bytes == pytest.approx(tensor_bytes(lever.workload, model))


@given(jobs(), models)
def test_a_lever_that_is_on_is_not_offered(job: Workload, model: str):
    """Nobody is told to do what is done."""
    offered = {lever.key for lever in levers(job, shape(model))}
    on = {
        "optim": job.optimizer == "fused",
        "gradient_checkpointing": job.recompute,
        "cpu_offload": job.cpu_offload,
        "lora_rank": job.lora is not None,
        "load_in_4bit": job.lora is not None and job.lora.four_bit,
        "precision": job.precision == "bf16",
        "micro_batch_size": job.micro_batch_size == 1,
        "sync_each_batch": job.sync_each_batch,
    }
    assert not {key for key, is_on in on.items() if is_on} & offered
    assert not (job.zero_stage == 3 and "zero_stage" in offered)


def test_the_cheapest_lever_is_first():
    """What costs nothing, then traffic, then time, then precision, then what is trained."""
    job = replace(JOB, optimizer="foreach", precision="bf16_mixed", zero_stage=2)
    keys = [lever.key for lever in levers(job, shape("Qwen3-4B"))]
    order = ["micro_batch_size", "gradient_checkpointing", "precision", "max_seq_length", "cpu_offload", "lora_rank"]
    assert order == [key for key in keys if key in order]


def test_levers_keep_the_optimizer_batch():
    """A smaller micro-batch means more of them, not fewer rows a step."""
    lever = next(lever for lever in levers(JOB, shape("Qwen3-4B")) if lever.key == "micro_batch_size")
    assert (4, 2) == (lever.workload.micro_batch_size, lever.workload.accumulation_steps)


def test_nothing_is_offered_for_an_unknown_model():
    """Where no peak can be said, no gain can."""
    assert [] == levers(JOB, Unknown("it has a vision tower"))


def test_alternatives_come_best_first():
    """What fits is before what does not; of what fits, what computes least."""
    found = alternatives(JOB, shape("Qwen3-4B"), L4)
    assert 3 * 4 * 2 == len(found)
    fits = [way.verdict.fit for way in found]
    assert sorted(fits, key=list(Fit).index) == fits
    assert {8} == {way.workload.micro_batch_size * way.workload.accumulation_steps for way in found}


def test_an_alternative_is_read_in_one_line():
    """What a list of them shows in a cell: the setting, the verdict, the traffic."""
    best = alternatives(JOB, shape("Qwen3-4B"), L4)[0]
    assert repr(best).startswith(f"<zero_stage={best.workload.zero_stage} mbs=")
    assert f"{best.verdict}; {best.traffic_bytes / 1e9:.1f} GB sent a step>" in repr(best)


def test_alternatives_of_one_gpu_do_not_shard():
    """There is nobody to shard with."""
    job = replace(JOB, world_size=1)
    assert {0} == {way.workload.zero_stage for way in alternatives(job, shape("Qwen3-0.6B"), L4)}


def test_stage_2_moves_a_third_less_than_stage_3():
    """It gathers weights once for forward and backward."""
    s = shape("Qwen3-32B")
    two, three = (traffic(replace(JOB, zero_stage=stage), s) for stage in (2, 3))
    assert two / three == pytest.approx(2 / 3, rel=0.03)


def test_ddp_moves_gradients_twice_around_the_ring():
    """Reduced, then handed out: 2 (W - 1) / W of their bytes."""
    s = shape("Qwen3-4B")
    assert 2 * 3 / 4 * 2 * s.params == traffic(JOB, s)


def test_the_largest_micro_batch_fits_and_the_next_one_does_not():
    """The largest divisor of a rank's rows whose verdict is that it fits."""
    job = replace(JOB, zero_stage=3, recompute=True, micro_batch_size=1, accumulation_steps=64)
    s = shape("Qwen3-4B")
    size = largest_micro_batch(job, s, L4)
    assert size is not None
    assert 64 % size == 0
    fits = {
        n: judge(peak(replace(job, micro_batch_size=n, accumulation_steps=64 // n), s), L4, 4).fit for n in (size, 64)
    }
    assert {size: Fit.FITS, 64: Fit.DOES_NOT_FIT} == fits


def test_no_micro_batch_fits_a_model_that_is_too_large():
    """Then there is none to choose."""
    assert largest_micro_batch(replace(JOB, zero_stage=3), shape("Qwen3-32B"), L4) is None
