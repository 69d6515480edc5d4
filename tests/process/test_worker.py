"""One rank and two: what a run reports, what it leaves, and how it ends when something is wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.hub import COMMIT, REPOSITORY, TOKEN, hub
from tests.process.ranks import completed, events, logs, make_run, record, started

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_launcher.protocol.paths import RunDir
    from tests.conftest import Sample

pytestmark = pytest.mark.torch

STEPS = 3

# A fresh process looks at what a run left. The loss is computed from the model's own logits, row by row, so that it
# shares nothing with the trainer: neither padding nor batches nor its fused head.
LOOK = """
import json, sys, torch
from datasets import Dataset
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer
base_folder, final, rows = sys.argv[1:]
rows = Dataset.from_file(rows)
base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)

def total_loss(model):
    losses, count = 0.0, 0
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1].double()
        losses += torch.nn.functional.cross_entropy(logits, labels[1:], reduction="sum").item()
        count += int((labels[1:] != -100).sum())
    return losses / count

tuned = AutoModelForCausalLM.from_pretrained(final, dtype=torch.float32)
by_peft = AutoPeftModelForCausalLM.from_pretrained(final, dtype=torch.float32)
print(json.dumps({
    "base_loss": total_loss(base), "loss": total_loss(tuned), "peft_loss": total_loss(by_peft),
    "tokens": sum(len(row["input_ids"]) for row in rows),
    "chat": AutoTokenizer.from_pretrained(final).apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False),
}))
"""


def metrics(run: RunDir, name: str) -> list[float]:
    return [event["metrics"][name] for event in events(run, 0, "step")]


def phases(run: RunDir, rank: int) -> list[str]:
    return [event["phase"] for event in events(run, rank, "phase")]


@pytest.fixture(scope="module")
def eight_rows(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step of two ranks with two micro-batches of two rows takes them all, in whatever order."""
    path = tmp_path_factory.mktemp("data") / "eight.jsonl"
    path.write_text("".join(sample.sft.read_text().splitlines(keepends=True)[:8]))
    return path


