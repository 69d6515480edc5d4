"""Rows from the notebook, written down as JSON lines: a job outlives the variable that its data came from.

Keys are sorted and nulls kept, so that equal rows give equal bytes and one hash, whether they came as a list, a
DataFrame, a Dataset or a Table. (A DataFrame and a Table give every row every column; a list of dicts may not.)
"""

from __future__ import annotations

import hashlib
import os
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kernel_launcher.data.readers import Row

_IN_MEMORY = 64 << 20
_ROWS_AT_A_TIME = 1000


class _Unwritable(Exception):
    """A value that JSON cannot hold."""


class Snapshot:
    """Rows as JSON lines: in memory up to 64 MiB, beyond that in a temporary file without a name.

    Attributes:
        sha256: The digest of these bytes; ``file_digest`` of the written file is the same.
        count: How many rows there are.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        digest = hashlib.sha256()
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - lives as long as this
        self.count = 0
        for line in lines:
            digest.update(line)
            self._file.write(line)
            self.count += 1
        self.sha256 = digest.hexdigest()

    def rows(self) -> Iterator[tuple[int, Row]]:
        """The numbered rows, as a reader of the file would get them."""
        self._file.seek(0)
        return json_lines(self._file)

    def write_to(self, path: Path) -> None:
        """Write the rows to a file, whole or not at all; the folder exists."""
        path.with_name(f".{path.name}.{os.getpid()}")
