"""What is read of a plan, and what is made of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.protocol.files import write_json
from kernel_launcher.protocol.paths import RunDir
from tests.unit.views import moment, step
from veri_jupyter.monitor.moment import Busy, Planned

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9
PLAN: dict[str, Any] = {
    "method": {"type": "sft_text", "lora_rank": None},
    "resources": {"gpu_type": "H100-80GB", "gpu_count": 4, "gpu_ids": [4, 5, 6, 7]},
    "peak": {"total_bytes": 60 * GB, "band_bytes": 3 * GB, "limit_bytes": 79 * GB, "phase": "end of backward"},
    "resolved_parallelism": {"estimate": {"param_count": 8 * 10**9}},
}


def planned(folder: Path, **changes: Any) -> Planned:
    entry: Any = SimpleNamespace(run=RunDir(folder))
    write_json(entry.run.plan, PLAN | changes)
    return Planned.of(entry)


def test_a_plan_is_read(tmp_path: Path) -> None:
    """Memory of a rank, the GPUs, and what they could do at most: 4 x 989e12 / (6 x 8e9) tokens a second."""
    found = planned(tmp_path)
    assert (True, 4, (4, 5, 6, 7), 60 * GB) == (found.on_gpu, found.ranks, found.gpu_ids, found.peak_bytes)
    assert 82_416 == int(found.tokens_per_second_at_most)


def test_an_adapter_needs_fewer_operations(tmp_path: Path) -> None:
    """The frozen base has no gradients of its own."""
    found = planned(tmp_path, method={"type": "sft_text", "lora_rank": 8})
    assert 123_625 == int(found.tokens_per_second_at_most)


@pytest.mark.parametrize(
    "changes",
    [{"peak": None}, {"resources": {}}, {"method": None}, {"resources": {"gpu_type": "Some GPU", "gpu_count": None}},
     {"resolved_parallelism": {"estimate": {"param_count": None}}}],
)  # fmt: skip
def test_what_a_plan_does_not_say_is_not_made_up(changes: dict[str, Any], tmp_path: Path) -> None:
    """No peak, no known GPU, no parameters: 0, and no figure."""
    found = planned(tmp_path, **changes)
    assert 0 == found.peak_bytes * found.tokens_per_second_at_most
    assert None is moment(step(1), planned=Planned()).mfu


def test_a_plan_says_whether_there_will_be_samples(tmp_path: Path) -> None:
    """Zero switches them off; unset is a quarter of the run."""
    assert planned(tmp_path, method={"type": "sft_text", "sample_every": None}).has_samples
    assert not planned(tmp_path, method={"type": "sft_text", "sample_every": 0}).has_samples


def test_without_a_gpu_nobody_asks_a_driver(tmp_path: Path) -> None:
    """On processor ranks there is no busy share; neither where the driver is missing."""
    assert None is Busy(Planned()).share()
    assert None is Busy(planned(tmp_path)).share()
