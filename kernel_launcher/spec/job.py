"""``JobSpec``: everything that was asked of one job, frozen."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from kernel_launcher.errors import InvalidRequest
from kernel_launcher.spec.faults import from_validation
from kernel_launcher.spec.fields import Dataset, Huggingface, Job, Limits, Method, Model, Report, Resources
from kernel_launcher.spec.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobSpec(BaseModel):
    """One job as it was asked for; ``read_spec`` makes it from a file, a dict or keyword arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    job: Job = Job()
    model: Model = Model()
    dataset: Dataset = Dataset()
    method: Method = Method()
    resources: Resources = Resources()
    limits: Limits = Limits()
    huggingface: Huggingface = Huggingface()
    report: Report = Report()

    @classmethod
    def from_sections(cls, sections: Mapping[str, Any]) -> Self:
        """A spec from nested sections, as in a job file.

        Raises:
            InvalidRequest: With every fault that can be told without looking at files, data or GPUs.
        """
        try:
            spec = cls.model_validate(dict(sections))
        except ValidationError as error:
            raise InvalidRequest(from_validation(error, cls)) from None
        faults = refusals(spec)
        if faults:
            raise InvalidRequest(faults)
        return spec

    def to_sections(self) -> dict[str, Any]:
        """What was set, as nested sections ready for JSON; fields left at their defaults are left out."""
        sections = self.model_dump(mode="json", exclude_defaults=True)
        return {name: fields for name, fields in sections.items() if fields}

    def fingerprint(self, data_digest: str) -> str:
        """A hash of what would be trained: two jobs with the same one do the same work.

        Args:
            data_digest: Hash of the rows, or of what names them.
        """
        asked = self.to_sections()
        asked.pop("job", None)
        text = json.dumps([asked, data_digest], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
