"""What a rank refuses or finds wrong on purpose; each class has its failure code."""

from __future__ import annotations

from typing import ClassVar

from kernel_launcher.errors import VeriError


class RankError(VeriError):
    """The root of these; ``kind`` is the failure code."""

    kind: ClassVar[str]

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(self.kind, message, hint)


class ModelLoadError(RankError):
    """The base model or its tokenizer cannot be had, or is not whole."""

    kind = "model_load_error"


class DataError(RankError):
    """The rows cannot be had."""

    kind = "data_error"


class ConfigError(RankError):
    """A setting does not fit this model."""

    kind = "config_error"


class DependencyError(RankError):
    """The environment cannot do what the plan wants."""

    kind = "dependency_error"


class NonFiniteLoss(RankError):
    """The loss or the gradient norm is infinite or not a number."""

    kind = "non_finite_loss"


class ArtifactInvalid(RankError):
    """The saved model, read back, is not what was trained."""

    kind = "artifact_invalid"


class PlanNotKept(RankError):
    """What the ranks hold is not what the plan says."""

    kind = "plan_not_kept"
