"""The results as a page and as JSON."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_check.rows import Row

_PACKAGES = ("torch", "transformers", "accelerate", "peft", "trl", "liger-kernel")
_GROUPS = {
    "alone": "one rank",
    "eight": "rank 0 of eight, the others feigned",
    "together": "all GPUs; without one, two processes",
}


def entry(row: Row, status: str, **found: Any) -> dict[str, Any]:
    """One line of the results."""
    return {"group": row.group, "name": row.name, "status": status, **found}


def header(device: str) -> dict[str, Any]:
    """Where this was run."""
    import torch

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "device": device,
        "gpus": gpus if device == "cuda" else [],
        "cuda": torch.version.cuda,
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def markdown(header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page."""
    gpus = ", ".join(header["gpus"]) or "no GPU"
    versions = ", ".join(f"{name} {number or 'missing'}" for name, number in header["versions"].items())
    lines = [f"# Training on {gpus}", "", f"CUDA {header['cuda']}; {versions}", ""]
    for group, title in _GROUPS.items():
        lines += [
            f"## {title}",
            "",
            "| run | status | loss | peak | planned | peak / plan | tokens/s a rank | AdamW ms |",
        ]
        lines += ["| - | - | - | - | - | - | - | - |"]
        lines += [_line(row) for row in rows if row["group"] == group]
        lines += [""]
    ran = sum(row["status"] == "ran" for row in rows)
    failed = sum(row["status"].startswith("failed") for row in rows)
    lines.append(f"{ran} ran, {failed} failed, {len(rows) - ran - failed} not run.")
    return "\n".join(lines) + "\n"


def _line(row: Mapping[str, Any]) -> str:
    if row["status"] != "ran":
        return f"| {row['name']} | {row['status']} | | | | | | |"
    losses, peak, planned = row["losses"], row["peak_bytes"], row["planned_bytes"]
    course = f"{losses[0]:.3f} → {losses[-1]:.3f}" if losses else ""
    size = f"{row['layers']} layers of {row['hidden']}, {row['length']} tokens, {row['loss']}"
    return (
        f"| {row['name']} | ran ({size}) | {course} | {_size(peak)} | {_size(planned)} | {peak / planned:.3f} | "
        f"{row['tokens_per_second']:,.0f} | {1000 * row['optimizer_seconds']:.1f} |"
    )


def _size(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
