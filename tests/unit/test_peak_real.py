"""The peak against what torch's allocator really did, in a training step of a small model on the processor."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest

from kernel_launcher.planner.levers import LORA_TARGETS
from kernel_launcher.planner.peak import Peak, peak
from kernel_launcher.planner.shape import ModelShape, from_config
from kernel_launcher.planner.workload import Lora, Workload
from scripts.allocations import most_alive

pytestmark = pytest.mark.torch

CONFIG = {
    "model_type": "qwen3", "vocab_size": 6000, "hidden_size": 192, "intermediate_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True,
}  # fmt: skip
ROWS, LENGTH, RANK = 2, 256, 8


ADAPTER = Lora(rank=RANK, targets=LORA_TARGETS)


@pytest.mark.parametrize(
    ("precision", "lora", "loss", "recompute"),
    [
        ("bf16", None, "fused", True),
        pytest.param("bf16_mixed", None, "logits", True, marks=pytest.mark.matrix),
        pytest.param("bf16", ADAPTER, "logits", False, marks=pytest.mark.matrix),
        pytest.param("bf16", None, "logits", False, marks=pytest.mark.matrix),
        pytest.param("bf16_mixed", None, "fused", False, marks=pytest.mark.matrix),
        pytest.param("fp32", None, "logits", True, marks=pytest.mark.matrix),
        pytest.param("bf16", ADAPTER, "fused", True, marks=pytest.mark.matrix),
    ],
)
def test_a_step_allocates_what_was_predicted(precision: str, lora: Lora | None, loss: str, recompute: bool):
    """Weights, moments and everything that forward and backward allocate, to one part in a hundred."""
    shape = from_config(CONFIG)
    assert isinstance(shape, ModelShape)
    job = Workload(
        zero_stage=0,
        world_size=1,
        micro_batch_size=ROWS,
        length=LENGTH,
        precision=precision,
        recompute=recompute,
        lora=lora,
        loss=loss,
        mask="never",
        device="cpu",
    )
    found = peak(job, shape)
    assert isinstance(found, Peak)
    predicted = max(size for phase, size in found.by_phase.items() if phase != "optimizer step")
    assert predicted == pytest.approx(measured(job), rel=0.01)


def measured(job: Workload) -> int:
    """Bytes of the model and its optimizer, and the most that forward and backward held beside."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = build(job)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    ids = torch.zeros(job.rows, job.length, dtype=torch.int64)
    step(job, model, ids)
    optimizer.step()
    optimizer.zero_grad()
    kept = [*model.parameters(), *(t for state in optimizer.state.values() for t in state.values() if t.dim())]
    gc.collect()  # the models of earlier tests: freed while we look, they would be counted as ours
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step(job, model, ids)
    return sum(t.numel() * t.element_size() for t in kept) + most_alive(profiled)


def build(job: Workload) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    config = AutoConfig.for_model(**CONFIG, use_cache=False)
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16 if job.precision == "bf16" else torch.float32
    )
    model.train()
    if job.loss == "fused":
        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    if job.lora is not None:
        model = get_peft_model(model, LoraConfig(r=RANK, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM"))
    if job.recompute:
        model.activation_checkpointing_enable({"use_reentrant": False})
        if job.lora is not None:
            model.enable_input_require_grads()
    return model


def step(job: Workload, model: Any, ids: Any) -> None:
    import torch

    mixed = job.precision == "bf16_mixed"
    with torch.autocast("cpu", dtype=torch.bfloat16) if mixed else contextlib.nullcontext():
        if job.loss == "fused":
            loss = -model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs.sum()
        else:
            loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
