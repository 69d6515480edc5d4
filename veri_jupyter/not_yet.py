"""Names that are kept for parts which this release does not have: refused clearly, each with what to do now."""

from __future__ import annotations

from typing import NoReturn

from kernel_launcher.errors import VeriError

FUNCTIONS = {
    "rehearse": "Use plan() to see how a job would run.",
    "doctor": "",
    "log_metrics": "",
}
JOB = {
    "resume": "Start a new job with train().",
    "checkpoints": "The final model is saved at the end: Job.final_dir.",
    "load": "Load Job.final_dir with transformers' from_pretrained.",
}
VERBS = {
    "resume": "Start a new job with create().",
    "list_checkpoints": JOB["checkpoints"],
    "download_checkpoint": JOB["checkpoints"],
}
MAGICS = {
    "veri_resume": "Start a new job with %%veri_train.",
    "veri_checkpoints": JOB["checkpoints"],
    "veri_script": "Use %%veri_train with method sft_text.",
    "veri_doctor": "",
}


def refuse(name: str, hint: str) -> NoReturn:
    """Say that a known name is not in this release.

    Raises:
        VeriError: Always, with code ``not_in_release``.
    """
    raise VeriError("not_in_release", f"{name} isn't in this release.", hint)
