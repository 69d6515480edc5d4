"""A job as one JSON object: what ``veri-jupyter jobs --json`` and the SDK verbs return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_launcher.launcher.watcher import Watcher, final_status
from kernel_launcher.protocol.files import now, read_json, seconds_between

if TYPE_CHECKING:
    from kernel_launcher.protocol.index import Entry


def job_object(entry: Entry) -> dict[str, Any]:
    """The fields of one job; times are ISO 8601 UTC, durations seconds."""
    asked = read_json(entry.run.spec) or {}
    plan = read_json(entry.run.plan) or {}
    sections = asked.get("spec", {})
    resources = plan.get("resources", {})
    # The events of a job that has ended need not be read.
    live = final_status(entry.run) or Watcher(entry).refresh().to_status()
    started, ended = live["started_at"], live["completed_at"]
    return {
        "id": entry.id,
        "name": entry.name,
        "status": live["status"],
        "base_model": sections.get("model", {}).get("base"),
        "method": plan.get("method", {}).get("type"),
        "hyperparameters": {name: value for name, value in sections.get("method", {}).items() if name != "type"},
        "dataset_id": asked.get("data", {}).get("id") or asked.get("data", {}).get("path"),
        "output_name": str(entry.run.final),
        "gpu_requested": {"type": resources.get("gpu_type"), "count": resources.get("gpu_count")},
        "resolved_parallelism": plan.get("resolved_parallelism"),
        "current_step": live["step"],
        "total_steps": live["total_steps"] or None,
        "current_loss": live["loss"],
        "error": live["error"],
        "created_at": entry.created_at,
        "started_at": started or None,
        "completed_at": ended or None,
        "duration_seconds": round(seconds_between(started, ended or now()), 3) if started else None,
    }
