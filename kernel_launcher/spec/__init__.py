"""What a job is: one frozen ``JobSpec``, its readers, and every refusal that needs no look at files or GPUs."""

from kernel_launcher.spec.job import JobSpec
from kernel_launcher.spec.read import read_spec

__all__ = ["JobSpec", "read_spec"]
