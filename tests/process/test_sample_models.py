"""The sample's models, written by a process of its own and loaded as any user would."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Both models are written and read; the other tests use tiny all the time.
pytestmark = [pytest.mark.torch, pytest.mark.matrix]

# A text whose spaces before a digit show whether digits are split first, as SmolLM2's vocabulary was trained.
NUMBERED = "x  12"


def write(directory, only, seed="0"):
    command = [sys.executable, "-m", "kernel_launcher.samples", str(directory), "--only", only, "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return {name: Path(path) for name, path in json.loads(done.stdout).items()}, done.stderr


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def times(paths):
    return {path: path.stat().st_mtime_ns for folder in paths.values() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    paths, _ = write(tmp_path_factory.mktemp("sample"), "tiny,smollm2")
    return paths


def load(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_tiny_is_a_two_layer_qwen3(sample):
    """It loads without further arguments, is as small as promised, and is stored as real models are."""
    import torch

    model, tokenizer = load(sample["tiny"])
    config = model.config
    assert ("qwen3", 2, 32) == (config.model_type, config.num_hidden_layers, config.hidden_size)
    assert 1_591_488 == model.num_parameters()
    assert torch.bfloat16 == model.dtype
    assert len(tokenizer) == config.vocab_size


def test_tiny_has_the_same_bytes_on_each_run(sample, tmp_path):
    """Two processes with other hash seeds write the same files, and the second says nothing but what it writes."""
    paths, progress = write(tmp_path, "tiny", seed="1")
    assert hashes(sample["tiny"]) == hashes(paths["tiny"])
    assert f"writing {paths['tiny']}\n" == progress


def test_a_second_run_changes_nothing(sample):
    """Complete models are not made again."""
    before = times(sample)
    again, progress = write(sample["tiny"].parent, "tiny,smollm2")
    assert sample == again
    assert "" == progress
    assert before == times(sample)


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_the_tokenizer_is_that_of_smollm2(sample, name):
    """Chat markers are one token each, text gets no BOS, digits stand alone, and the chat template is there."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sample[name])
    assert [1] == tokenizer("<|im_start|>").input_ids
    assert ["hello"] == tokenizer("hello").tokens()
    assert ["x", "ĠĠ", "1", "2"] == tokenizer(NUMBERED).tokens()
    assert (1, 2, 2) == (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert 8192 == tokenizer.model_max_length
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n")
    assert "Hi" == tokenizer.decode(tokenizer(chat).input_ids, skip_special_tokens=True).splitlines()[-1]


def test_smollm2_has_all_its_parameters_and_answers(sample):
    """134,515,008 parameters in bfloat16 know the capital of France, and stop at the end of the turn."""
    import torch

    model, tokenizer = load(sample["smollm2"])
    assert 134_515_008 == model.num_parameters()
    assert torch.bfloat16 == model.dtype
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    asked = tokenizer(prompt, return_tensors="pt")
    answered = model.generate(**asked, max_new_tokens=40, do_sample=False)[0][asked["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answered)
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == answered[-1]
    assert len(answered) < 40


def test_smollm2_has_the_same_bytes_on_each_run(sample, tmp_path):
    """Dequantising twice gives the same files."""
    paths, _ = write(tmp_path, "smollm2", seed="1")
    assert hashes(sample["smollm2"]) == hashes(paths["smollm2"])
