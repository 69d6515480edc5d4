"""What a job's model answers: asked in a process of its own, so that a kernel never holds a GPU."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import VeriError
from kernel_launcher.launcher.environment import inherited_environment, interpreter
from kernel_launcher.protocol.files import read_json
from kernel_launcher.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_launcher.protocol.index import Entry

_FAILED = "generate_failed"


def generate(entry: Entry, prompts: Sequence[Any], *, base: bool = False, **options: Any) -> list[str]:
    """Answers of a job's model, or of its base model, from a process of its own.

    Args:
        entry: A completed job.
        prompts: Each a user's turn, or a list of messages.
        base: Ask the model as it was before.
        options: ``max_new_tokens``, ``temperature``.

    Raises:
        VeriError: The process failed; the message is its last line.
    """
    asked = read_json(entry.run.spec) or {}
    sections = asked.get("spec", {})
    request = {
        "model": str(entry.run.final),
        "base_model": sections.get("model", {}).get("base"),
        "revision": sections.get("model", {}).get("revision"),
        "trust_remote_code": sections.get("model", {}).get("trust_remote_code", False),
        "base": base,
        "prompts": list(prompts),
        **options,
    }
    python = interpreter(sections.get("resources", {}).get("python"))
    try:
        done = subprocess.run(
            [python, "-P", "-m", "kernel_launcher.worker.generate"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
            env=inherited_environment(),
        )
    except OSError as error:
        raise VeriError(_FAILED, f"{python} does not run: {error.strerror}.") from None
    if done.returncode:
        lines = redact(done.stderr).strip().splitlines()
        raise VeriError(
            "generate_failed", lines[-1] if lines else "the process said nothing", "\n".join(lines[-20:-1])
        )
    answers: list[str] = json.loads(done.stdout.strip().splitlines()[-1])["answers"]
    return answers
