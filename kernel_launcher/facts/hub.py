"""A model on the hub: its copy in the hub's cache, the catalogue, or, when asked, the hub's own metadata."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_launcher.facts import catalogue
from kernel_launcher.facts.model import facts_of_config, read_partial_facts
from kernel_launcher.planner import ModelFacts

MOST_SECONDS = 1.0
_MOST_BYTES = 16 * 2**20
_ENDPOINT = "https://huggingface.co"
_REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)


def hub_facts(model_id: str, revision: str | None = None, *, ask: bool = False) -> ModelFacts:
    """What is known of a model on the hub: from the cache, or the catalogue; unknown is a value.

    Args:
        model_id: Its id.
        revision: Branch, tag or commit; the catalogue knows the default branch only.
        ask: Ask the hub itself, a second at most; without an answer the catalogue counts.

    Raises:
        BrokenModelError: A file in the cache lies about its size.
    """
    snapshot = cached_snapshot(model_id, revision)
    if snapshot is not None:
        facts = read_partial_facts(snapshot)
        if facts.param_count is not None:
            return replace(facts, source=f"{facts.source}, in the hub's cache")
    asked = _ask(model_id, revision or "main") if ask else None
    known = asked or (None if revision else catalogue.facts_of(model_id))
    if known is not None:
        return known
    why = (
        f"unknown: the hub did not tell within {MOST_SECONDS:g} s" if ask else "unknown until the model is downloaded"
    )
    return ModelFacts(source=why)


def cached_snapshot(model_id: str, revision: str | None = None) -> Path | None:
    """The folder of a model in the hub's cache, if its config.json is there."""
    name = revision or "main"
    if not _REVISION.fullmatch(name) or ".." in name.split("/"):
        return None
    folder = _cache() / f"models--{model_id.replace('/', '--')}"
    try:
        commit = (folder / "refs" / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = name
    snapshot = folder / "snapshots" / commit
    try:
        return snapshot if "/" not in commit and (snapshot / "config.json").is_file() else None
    except OSError:
        return None


def _cache() -> Path:
    for variable, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if place := os.environ.get(variable):
            return Path(place).expanduser() / below
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def _ask(model_id: str, revision: str) -> ModelFacts | None:
    """What the hub says, or None if it does not within a second."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return None
    base = os.environ.get("HF_ENDPOINT", _ENDPOINT).rstrip("/")
    info, config = _get_all(
        f"{base}/api/models/{model_id}/revision/{revision}", f"{base}/{model_id}/resolve/{revision}/config.json"
    )
    facts = facts_of_config(config if isinstance(config, dict) else {})
    tensors = info.get("safetensors") if isinstance(info, dict) else None
    total = tensors.get("total") if isinstance(tensors, dict) else None
    if isinstance(total, int) and total > 0 and not facts.quantized:
        return replace(facts, param_count=total, source="the hub's metadata")
    return replace(facts, source="by formula, from the hub's config.json") if facts.param_count else None


def _get_all(*addresses: str) -> list[Any]:
    """The JSON at some addresses, None where it does not come in time: a name server may be slow, too."""
    answers: list[Any] = [None] * len(addresses)

    def answer(place: int) -> None:
        answers[place] = _get(addresses[place])

    threads = [threading.Thread(target=answer, args=(place,), daemon=True) for place in range(len(addresses))]
    deadline = time.monotonic() + MOST_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(answers)


def _get(address: str) -> Any:
    from http.client import HTTPException
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        with urlopen(address, timeout=MOST_SECONDS) as answer:
            return json.loads(answer.read(_MOST_BYTES))
    except (URLError, HTTPException, OSError, ValueError, RecursionError):  # no answer is an answer, too: unknown
        return None
