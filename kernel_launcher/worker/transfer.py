"""Files of a repository on the hub, several at a time, with progress."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self

from huggingface_hub import hf_hub_download, try_to_load_from_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RepositoryKind = Literal["model", "dataset"]

_FILES_AT_ONCE = 8
_EVENT_SECONDS = 1.0
_RATE_EVENTS = 10


def fetch_files(
    repository: str,
    sizes: Mapping[str, int],
    commit: str,
    report: Callable[..., None],
    kind: RepositoryKind = "model",
) -> None:
    """Download files into the hub's cache; what is there already is not fetched again.

    Args:
        repository: Its id on the hub.
        sizes: The files, with their bytes.
        commit: The commit that they are of.
        report: Called about once a second with the fields of a ``download`` event.
        kind: What is in the repository.
    """

    def is_missing(name: str) -> bool:
        return not isinstance(try_to_load_from_cache(repository, name, revision=commit, repo_type=kind), str)

    missing = {name: size for name, size in sizes.items() if is_missing(name)}
    progress = Progress(sum(missing.values()), report)

    def download(name: str) -> None:
        hf_hub_download(repository, name, revision=commit, repo_type=kind, tqdm_class=_bar(name, progress))

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(download, sorted(missing, key=lambda name: -missing[name])))


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
