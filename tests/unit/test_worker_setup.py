"""From a plan to the trainer's settings, the adapter and the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.planner import Hardware, ModelFacts, make_plan
from kernel_launcher.spec import JobSpec
from kernel_launcher.spec.fields import Method
from kernel_launcher.worker.assignment import Rank
from kernel_launcher.worker.errors import ConfigError, DependencyError

if TYPE_CHECKING:
    from kernel_launcher.planner import Plan
    from tests.conftest import Sample

pytestmark = pytest.mark.torch
GPUS = Hardware(gpu_type="H100-80GB", gpu_memory_bytes=(80 * 10**9,) * 2, cores=8, host_memory_bytes=2**36)
CPU = Hardware(gpu_type="CPU", cores=8, host_memory_bytes=2**36)


def plan(hardware: Hardware = CPU, ranks: int = 2, param_count: int = 10**9, **method: Any) -> Plan:
    spec = JobSpec.from_sections({"model": {"base": "x/y"}, "method": method, "resources": {"gpu_count": ranks}})
    return make_plan(spec, hardware, ModelFacts(param_count=param_count))


def settings(**method: Any) -> Any:
    from kernel_launcher.worker.sft import sft_config

    return sft_config(plan(ranks=1, **method), output_dir="/nowhere")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({"micro_batch_size": 3, "gradient_accumulation_steps": 2}, {"per_device_train_batch_size": 3}),
        ({"global_batch_size": 8}, {"gradient_accumulation_steps": 8}),
        ({"num_epochs": 2.5}, {"num_train_epochs": 2.5, "max_steps": -1}),
        ({"max_steps": 7}, {"max_steps": 7}),
        ({"seed": 0}, {"seed": 0}),
        ({"learning_rate": 0.5, "weight_decay": 0.1}, {"learning_rate": 0.5, "weight_decay": 0.1}),
        ({"max_grad_norm": 0.0}, {"max_grad_norm": 0.0}),
        ({"optim": "sgd", "lr_scheduler_type": "cosine"}, {"optim": "sgd", "lr_scheduler_type": "cosine"}),
        ({"ddp_find_unused_parameters": True}, {"ddp_find_unused_parameters": True}),
        ({"dataloader_num_workers": 2}, {"dataloader_num_workers": 2}),
        ({"gradient_checkpointing": False}, {"activation_checkpointing": False}),
        ({"precision": "bf16"}, {"bf16": False}),
        ({"precision": "bf16_mixed"}, {"bf16": True}),
        ({"precision": "fp32"}, {"bf16": False}),
    ],
)
def test_every_hyperparameter_reaches_the_trainer(method: dict[str, Any], expected: dict[str, Any]) -> None:
    """Under the trainer's name for it."""
    args = settings(**method)
    assert expected == {name: getattr(args, name) for name in expected}


def test_what_the_trainer_does_unasked_is_off() -> None:
    """Reentrant checkpointing, hidden losses, saving, trackers, a second tokenisation."""
    args = settings()
    assert {"use_reentrant": False} == args.activation_checkpointing_kwargs
    assert args.activation_checkpointing
    assert not args.logging_nan_inf_filter
    assert ("no", [], 1) == (args.save_strategy, args.report_to, args.logging_steps)
    assert {"skip_prepare_dataset": True} == args.dataset_kwargs


@pytest.mark.parametrize(
    ("expected", "method"),
    [
        (0, {}),
        (3, {"warmup_steps": 3}),
        (1, {"warmup_steps": 1}),
        (5, {"warmup_ratio": 0.05}),
        (100, {"warmup_ratio": 1.0}),
        (0, {"warmup_ratio": 0.0}),
    ],
)
def test_warm_up_has_as_many_steps_as_asked(expected: int, method: dict[str, Any]) -> None:
    """Of a run of 100; the trainer would take a ratio of 1 for one step."""
    assert expected == settings(**method).get_warmup_steps(100)


def test_an_adapter_goes_on_the_layers_that_the_model_has(sample: Sample) -> None:
    """Others are named in a warning; if none is left, the model's own names are told."""
    from transformers import AutoModelForCausalLM

    from kernel_launcher.worker.adapter import lora_config

    model = AutoModelForCausalLM.from_pretrained(sample.tiny)
    warnings: list[str] = []

    def config(*targets: str) -> Any:
        method = Method(lora_rank=4, lora_alpha=8.0, lora_dropout=0.1, lora_target_modules=targets)
        return lora_config(model, method, warnings.append)

    found = config("q_proj", "c_attn")
    assert ({"q_proj"}, 4, 8.0, 0.1) == (found.target_modules, found.r, found.lora_alpha, found.lora_dropout)
    assert ["the model has no layers named c_attn; the adapter is on q_proj."] == warnings
    with pytest.raises(ConfigError, match="down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"):
        config("c_attn")
    with pytest.raises(ConfigError, match="the output layer"):
        config("q_proj", "lm_head")
    assert lora_config(model, Method(), warnings.append) is None


def test_a_plan_for_gpus_does_not_run_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times slower on the processor is not what was asked."""
    import torch

    from kernel_launcher.worker.group import choose_device

    rank = Rank(rank=1, local_rank=1, world_size=2, attempt=0)
    assert "cpu" == choose_device(plan(), rank).type
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DependencyError, match=r"rank 1 is planned for H100-80GB, and torch .* sees 1 GPUs"):
        choose_device(plan(GPUS), rank)


def test_a_collective_may_take_ten_minutes_or_as_long_as_a_large_model_needs() -> None:
    """A checkpoint has 6 bytes a parameter, weights and moments; at 50 MB/s."""
    from kernel_launcher.worker.group import timeout_seconds

    assert 600 == timeout_seconds(plan(param_count=10**9))
    assert 960 == timeout_seconds(plan(param_count=8 * 10**9))


def test_a_single_rank_takes_one_gpu_and_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the trainer splits its batch over all GPUs that it sees."""
    import os

    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1" if name.endswith("SIZE") else "0")
    for name in ("HF_HUB_DISABLE_TELEMETRY", "TQDM_DISABLE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    Rank.from_environment().prepare_environment()
    assert "3" == os.environ["CUDA_VISIBLE_DEVICES"]
    assert "RANK" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Rank(rank=0, local_rank=0, world_size=1, attempt=0).prepare_environment()
    assert "" == os.environ["CUDA_VISIBLE_DEVICES"]
