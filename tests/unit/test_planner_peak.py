"""What the peak has to say about a plan: the verdict, another stage, the micro batch, levers and alternatives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_launcher.facts.catalogue import facts_of
from kernel_launcher.facts.machine import hardware_for
from kernel_launcher.planner import Hardware, ModelFacts, Plan, make_plan
from kernel_launcher.planner.outlook import in_words
from kernel_launcher.planner.verdict import GIB, Fit, Verdict
from kernel_launcher.spec import read_spec


def plan(base: str = "Qwen/Qwen3-4B", gpus: tuple[str, int] = ("L4-24GB", 4), **settings: Any) -> Plan:
    hardware = hardware_for(gpus[0])
    assert isinstance(hardware, Hardware)
    spec = read_spec({"base_model": base, "gpu_type": gpus[0], "gpu_count": gpus[1], **settings})
    return make_plan(spec, hardware, facts_of(base) or ModelFacts())


WORST = "worst: end of backward"
VERDICTS = {
    Fit.FITS: f"FITS 16.9 of 22.0 GiB per rank, +-0.9; {WORST}",
    Fit.TIGHT: f"TIGHT 16.9 of 22.0 GiB per rank, +-0.9; {WORST}, most of it gradients",
    Fit.DOES_NOT_FIT: f"DOES NOT FIT 16.9 of 22.0 GiB per rank, +-0.9; {WORST}, most of it gradients",
}


@pytest.mark.parametrize("fit", VERDICTS)
def test_a_verdict_has_number_limit_band_phase_and_term(fit):
    """The term that dominates is named where there is something to lower."""
    verdict = Verdict(
        fit=fit, limit_bytes=22 * GIB, needed_bytes=16.9 * GIB, band_bytes=0.9 * GIB,
        phase="end of backward", term="gradients",
    )  # fmt: skip
    assert VERDICTS[fit] == in_words(verdict)


@pytest.mark.parametrize(
    ("base", "settings", "why"),
    [
        ("Qwen/Qwen3.5-9B", {}, "linear attention"),
        ("Qwen/Qwen3-30B-A3B", {"lora_rank": 8}, "mixtures of experts"),
        ("google/gemma-3-4b-it", {}, "vision tower"),
        ("owner/model", {}, "config.json is not at hand"),
        ("Qwen/Qwen3-4B", {"optim": "sgd"}, "AdamW"),
    ],
)
def test_what_is_not_known_is_not_said(base, settings, why):
    """Never a confident number for layers that the memory model does not know; the plan is made all the same."""
    made = plan(base, **settings)
    assert Fit.CANNOT_SAY is made.verdict.fit
    assert made.peak_text.startswith("CAN'T SAY: ")
    assert why in made.peak_text
    assert ([], None) == (made.levers, made.to_json()["peak"])
    assert all(Fit.CANNOT_SAY is other.verdict.fit for other in made.alternatives())


LONG = {"lora_rank": 8, "max_seq_length": 8192, "micro_batch_size": 4}


def test_the_peak_corrects_the_rule():
    """States that fit say nothing of activations: another stage that fits is taken, and the trace says why."""
    made, bare = plan(**LONG), plan(**LONG, plan_policy="page")
    assert (0, "does not fit") == (bare.method.zero_stage, bare.verdict.fit)
    assert made.method.zero_stage in (2, 3)
    assert made.verdict.fit in (Fit.FITS, Fit.TIGHT)
    assert re.match(r"corrected: zero_stage = [23]: the rule's zero_stage = 0 does not fit ", made.trace[3])
    assert made.line == made.describe()[4]


def test_stage_2_is_taken_where_it_fits():
    """It moves a third less than stage 3, so it is asked first."""
    made = plan("meta-llama/Llama-3.2-3B", ("NVIDIA A100-SXM4-40GB", 8), max_seq_length=8192, micro_batch_size=6)
    assert (2, "fits") == (made.method.zero_stage, made.verdict.fit)
    assert made.trace[3].startswith("corrected: zero_stage = 2: the rule's zero_stage = 0 does not fit ")


def test_an_explicit_stage_is_never_corrected():
    """What was asked is done; the verdict tells."""
    made = plan(**LONG, zero_stage=0)
    assert (0, "does not fit") == (made.method.zero_stage, made.verdict.fit)


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({}, 16),
        ({"global_batch_size": 64}, 64),
        ({"gpu_count": 3}, 18),
        ({"global_batch_size": 24, "gpu_count": 2}, 24),
    ],
)
def test_an_automatic_micro_batch_is_the_largest_that_fits(settings, total):
    """It divides the global batch, which is 16 or the next multiple of the GPUs if nobody set it."""
    settings = {"max_seq_length": 4096, "gradient_checkpointing": False, **settings}
    made = plan("Qwen/Qwen3-0.6B", **{"gpu_count": 4, **settings}, micro_batch_size="auto")
    m = made.method
    assert (total, total) == (
        m.global_batch_size,
        m.micro_batch_size * m.gradient_accumulation_steps * made.world_size,
    )
    assert Fit.FITS is made.verdict.fit
    ways = [a for a in made.alternatives() if a.workload.zero_stage == m.zero_stage and not a.workload.recompute]
    assert m.micro_batch_size == max(a.workload.micro_batch_size for a in ways if a.verdict.fit is Fit.FITS)
    assert any(d.key == "micro_batch_size" and d.reason == "the largest that fits." for d in made.defaults)


def test_the_peak_of_rows_is_that_of_a_job_of_their_length():
    """A micro-batch is as wide as its longest row; packed rows fill theirs, and no row is longer than the cut."""
    planned, short = plan(max_seq_length=1024), plan(max_seq_length=184)
    expected = short.to_json()["peak"]
    of_rows = planned.peak_of_rows(184)
    assert of_rows == {"length": 184, **{key: expected[key] for key in ("total_bytes", "band_bytes", "phase")}}
    assert planned.peak_of_rows(1024) == planned.peak_of_rows(5000)
    assert planned.to_json()["peak"]["total_bytes"] == planned.peak_of_rows(5000)["total_bytes"]
    assert None is plan(packing=True).peak_of_rows(184)


def test_an_automatic_micro_batch_is_64_at_most():
    """A model that is tiny on a GPU that is large."""
    made = plan("HuggingFaceTB/SmolLM2-135M", ("H100-80GB", 2), micro_batch_size="auto", global_batch_size=512)
    assert (64, 4) == (made.method.micro_batch_size, made.method.gradient_accumulation_steps)
    free = plan(
        "HuggingFaceTB/SmolLM2-135M", ("H100-80GB", 2), micro_batch_size="auto", gradient_accumulation_steps=2
    )
    assert (64, 256) == (free.method.micro_batch_size, free.method.global_batch_size)


def test_one_micro_batch_a_step_may_fit_where_two_do_not():
    """FSDP2 keeps whole gradients between micro-batches, so the largest is looked for from the top."""
    made = plan("Qwen/Qwen3-32B", ("H100-80GB", 8), micro_batch_size="auto", global_batch_size=64)
    fits = {
        a.workload.micro_batch_size for a in made.alternatives() if a.verdict.fit is Fit.FITS and a.workload.recompute
    }
    assert max(fits, default=1) == made.method.micro_batch_size


def test_where_nothing_fits_the_micro_batch_is_the_least():
    """Of a model that is too large, and of one that is not known; the plan says so."""
    large = plan("Qwen/Qwen3-32B", micro_batch_size="auto")
    unknown = plan("owner/model", micro_batch_size="auto")
    assert (1, 1) == (large.method.micro_batch_size, unknown.method.micro_batch_size)
    assert "micro_batch_size = 1: the least, and even that does not fit for sure." in map(str, large.defaults)
    assert "micro_batch_size = 1: the least: the memory model cannot say what fits." in map(str, unknown.defaults)


JOBS = st.fixed_dictionaries(
    {
        "base": st.sampled_from(
            ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "meta-llama/Llama-3.2-1B", "google/gemma-3-1b-it"]
        )
    },
    optional={
        "type": st.sampled_from(["sft_text", "dpo"]),
        "zero_stage": st.sampled_from([0, 2, 3]),
        "precision": st.sampled_from(["bf16", "bf16_mixed", "fp32"]),
        "lora_rank": st.integers(1, 64),
        "micro_batch_size": st.sampled_from([1, 2, 3, 8]),
        "gradient_accumulation_steps": st.sampled_from([1, 4]),
        "gradient_checkpointing": st.booleans(),
    },
)


@given(JOBS)
def test_a_lever_gains_what_it_says(job):
    """Applying a lever as a setting gives its gain; what is on already, or gains nothing, is not offered."""
    made = plan(**job)
    for lever in made.levers:
        assert getattr(made.method, lever.key) != lever.value
        change = {lever.key: lever.value}
        if lever.key == "micro_batch_size":
            # The optimizer batch stays where it divides; an odd one grows by a row.
            change["gradient_accumulation_steps"] = lever.workload.accumulation_steps
        again = plan(**{**job, "zero_stage": made.method.zero_stage, **change})
        assert lever.gain_bytes > 0
        assert pytest.approx(lever.gain_bytes) == made.peak.tensor_bytes - again.peak.tensor_bytes


def test_levers_that_are_on_are_not_offered():
    """Recompute and bf16 are on by default, and a LoRA job is not told to use LoRA."""
    names = {lever.key for lever in plan(**LONG, zero_stage=0).levers}
    assert {"zero_stage", "micro_batch_size", "max_seq_length"} <= names
    assert set() == {"gradient_checkpointing", "precision", "lora_rank"} & names
    assert "gradient_checkpointing" in {lever.key for lever in plan(gradient_checkpointing=False).levers}


@given(JOBS)
def test_alternatives_are_the_same_job_best_first(job):
    """All keep the optimizer batch; the plan's own is among them; no worse verdict stands above a better."""
    made = plan(**job)
    others = made.alternatives()
    rows = made.method.micro_batch_size * made.method.gradient_accumulation_steps
    assert {rows} == {a.workload.micro_batch_size * a.workload.accumulation_steps for a in others}
    order = list(Fit)
    assert [a.verdict.fit for a in others] == sorted((a.verdict.fit for a in others), key=order.index)
    assert [made.verdict] == [a.verdict for a in others if a.workload == made.outlook.workload]


