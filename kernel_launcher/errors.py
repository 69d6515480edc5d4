"""Every error that this project raises on purpose, as one tree.

VeriError                something that the user can act on
├── InvalidRequest       the request is wrong; refused before anything started (400)
├── JobNotFound          no job has that id or name (404)
├── JobFailed            raised by ``Job.wait`` for a job that ended badly
└── LaunchFailed         the launcher did not come up
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_launcher.secrets import redact, redacted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class VeriError(Exception):
    """The root: what happened, why, and what to do about it.

    Attributes:
        code: A machine-readable word, such as ``invalid_request``.
        message: What is wrong, in one sentence.
        hint: What to do about it; empty when there is nothing to add.
        details: Further facts, ready for JSON.
    """

    status = 500

    def __init__(self, code: str, message: str, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        # Here and in Fault, whoever raises it: what a user typed may hold a token.
        self.code = code
        self.message = redact(message)
        self.hint = redact(hint)
        self.details: dict[str, Any] = redacted(dict(details or {}))
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback: the frames would say nothing to the reader."""
        return [f"{type(self).__name__} ({self.code})", *str(self).splitlines()]

    def to_json(self) -> dict[str, Any]:
        """The error as one JSON object."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request.

    Attributes:
        key: The setting, dotted as in a job file: ``method.lora_rank``.
        value: What was given, as text that is safe to print.
        reason: Why it is refused.
        fix: The cheapest thing to do about it.
        code: The kind of refusal.
    """

    key: str
    value: str
    reason: str
    fix: str
    code: str = "invalid_request"

    def __post_init__(self) -> None:
        for field in ("key", "value", "reason", "fix"):
            object.__setattr__(self, field, redact(getattr(self, field)))

    def __str__(self) -> str:
        given = f" = {self.value}" if self.value else ""
        return f"{self.key}{given}: {self.reason} {self.fix}".rstrip()


class InvalidRequest(VeriError):
    """A request with at least one fault; all of them are listed, so that one try finds them all."""

    status = 400

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        codes = {fault.code for fault in self.faults}
        code = codes.pop() if len(codes) == 1 else "invalid_request"
        if len(self.faults) == 1:
            message = str(self.faults[0])
        else:
            lines = "\n".join(f"  {fault}" for fault in self.faults)
            message = f"{len(self.faults)} things are wrong with this request:\n{lines}"
        faults_json = [
            {"key": f.key, "value": f.value, "reason": f.reason, "fix": f.fix, "code": f.code} for f in self.faults
        ]
        super().__init__(code, message, details={"faults": faults_json})


class JobNotFound(VeriError):
    """No job, or more than one, answers to that id or name."""

    status = 404

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("job_not_found", message, hint)


class JobFailed(VeriError):
    """A job that was waited for ended as ``failed`` or ``cancelled``; ``error`` is its failure, or None."""

    def __init__(self, code: str, message: str, hint: str = "", error: object = None) -> None:
        super().__init__(code, message, hint)
        self.error = error


class LaunchFailed(VeriError):
    """The launcher process did not report its first event; ``details`` holds the tail of its log."""

    def __init__(self, message: str, hint: str = "", log_tail: str = "") -> None:
        super().__init__("launch_failed", message, hint, {"log_tail": log_tail})
