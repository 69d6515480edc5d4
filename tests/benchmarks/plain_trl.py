"""The same fine-tune as a plain TRL script under torchrun: what this project is compared with.

torchrun --nproc_per_node 2 plain_trl.py MODEL DATA OUTPUT STEPS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Clock(TrainerCallback):
    """Notes when each step was logged, and the tokens until then."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float]] = []

    def on_log(self, args, state, control, logs, **kwargs):
        """One line a step."""
        if "loss" in logs:
            self.steps.append((time.time(), logs["num_tokens"]))


model, data, output, steps = sys.argv[1:]
clock = Clock()
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        output_dir=output,
        per_device_train_batch_size=2,
        learning_rate=2e-4,
        max_steps=int(steps),
        max_length=1024,
        seed=42,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        model_init_kwargs={"dtype": torch.bfloat16},
        ddp_find_unused_parameters=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=load_dataset("json", data_files=data, split="train", cache_dir=output),
    peft_config=LoraConfig(r=8, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM"),
    callbacks=[clock],
)
trainer.train()
trainer.save_model(output)
if trainer.is_world_process_zero():
    Path(output, "clock.json").write_text(json.dumps(clock.steps), encoding="utf-8")
