"""A data set on the hub: its files downloaded once, with progress, then read by the ``datasets`` library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi

from kernel_launcher.secrets import redact
from kernel_launcher.worker.errors import DataError
from kernel_launcher.worker.failures import code_of
from kernel_launcher.worker.transfer import fetch_files

if TYPE_CHECKING:
    from collections.abc import Callable

# As the library names a file of a repository once it has found out which files a data set consists of.
_FILE = re.compile(r"hf://datasets/(?P<repository>[^@]+)@(?P<commit>[0-9a-f]{40})/(?P<name>.+)")


def hub_rows(data_id: str, split: str, report: Callable[..., None]) -> Any:
    """The rows of one split, as a ``datasets.Dataset``.

    The library decides which files belong to the data set (its configurations say so); they are fetched here, because
    the library fetches them without a word, and found by it in the hub's cache.

    Args:
        data_id: Its name on the hub.
        split: Which part of it.
        report: Called about once a second with the fields of a ``download`` event.

    Raises:
        DataError: There is no such data set or split, no access, or no network and no copy.
    """
    import datasets

    datasets.disable_progress_bars()  # our log is no terminal
    try:
        builder = datasets.load_dataset_builder(data_id)
        _fetch(builder, report)
        builder.download_and_prepare()
        return builder.as_dataset(split=split)
    except Exception as error:
        # A full disk or a missing package has a code of its own; whatever else is raised, the rows cannot be had.
        if code_of(error):
            raise
        reason = redact(f"{type(error).__name__}: {error}")
        raise DataError(
            f"no file or folder beside the notebook or the job file is called {data_id!r}, so a data set on the hub "
            f"was meant, and the split {split!r} of {data_id} cannot be had from the hub: {reason}",
            "Check dataset.id and dataset.split; HF_TOKEN opens what is gated.",
        ) from error


def _fetch(builder: Any, report: Callable[..., None]) -> None:
    """Download what the library is about to read, unless it has read it before."""
    if Path(builder.cache_dir).exists():
        return
    paths = [path for files in (builder.config.data_files or {}).values() for path in files]
    found = [match for path in paths if (match := _FILE.fullmatch(path))]  # else elsewhere on the net
    for repository, commit in {(match["repository"], match["commit"]) for match in found}:
        names = {match["name"] for match in found if match["repository"] == repository}
        info = HfApi().dataset_info(repository, revision=commit, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or [] if file.rfilename in names}
        fetch_files(repository, sizes, commit, report, kind="dataset")
