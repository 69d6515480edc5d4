"""What Tab offers, through a kernel's own completion request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kernel.fakes import FakeJob

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernel.kernels import Kernel


def test_options(kernel: Kernel) -> None:
    """Options that begin so, without those that are on the line."""
    assert ["--gpu-type", "--gpus"] == sorted(kernel.complete("%veri_train --gp"))
    assert "--wait" not in kernel.complete("%veri_train --wait --")
    assert "--dry-run" in kernel.complete("%%veri_train --wait --")


@pytest.mark.parametrize("magic", ["%veri_attach", "%veri_logs -n 5", "%veri_stop --now"])
def test_jobs(kernel: Kernel, tmp_path: Path, magic: str) -> None:
    """Names and ids of jobs, where a magic takes one."""
    FakeJob(tmp_path / "run", "shown")
    assert ["shown", "shown-20250101-101010-ab12"] == kernel.complete(f"{magic} sh")
    assert "last" in kernel.complete(f"{magic} ")


def test_choices_and_kinds_of_gpu(kernel: Kernel) -> None:
    """Values that an option takes; not those that this release lacks."""
    assert ["auto", "none", "static", "widget"] == sorted(kernel.complete("%veri_train --display "))
    assert ["H100-80GB", "H200-141GB"] == sorted(kernel.complete("%veri_plan --gpu-type H"))
    assert ["H100-80GB", "H200-141GB"] == sorted(kernel.complete("%veri_plan --gpu-type=H"))
    assert "lora_rank=" in kernel.complete("%veri_plan --set=lora_")


def test_variables(kernel: Kernel) -> None:
    """Variables that may hold rows, after --data and -o."""
    kernel.run("import json as rows_module\nrows_to_train = [1]\ndef rows_function(): ...")
    assert ["rows_to_train"] == kernel.complete("%veri_train --data rows_")
    assert ["rows_to_train"] == kernel.complete("%veri_plan -o rows_")


def test_settings(kernel: Kernel) -> None:
    """Settings after --set, and in the TOML of a cell by section."""
    assert "lora_rank=" in kernel.complete("%veri_train --set lora_")
    cell = '%%veri_train\n[model]\nbase = "x"\n[method]\n'
    expected = ["max_grad_norm", "max_length", "max_prompt_length", "max_seq_length", "max_steps"]
    assert [f"{name} = " for name in expected] == sorted(kernel.complete(cell + "max_"))
    assert ["method"] == kernel.complete("%%veri_plan\n[me")
    assert "load_in_4bit = " not in kernel.complete(cell)
    assert "load_in_4bit = " in kernel.complete(cell.replace("train", "plan"))


def test_names_of_chat_templates_and_findings(kernel: Kernel) -> None:
    """Where a setting takes them: inside of quotes, or with quotes around, also further on in a list."""
    cell = "%%veri_train\n[method]\n"
    assert ["chatml"] == kernel.complete(cell + 'chat_template = "ch')
    assert '"chatml"' in kernel.complete(cell + "chat_template = ")
    assert ["chatml"] == kernel.complete("%veri_data --set chat_template=ch")
    codes = kernel.complete(cell + 'allow = ["bos_missing", "d')
    assert ["difference_cut", "double_bos", "duplicated_rows"] == codes
    assert '"bos_missing"' in kernel.complete(cell + "allow = [")


def test_other_lines_are_left_alone(kernel: Kernel) -> None:
    """Python is completed as before."""
    kernel.run("some_long_name = 1")
    assert "some_long_name" in kernel.complete("some_lo")
    assert "some_long_name" in kernel.complete("x = some_lo")
