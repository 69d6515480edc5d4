"""A model from the hub, downloaded once, with progress."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from huggingface_hub import HfApi, hf_hub_download

from kernel_launcher.secrets import redact
from kernel_launcher.worker.errors import ModelLoadError
from kernel_launcher.worker.failures import code_of
from kernel_launcher.worker.transfer import fetch_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The first group of weights that a repository has is taken: many ship the same weights several times over.
_WEIGHTS = (
    re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"),
    re.compile(r"[^/]+\.safetensors(\.index\.json)?"),
    re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?"),
)
_TEXTS = re.compile(r"[^/]+\.(json|jinja|txt|model|tiktoken)|additional_chat_templates/[^/]+\.jinja")
_CODE = re.compile(r".+\.py")


class Snapshot(NamedTuple):
    """A model's files in the hub's cache, and the commit that they are of."""

    folder: Path
    revision: str


def fetch(
    model_id: str,
    revision: str | None,
    *,
    with_code: bool,
    report: Callable[..., None],
    warn: Callable[[str], None],
) -> Snapshot:
    """Download what is needed to load a model; what the cache has is not fetched again.

    Args:
        model_id: Its name on the hub.
        revision: Branch, tag or commit; None is the default branch.
        with_code: Also fetch the code that the repository ships.
        report: Called about once a second with the fields of a ``download`` event.
        warn: Called with one sentence when the hub cannot be asked and the cache's copy is used.

    Raises:
        ModelLoadError: There is no such model, no access, or no network and no copy.
    """
    try:
        info = HfApi().model_info(model_id, revision=revision, files_metadata=True)
    except Exception as error:  # the client lets its transport's errors through, of whatever class
        return _from_cache(model_id, revision, error, warn)
    commit = str(info.sha)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    names = needed_files(sizes, with_code=with_code)
    try:
        fetch_files(model_id, {name: sizes[name] for name in names}, commit, report)
        # Once by the name that was asked for: that is what lets the cache answer for it without a network.
        config = Path(hf_hub_download(model_id, "config.json", revision=revision))
    except Exception as error:
        if code_of(error):
            raise
        raise _unavailable(model_id, error) from error
    return Snapshot(config.parent, commit)


def needed_files(names: Iterable[str], *, with_code: bool) -> list[str]:
    """Of a repository's files, those that loading reads: one set of weights (safetensors before bin), and texts."""
    names = list(names)
    weights = next((found for kind in _WEIGHTS if (found := [n for n in names if kind.fullmatch(n)])), [])
    others = [name for name in names if _TEXTS.fullmatch(name) and ".index." not in name]
    code = [name for name in names if _CODE.fullmatch(name)] if with_code else []
    return sorted({*weights, *others, *code})


def _from_cache(model_id: str, revision: str | None, error: Exception, warn: Callable[[str], None]) -> Snapshot:
    try:
        config = Path(hf_hub_download(model_id, "config.json", revision=revision, local_files_only=True))
    except Exception:  # whatever is wrong with the cache, the first error is the one to tell
        raise _unavailable(model_id, error) from error
    warn(f"the hub cannot be asked about {model_id} ({_reason(error)}); the copy in the cache is used.")
    return Snapshot(config.parent, config.parent.name)


def _unavailable(model_id: str, error: Exception) -> ModelLoadError:
    return ModelLoadError(f"{model_id} cannot be had from the hub: {_reason(error)}")


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return redact(f"{type(error).__name__}: {first_line}".rstrip(": "))