@pytest.fixture(scope="module")
def lora_run(sample: Sample, eight_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run of two ranks."""
    folder = tmp_path_factory.mktemp("lora")
    settings = {
        "gpu_count": 2,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "num_epochs": float(STEPS),
        "max_seq_length": 256,
        "precision": "fp32",
        "lora_rank": 4,
        "learning_rate": 0.01,
    }
    return completed(make_run(folder, sample.tiny, eight_rows, **settings))


@pytest.fixture(scope="module")
def looked_at(sample: Sample, lora_run: RunDir) -> dict[str, Any]:
    """What a fresh process finds in that run's folder."""
    command = [sys.executable, "-c", LOOK, sample.tiny, lora_run.final, lora_run.data / "train.arrow"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ask(model: Path, **request: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "kernel_launcher.worker.generate"]
    text = json.dumps({"model": str(model), "max_new_tokens": 4, **request})
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


class TestRunOfTwoRanks:
    def test_rank_0_reports_every_step(self, lora_run: RunDir) -> None:
        """Each optimizer step once, in order, with the number of steps that there will be."""
        steps = [(event["step"], event["total_steps"]) for event in events(lora_run, 0, "step")]
        assert [(1, STEPS), (2, STEPS), (3, STEPS)] == steps
        assert [] == events(lora_run, 1, "step")

    def test_tokens_are_counted_over_all_ranks_and_without_padding(
        self, lora_run: RunDir, looked_at: dict[str, Any]
    ) -> None:
        """Rows differ in length, so padding would show."""
        assert [looked_at["tokens"] * step for step in (1, 2, 3)] == metrics(lora_run, "tokens")
        per_second = [looked_at["tokens"] / seconds for seconds in metrics(lora_run, "step_seconds")]
        assert per_second == pytest.approx(metrics(lora_run, "tokens_per_second"))

    def test_the_loss_is_that_of_the_whole_step(self, lora_run: RunDir, looked_at: dict[str, Any]) -> None:
        """The mean over its trained tokens, whatever rank has them. A new adapter is zero: step 1 is the base's."""
        assert looked_at["base_loss"] == pytest.approx(metrics(lora_run, "loss")[0], rel=1e-5)

    def test_the_learning_rate_and_the_epoch_are_reported_as_used(self, lora_run: RunDir) -> None:
        """Linear decay from the peak, without a warm-up."""
        assert [0.01, 0.01 * 2 / 3, 0.01 / 3] == pytest.approx(metrics(lora_run, "learning_rate"))
        assert [1, 2, 3] == metrics(lora_run, "epoch")
        assert all(norm > 0 for norm in metrics(lora_run, "grad_norm"))

    def test_each_rank_says_who_it_is_and_what_it_holds(self, lora_run: RunDir) -> None:
        """Process, phases in order, and peak memory at the end."""
        for rank in (0, 1):
            assert "process" == events(lora_run, rank)[0]["kind"]
            last = events(lora_run, rank, "heartbeat")[-1]
            assert (STEPS, "final") == (last["step"], last["phase"])
            assert last["peak_memory_bytes"] >= last["memory_bytes"] > 0
            assert ["import", "load", "tokenize", "load", "first_step", "train", "final"] == phases(lora_run, rank)

    def test_the_rows_are_told_before_the_first_step(self, lora_run: RunDir) -> None:
        """How many they are, and the first of them as the model sees it, in the events and in the log."""
        kinds = [event["kind"] for event in events(lora_run, 0)]
        assert kinds.index("data") < kinds.index("step")
        (told,) = events(lora_run, 0, "data")
        assert (8, 8, 0) == (told["rows"], told["kept"], told["cut"])
        assert told["row"]["text"] in lora_run.rank(0).stdout.read_text()

    def test_the_log_can_be_read(self, lora_run: RunDir) -> None:
        """A line a step, no progress bars, no complaints between libraries."""
        assert f"step {STEPS}/{STEPS}  loss" in lora_run.rank(0).stdout.read_text()
        assert "" == lora_run.rank(0).stderr.read_text()

    def test_the_adapter_is_complete_and_loads_in_a_fresh_process(
        self, sample: Sample, lora_run: RunDir, looked_at: dict[str, Any]
    ) -> None:
        """By both loaders; it has learned the rows; its template writes what the base's does."""
        files = {path.name: path.stat().st_size for path in lora_run.final.iterdir()}
        expected = {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"}
        assert expected | {"tokenizer.json", "tokenizer_config.json"} == files.keys()
        [artifact] = events(lora_run, 0, "artifact")
        assert files == {file["name"]: file["bytes"] for file in artifact["files"]}
        assert (str(lora_run.final), True) == (artifact["path"], artifact["verified"])
        assert (
            str(sample.tiny)
            == json.loads((lora_run.final / "adapter_config.json").read_text())["base_model_name_or_path"]
        )
        assert looked_at["loss"] == pytest.approx(looked_at["peft_loss"])
        assert looked_at["loss"] < looked_at["base_loss"] - 0.01
        assert "<|im_start|>user\nx<|im_end|>" in looked_at["chat"]

    def test_the_trained_and_the_base_model_answer(self, sample: Sample, lora_run: RunDir) -> None:
        """Text or messages, alone on standard output."""
        prompts = ["What is abs?", [{"role": "user", "content": "And what is a much longer question?"}]]
        for base in (False, True):
            done = ask(lora_run.final, prompts=prompts, base=base, base_model=str(sample.tiny))
            assert 0 == done.returncode, done.stderr
            assert 1 == done.stdout.count("\n")
            assert [str, str] == [type(answer) for answer in json.loads(done.stdout)["answers"]]


@pytest.mark.matrix
def test_a_failed_answer_is_one_line_on_standard_error(tmp_path: Path) -> None:
    """The caller shows the last line to its user."""
    done = ask(tmp_path / "nothing", prompts=["x"])
    assert (1, "") == (done.returncode, done.stdout)
    assert str(tmp_path / "nothing") in done.stderr.splitlines()[-1]


def test_a_full_fine_tune_differs_from_its_base_in_the_weights_alone(
    tmp_path: Path, sample: Sample, eight_rows: Path
) -> None:
    """float32 masters are saved as bfloat16; configuration and tokenizer are the base's, byte for byte."""
    run = completed(make_run(tmp_path, sample.tiny, eight_rows, max_steps=1, precision="bf16_mixed"))
    for path in sample.tiny.iterdir():
        same = path.read_bytes() == (run.final / path.name).read_bytes()
        assert same == (path.name != "model.safetensors"), path.name
    assert (run.final / "model.safetensors").stat().st_size == (sample.tiny / "model.safetensors").stat().st_size
    assert {path.name for path in sample.tiny.iterdir()} == {path.name for path in run.final.iterdir()}


OWN_CODE = """
import os
from transformers import Qwen3Config, Qwen3ForCausalLM

class OwnConfig(Qwen3Config):
    model_type = "own"

class OwnModel(Qwen3ForCausalLM):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        print("the token is", os.environ["HF_TOKEN"])
"""


@pytest.mark.matrix
def test_a_model_with_code_of_its_own_is_trained_whole(tmp_path: Path, sample: Sample, eight_rows: Path) -> None:
    """The code goes into the final folder, which is read back with it. What it prints is logged without the token."""
    model = shutil.copytree(sample.tiny, tmp_path / "model")
    (model / "own.py").write_text(OWN_CODE)
    config = json.loads((model / "config.json").read_text())
    code = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": code}
    (model / "config.json").write_text(json.dumps(config))
    run = make_run(tmp_path, model, eight_rows, max_steps=1, trust_remote_code=True)
    completed(run, {"HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": TOKEN})
    assert OWN_CODE == (run.final / "own.py").read_text()
    assert "the token is ***" in run.rank(0).stdout.read_text()
    assert not [path for path in run.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


@pytest.mark.matrix
def test_a_model_from_the_hub_is_fetched_by_one_rank(tmp_path: Path, sample: Sample, eight_rows: Path) -> None:
    """The other waits and loads the same files; the adapter points to the hub, not into a cache."""
    run = make_run(tmp_path, REPOSITORY, eight_rows, gpu_count=2, lora_rank=4, max_steps=1)
    with hub({path.name: path.read_bytes() for path in sample.tiny.iterdir()}) as endpoint:
        completed(run, {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": TOKEN})
    total = sum(path.stat().st_size for path in sample.tiny.iterdir())
    last = events(run, 0, "download")[-1]
    assert (total, total) == (last["done_bytes"], last["total_bytes"])
    assert [] == events(run, 1, "download")
    config = json.loads((run.final / "adapter_config.json").read_text())
    assert (REPOSITORY, COMMIT) == (config["base_model_name_or_path"], config["revision"])
    assert not [path for path in run.root.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_row_that_fits_no_format_is_named(tmp_path: Path, sample: Sample, eight_rows: Path) -> None:
    """Rank 0 says which, here one that only the template refuses; the other rank ends without a word of its own."""
    model = shutil.copytree(sample.tiny, tmp_path / "model")
    template = model / "chat_template.jinja"
    refuses = "{% if messages[0].content == '?' %}{{ raise_exception('no questions') }}{% endif %}"
    template.write_text(refuses + template.read_text())
    data = tmp_path / "rows.jsonl"
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    data.write_text(eight_rows.read_text() + json.dumps({"messages": turns}) + "\n")
    run = make_run(tmp_path, model, data, gpu_count=2)
    with started(run) as ranks:
        assert [1, 1] == ranks.wait()
    failure = record(run, 0)
    assert failure is not None
    assert ("dataset_format_incompatible", "tokenize", 0) == (failure.code, failure.phase, failure.step)
    assert "row 9" in failure.text
    assert record(run, 1) is None


def test_a_run_that_diverges_ends_at_that_step(tmp_path: Path, sample: Sample, eight_rows: Path) -> None:
    """No zeros, no model: the record has the step, and the event names what was not finite."""
    run = make_run(tmp_path, sample.tiny, eight_rows, max_steps=50, learning_rate=1e30, gpu_count=2)
    with started(run) as ranks:
        assert [1, 1] == ranks.wait()
    last = events(run, 0, "step")[-1]
    assert last["bad"]
    for rank in (0, 1):
        failure = record(run, rank)
        assert failure is not None, logs(run)
        assert ("non_finite_loss", "NonFiniteLoss", last["step"]) == (failure.code, failure.exception, failure.step)
    assert not run.final.exists()
    assert not list(run.root.glob(".final*"))


def test_ranks_do_not_outlive_their_launcher(tmp_path: Path, sample: Sample) -> None:
    """Not even a rank that waits in a collective for one that will never come, nor its data workers."""
    settings = {"gpu_count": 2, "max_steps": 100_000, "dataloader_num_workers": 1}
    with started(make_run(tmp_path, sample.tiny, sample.sft, **settings)) as ranks:
        ranks.wait_until(lambda: events(ranks.run, 0, "step"))
        waiting, stopped = ranks.processes
        children = psutil.Process(waiting.pid).children(recursive=True)
        assert children
        stopped.send_signal(signal.SIGSTOP)
        ranks.launcher.kill()
        assert -signal.SIGKILL == waiting.wait(20)
        _, left = psutil.wait_procs(children, timeout=5)
        assert [] == left
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(20)


def test_a_rank_shows_its_stacks_when_asked(tmp_path: Path, sample: Sample) -> None:
    """All threads, in a file of its own, and the run goes on."""
    with started(make_run(tmp_path, sample.tiny, sample.sft, max_steps=100_000)) as ranks:
        ranks.wait_until(lambda: events(ranks.run, 0, "step"))
        ranks.processes[0].send_signal(signal.SIGUSR1)
        stacks = ranks.run.rank(0).stacks
        ranks.wait_until(lambda: "training_step" in stacks.read_text() or "_run_epoch" in stacks.read_text())
        assert ranks.processes[0].poll() is None
        ranks.processes[0].terminate()
        assert -signal.SIGTERM == ranks.processes[0].wait(5)
        assert record(ranks.run, 0) is None
