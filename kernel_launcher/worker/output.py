"""What a rank prints, without secrets: models and libraries print what they like, and the logs stay on disk."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable


class RedactedStream:
    """A text stream that lets no secret through; all else is the stream's own (``fileno``, ``encoding``, ...).

    Each write is looked at by itself, so that nothing is held back when the process dies. What does not come through
    this object cannot be caught: bytes written to ``buffer`` or to the file descriptor, as C code and other programs
    do.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, with ``***`` for each secret; returns the length of what was given."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one by one."""
        for line in lines:
            self.write(line)


def redact_output() -> None:
    """Let everything that Python code prints from now on go through such streams, tracebacks of threads included."""
    sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)
