"""A model from the hub, downloaded once, with progress."""

from __future__ import annotations

import re
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

from kernel_launcher.secrets import redact
from kernel_launcher.worker.errors import ModelLoadError
from kernel_launcher.worker.failures import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FILES_AT_ONCE = 8
_EVENT_SECONDS = 1.0
_RATE_EVENTS = 10
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
        _download(
            model_id, commit, {name: sizes[name] for name in names if not _cached(model_id, name, commit)}, report
        )
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


class Progress:
    """Adds up the bytes of files that come in parallel, and reports about once a second."""

    def __init__(self, total: int, report: Callable[..., None]) -> None:
        self._total = total
        self._report = report
        self._done = 0
        self._lock = Lock()
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=_RATE_EVENTS)

    def add(self, file: str, count: int, *, fetched: bool = True) -> None:
        """Note bytes of a file; ``fetched`` ones count for the rate, those of an earlier try do not."""
        with self._lock:
            self._done += count
            now = time.monotonic()
            if not fetched:
                self._marks = deque([(at, done + count) for at, done in self._marks], maxlen=_RATE_EVENTS)
            elif now - self._marks[-1][0] >= _EVENT_SECONDS or self._done >= self._total:
                self._mark(file, now)

    def _mark(self, file: str, now: float) -> None:
        since, before = self._marks[0]
        rate = (self._done - before) / max(now - since, 1e-3)
        self._marks.append((now, self._done))
        self._report(file=file, done_bytes=self._done, total_bytes=self._total, bytes_per_second=round(rate))


def _from_cache(model_id: str, revision: str | None, error: Exception, warn: Callable[[str], None]) -> Snapshot:
    try:
        config = Path(hf_hub_download(model_id, "config.json", revision=revision, local_files_only=True))
    except Exception:  # whatever is wrong with the cache, the first error is the one to tell
        raise _unavailable(model_id, error) from error
    warn(f"the hub cannot be asked about {model_id} ({_reason(error)}); the copy in the cache is used.")
    return Snapshot(config.parent, config.parent.name)


def _download(model_id: str, commit: str, missing: Mapping[str, int], report: Callable[..., None]) -> None:
    progress = Progress(sum(missing.values()), report)

    def download(name: str) -> None:
        hf_hub_download(model_id, name, revision=commit, tqdm_class=_bar(name, progress))

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(download, sorted(missing, key=lambda name: -missing[name])))


def _bar(name: str, progress: Progress) -> type:
    """What ``hf_hub_download`` takes for a progress bar: one a file, made when its first byte comes.

    With an ``update_transfer`` of its own a class gets one bar for both of the hub's protocols; ``update`` counts the
    bytes of the file, ``update_transfer`` what went over the wire for it.
    """

    class Bar:
        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            progress.add(name, initial, fetched=False)

        def update(self, count: float | None = 1) -> None:
            progress.add(name, int(count or 0))

        def update_transfer(self, count: float | None = 1) -> None:
            pass

        def set_postfix_str(self, *_: Any, **__: Any) -> None:
            pass

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


def _cached(model_id: str, name: str, commit: str) -> bool:
    return isinstance(try_to_load_from_cache(model_id, name, revision=commit), str)


def _unavailable(model_id: str, error: Exception) -> ModelLoadError:
    return ModelLoadError(f"{model_id} cannot be had from the hub: {_reason(error)}")


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return redact(f"{type(error).__name__}: {first_line}".rstrip(": "))
