"""From findings to the refusal of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_launcher.data.lint.linter import Linter
from kernel_launcher.data.rows.faults import CODE, listed
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.secrets import shown
from kernel_launcher.spec.findings import FATAL

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kernel_launcher.data.chat.codec import Codec
    from kernel_launcher.data.lint.finding import Finding
    from kernel_launcher.data.lint.tokens import ModelTokens
    from kernel_launcher.spec.fields import Method

# The failure code of a job that ends with it, where it is another than that of rows that do not fit.
_FAILURES = {"nothing_trained": "empty_labels", "id_past_embedding": "model_load_error"}


class RunLinter(Linter):
    """The linter of a run, which refuses rows with errors that the job does not allow.

    Args:
        codec: The tokenizer with its template.
        method: The hyperparameters as planned.
        model: What the model does with its tokens.
        source: Where the rows come from, for messages.

    Attributes:
        warnings: What the user should know of rows that are not refused.
    """

    def __init__(self, codec: Codec, method: Method, *, model: ModelTokens, source: str) -> None:
        super().__init__(codec, method, model=model)
        self._allow = method.allow
        self._source = source
        self.warnings: tuple[Finding, ...] = ()

    def judge(self) -> None:
        """Refuse the rows, or keep what there is to say of them.

        Raises:
            InvalidRequest: As ``refuse_errors``.
        """
        self.warnings = not_allowed(self.findings(), self._allow)
        refuse_errors(self.warnings, self._source)


def not_allowed(findings: Sequence[Finding], allow: Collection[str]) -> tuple[Finding, ...]:
    """The findings that the user has not accepted."""
    return tuple(finding for finding in findings if finding.code not in allow)


def refuse_errors(findings: Sequence[Finding], source: str = "") -> None:
    """Refuse a data set with errors among its findings.

    Raises:
        InvalidRequest: With a fault for each error; ``code`` is the failure code of a job that ends with it.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        refusal = InvalidRequest([_fault(error, source) for error in errors])
        codes = {_FAILURES.get(error.code, CODE) for error in errors}
        refusal.code = codes.pop() if len(codes) == 1 else CODE
        raise refusal


def _fault(error: Finding, source: str) -> Fault:
    value = shown("dataset.id", source) if source else ""
    way_out = "" if error.code in FATAL else f' Or, if it is meant: allow = ["{error.code}"].'
    reason = f"{error.message} See {listed(error.rows, error.count)}."
    return Fault("dataset.id" if value else "dataset", value, reason, f"{error.fix}{way_out}", error.code)
