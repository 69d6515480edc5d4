"""Every refusal, word by word: ``refusals.txt`` is the page to review.

``VERI_UPDATE_SNAPSHOT=1 pytest tests/unit/test_spec_refusals.py`` writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.facts import machine
from kernel_launcher.planner import Hardware
from kernel_launcher.preflight import prepare
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.read import parse_gpus, parse_override

PAGE = Path(__file__).with_name("refusals.txt")
BASE = 'base_model = "owner/model"'
ROWS = [{"prompt": "a", "completion": "b"}]
PAIRS = [{"prompt": "a", "chosen": "b", "rejected": "c"}]

# Title: the TOML of a job (with a base model, if it names none).
JOBS = {
    "no base model": "[method]\nlora_rank = 8",
    "unknown name, near one": f"{BASE}\nlora_rnk = 8",
    "unknown name, near none": f"{BASE}\nxyzzy = 8",
    "name of another system": f"{BASE}\nper_device_train_batch_size = 2",
    "name that nobody need set": f'{BASE}\ndevice_map = "auto"',
    "token in the job": f'{BASE}\nhf_token = "short"',
    "section without keys": 'model = "owner/model"',
    "setting in the wrong section": f"{BASE}\n[dataset]\nlora_rank = 8",
    "number as text": f'{BASE}\nlora_rank = "8"',
    "number with a point": f"{BASE}\nmicro_batch_size = 2.0",
    "true as a number": f"{BASE}\nmicro_batch_size = true",
    "micro batch of a word": f'{BASE}\nmicro_batch_size = "most"',
    "too small": f"{BASE}\nmax_steps = 0",
    "too large": f"{BASE}\ngpu_count = 9",
    "not above": f"{BASE}\nlearning_rate = 0",
    "not below": f"{BASE}\nlora_dropout = 1.0",
    "not finite": f"{BASE}\nlearning_rate = nan",
    "text as a number": f"{BASE}\nsplit = 5",
    "empty text": f'{BASE}\nprompt = ""',
    "number as a switch": f"{BASE}\ngradient_checkpointing = 1",
    "text as a list": f'{BASE}\nlora_target_modules = "q_proj"',
    "too long a list": f"{BASE}\nsample_prompts = {json.dumps(9 * ['Why?'])}",
    "name that is no folder": f'{BASE}\nname = "../up"',
    "one of several": f'{BASE}\noptim = "adam"',
    "unknown method": f'{BASE}\nmethod = "sft"',
    "method of a later release": f'{BASE}\nmethod = "grpo"',
    "multi-GPU keys of another method": f'{BASE}\nmethod = "grpo"\nzero_stage = 3\nmicro_batch_size = 4',
    "ZeRO-1": f"{BASE}\nzero_stage = 1",
    "stage with a point": f"{BASE}\nzero_stage = 2.0",
    "fp16": f'{BASE}\nprecision = "fp16"',
    "fp8": f'{BASE}\nprecision = "fp8"',
    "sharding on one GPU": f"{BASE}\nzero_stage = 3\ngpu_count = 1",
    "offload on one GPU": f"{BASE}\ncpu_offload = true\ngpu_count = 1",
    "offload of what is not sharded": f"{BASE}\ncpu_offload = true\nzero_stage = 0",
    "pipeline parallel": f"{BASE}\npipeline_parallel_size = 2",
    "expert parallel": f"{BASE}\nexpert_parallel_size = 2",
    "context parallel": f"{BASE}\ncontext_parallel_size = 2",
    "tensor parallel": f"{BASE}\ntensor_parallel_size = 2",
    "length of DPO": f"{BASE}\nmax_length = 512",
    "length of SFT": f'{BASE}\nmethod = "dpo"\nmax_seq_length = 512',
    "setting of DPO": f"{BASE}\nbeta = 0.1",
    "no room for an answer": f'{BASE}\nmethod = "dpo"\nmax_length = 512\nmax_prompt_length = 512',
    "setting of SFT": f'{BASE}\nmethod = "dpo"\npacking = true',
    "unknown loss of DPO": f'{BASE}\nmethod = "dpo"\nloss_type = "kto"',
    "checkpoints": f"{BASE}\ncheckpoint_every = 1",
    "evaluation": f"{BASE}\nval_split_ratio = 0.1",
    "accepting a finding by nearly its name": f'{BASE}\nallow = ["duplicate_rows"]',
    "accepting no finding": f'{BASE}\nallow = ["xyzzy"]',
    "accepting what no run goes on with": f'{BASE}\nallow = ["id_past_embedding"]',
    "hub": f'{BASE}\n[huggingface]\nrepo = "owner/mine"',
    "4-bit without an adapter": f"{BASE}\nload_in_4bit = true",
    "4-bit on several GPUs": f"{BASE}\nload_in_4bit = true\nlora_rank = 8\ngpu_count = 4",
    "Unsloth on several GPUs": f"{BASE}\nuse_unsloth = true\ngpu_count = 4",
    "Liger on several GPUs": f"{BASE}\nuse_liger = true\ngpu_count = 4",
    "Liger with Unsloth": f"{BASE}\nuse_liger = true\nuse_unsloth = true",
    "adapter to publish without an adapter": f'{BASE}\n[huggingface]\nartifact = "adapter"',
    "restarts": f"{BASE}\nmax_restarts = 1",
    "resume": f'{BASE}\nresume_from = "last"',
    "aliases that disagree": f"{BASE}\nbatch_size = 1\nmicro_batch_size = 2",
    "batch that does not divide": f"{BASE}\nglobal_batch_size = 7\ngpu_count = 2",
    "batch smaller than the ranks": f"{BASE}\nglobal_batch_size = 1\ngpu_count = 2",
    "automatic micro batch that does not divide": (
        f'{BASE}\nmicro_batch_size = "auto"\nglobal_batch_size = 10\ngradient_accumulation_steps = 2\ngpu_count = 2'
    ),
    "batch that does not multiply": f"{BASE}\nglobal_batch_size = 8\ngradient_accumulation_steps = 3\ngpu_count = 2",
    "layout": f"{BASE}\ntensor_parallel_size = 2\ndata_parallel_size = 4\ngpu_count = 4",
    "replicas": f"{BASE}\ndata_parallel_size = 4\ngpu_count = 2",
    "adapter settings without an adapter": f"{BASE}\nlora_alpha = 16",
    "adapter on no layer": f"{BASE}\nlora_rank = 8\nlora_target_modules = []",
    "a name that means something else": f'{BASE}\nname = "last"',
    "a name that looks like a token": f'{BASE}\nname = "hf_abcdefghijklmnopqrst"',
    "two warm-ups": f"{BASE}\nwarmup_steps = 5\nwarmup_ratio = 0.1",
    "a warm-up that a constant rate ignores": f'{BASE}\nwarmup_steps = 5\nlr_scheduler_type = "constant"',
    "GPU named twice": f"{BASE}\ngpu_ids = [0, 0]",
    "no GPU named": f"{BASE}\ngpu_ids = []",
    "list and number of GPUs": f"{BASE}\ngpu_ids = [0, 1]\ngpu_count = 3",
    "broken TOML": "[model\nbase = 1",
    "text without quotes": "[model]\nbase = ./sample/smollm2",
    "several things": f'{BASE}\nlora_rnk = 8\nmax_steps = 0\nprecision = "fp16"',
}
# Title: a job that is well formed, and its rows; refused by a look at files and GPUs (here: two cores, no GPU).
CHECKED: dict[str, tuple[dict[str, Any], object]] = {
    "no such model": ({"base": "./smolm2"}, ROWS),
    "no such model, none near": ({"base": "./nowhere/model"}, ROWS),
    "model is a file": ({"base": "./rows.jsonl"}, ROWS),
    "model without a config": ({"base": "./empty"}, ROWS),
    "model without weights": ({"base": "./weightless"}, ROWS),
    "model with half a file": ({"base": "./half"}, ROWS),
    "model that is an adapter": ({"base": "./adapter"}, ROWS),
    "model without a tokenizer": ({"base": "./mute"}, ROWS),
    "no data": ({"base": "./smollm2"}, None),
    "data twice": ({"base": "./smollm2", "dataset_id": "./rows.jsonl"}, ROWS),
    "split of a file": ({"base": "./smollm2", "dataset_id": "./rows.jsonl", "split": "test"}, None),
    "more ranks than cores": ({"base": "./smollm2", "gpu_count": 3}, ROWS),
    "GPUs where there are none": ({"base": "./smollm2", "gpu_ids": [0]}, ROWS),
    "a GPU type that is not here": ({"base": "./smollm2", "gpu_type": "H100-80GB"}, ROWS),
    "half of a GPU type": ({"base": "./smollm2", "gpu_type": "h100"}, ROWS),
    "an unknown GPU type": ({"base": "./smollm2", "gpu_type": "TPU"}, ROWS),
    "a batch that does not divide by the ranks that are here": ({"base": "./smollm2", "global_batch_size": 7}, ROWS),
    "replicas that are not here": ({"base": "./smollm2", "data_parallel_size": 4}, ROWS),
    "offload from the processor": (
        {"base": "./smollm2", "type": "dpo", "zero_stage": 3, "cpu_offload": True},
        PAIRS,
    ),
    "what can be planned and not run, with an adapter": (
        {"base": "./smollm2", "lora_rank": 8, "load_in_4bit": True, "zero_stage": 0},
        ROWS,
    ),
    "Liger": ({"base": "./smollm2", "gpu_count": 1, "use_liger": True}, ROWS),
    "an adapter on no layer that there is": (
        {"base": "Qwen/Qwen3-4B", "lora_rank": 8, "lora_target_modules": ["query", "value"], "gpu_count": 1},
        ROWS,
    ),
    "a quantised base without an adapter": ({"base": "./packed"}, ROWS),
    "no interpreter": ({"base": "./smollm2", "python": "./rows.jsonl"}, ROWS),
    "an interpreter that fails": ({"base": "./smollm2", "python": "./fails"}, ROWS),
    "an environment without the libraries": ({"base": "./smollm2", "python": "./bare"}, ROWS),
    "an environment with another version": ({"base": "./smollm2", "python": "./old"}, ROWS),
    "several things": ({"base": "./smolm2", "gpu_count": 3}, None),
}
WORDS = {"not KEY=VALUE": (parse_override, "lora_rank"), "no GPUs": (parse_gpus, "two")}
FILES = {"no such job file": "missing.toml", "a job file in YAML": "job.yaml"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models with one thing missing each, on a machine with two cores."""
    monkeypatch.chdir(tmp_path)
    here = Hardware(gpu_type="CPU", cores=2, host_memory_bytes=8_000_000_000)
    monkeypatch.setattr(machine, "this_machine", lambda: here)
    monkeypatch.setattr("kernel_launcher.preflight.resources.this_machine", lambda: here)
    monkeypatch.setattr("kernel_launcher.preflight.environment._version", lambda _: "1.0")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + b"\0\0\0\0"
    parts = {"config.json": b"{}", "model.safetensors": weights, "tokenizer.json": b"{}"}
    models: dict[str, dict[str, bytes]] = {
        "smollm2": parts,
        "empty": {},
        "weightless": {**parts, "model.safetensors": b""},
        "half": {**parts, "model.safetensors": weights[:-2]},
        "adapter": {**parts, "adapter_config.json": b"{}"},
        "mute": {**parts, "tokenizer.json": b""},
        "packed": {**parts, "config.json": b'{"quantization_config": {"quant_method": "gptq", "bits": 4}}'},
    }
    for model, files in models.items():
        (tmp_path / model).mkdir()
        for name, content in files.items():
            if content:
                (tmp_path / model / name).write_bytes(content)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    answers = {
        "fails": "echo 'ImportError: no module named site' >&2; exit 1",
        "bare": 'echo \'{"veri-jupyter": null, "torch": "2.13.0", "trl": null}\'',
        "old": 'echo \'{"veri-jupyter": "0.0.1", "torch": "2.13.0"}\'',
    }
    for name, does in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_refusals_word_by_word(folder):
    """What a person reads when something is wrong is reviewed as a page, and changes only on purpose."""
    blocks = [_block(title, text, lambda text=text: read_spec(text)) for title, text in JOBS.items()]
    for title, name in FILES.items():
        blocks.append(_block(title, name, lambda name=name: read_spec(name)))
    for title, (read, text) in WORDS.items():
        blocks.append(_block(title, text, lambda read=read, text=text: read(text)))
    for title, (settings, rows) in CHECKED.items():
        shown = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
        shown += "\nrows from the notebook" if rows else ""
        blocks.append(_block(title, shown, lambda s=settings, r=rows: prepare(read_spec(s), r)))
    page = "\n".join(blocks).replace(str(folder), "/here")
    if os.environ.get("VERI_UPDATE_SNAPSHOT"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def _block(title: str, given: str, try_it: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        try_it()
    shown = "\n".join(f"    {line}" for line in given.splitlines())
    return f"## {title}\n{shown}\n{caught.value.code}: {caught.value}\n"