def test_stage_2_moves_a_third_less_than_stage_3():
    """Weights are gathered once instead of twice, gradients are reduced once in both."""
    sent = {a.workload.zero_stage: a.traffic_bytes for a in plan("Qwen/Qwen3-8B").alternatives()}
    assert pytest.approx(2 / 3, abs=0.05) == sent[2] / sent[3]
    sent = {a.workload.zero_stage: a.traffic_bytes for a in plan().alternatives()}
    assert pytest.approx(2 * 2 * 4_022_468_096 * 3 / 4) == sent[0]


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("Qwen/Qwen3-4B", {}),
        ("Qwen/Qwen3-4B", {"lora_rank": 8}),
        ("owner/model", {}),
        ("Qwen/Qwen3-4B", {"optim": "sgd"}),
    ],
)
def test_the_outlook_survives_its_file(base, settings):
    """A plan from a run folder has the same peak, and still has alternatives."""
    made = plan(base, **settings)
    again = Plan.from_json(json.loads(json.dumps(made.to_json())))
    assert made == again
    assert made.alternatives() == again.alternatives()


def test_the_card_shows_every_term_against_both_limits():
    """A bar by term with its words, marks at budget and memory, levers where they are needed; nothing runs in it."""
    made = plan(**LONG, zero_stage=0)
    html = made.html()
    lever = escape(made.levers_to_tell()[0])
    for words in (*made.peak_terms, "budget for states 14.2 GiB", "memory 22.0 GiB", lever, "DOES NOT FIT"):
        assert words in html
    widths = [float(width) for width in re.findall(r"width: ([\d.]+)%; box-sizing", html)]
    assert len(made.peak_terms) == len(widths)
    assert sum(widths) < 100
    assert html.count("<div") == html.count("</div>")
    assert "<script" not in html
    assert "CAN&#x27;T SAY" in plan("owner/model").html()


def test_a_card_shows_text_as_text():
    """A name with markup in it stays a name."""
    made = plan()
    hostile = replace(made, resources=made.resources.model_copy(update={"gpu_type": "<img src=x>"}))
    assert "<img" not in hostile.html()
