"""``python -m kernel_launcher.worker.generate``: answers of a trained or a base model, in a process of its own.

Standard input holds one JSON object, standard output gets one: ``{"answers": [...]}``. Everything that libraries
print goes to standard error; after a failure its last line says why, and the exit code is 1.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import VeriError
from kernel_launcher.protocol.files import read_json
from kernel_launcher.secrets import redact
from kernel_launcher.worker.base import choose_pad_token
from kernel_launcher.worker.collector import collector_paused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernel_launcher.worker.answering import Prompt

_ROWS_AT_A_TIME = 8
_SEED = 0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    Attributes:
        model: Folder of the trained model: a full one, or an adapter.
        prompts: Each a user's turn, or a list of messages.
        base: Ask the model as it was before training.
        base_model: Folder or hub id of that; for an adapter its own word counts where this is missing.
        revision: Of ``base_model`` on the hub.
        trust_remote_code: Whether code that the base ships may run.
        max_new_tokens: Tokens of an answer at most.
        temperature: 0 takes the likeliest token each time.
    """

    model: str
    prompts: Sequence[Prompt]
    base: bool = False
    base_model: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    max_new_tokens: int = 128
    temperature: float = 0.0


def answer(request: Request) -> list[str]:
    """An answer to each prompt; the same request gives the same answers.

    Raises:
        VeriError: A prompt is a list of messages, and the model has no chat template.
    """
    import torch
    from transformers import AutoTokenizer, GenerationConfig, set_seed

    from kernel_launcher.worker.answering import rendered, stop_tokens

    name, revision = _which(request)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loading = {"revision": revision, "trust_remote_code": request.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left", **loading)
    tokenizer.pad_token = choose_pad_token(tokenizer)
    if (Path(name) / "adapter_config.json").exists():
        from peft import AutoPeftModelForCausalLM as Loader  # transformers' own loader forgets the base's revision
    else:
        from transformers import AutoModelForCausalLM as Loader
    model = Loader.from_pretrained(name, device_map={"": device}, dtype="auto", **loading).eval()
    if (Path(name) / "generation_config.json").exists():  # an adapter's own, which its loader does not read
        model.generation_config = GenerationConfig.from_pretrained(name)
    set_seed(_SEED)
    texts = [rendered(prompt, tokenizer) for prompt in request.prompts]
    ends = {"eos_token_id": stop_tokens(model, tokenizer), "pad_token_id": tokenizer.pad_token_id}
    answers: list[str] = []
    for batch in _batches(texts):
        # A chat template writes the special tokens itself.
        inputs = tokenizer(batch, padding=True, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)
        with torch.inference_mode():
            tokens = model.generate(**inputs.to(device), **_sampling(request), **ends)
        new = tokens[:, inputs["input_ids"].shape[1] :]
        answers += [text.strip() for text in tokenizer.batch_decode(new, skip_special_tokens=True)]
    return answers


def _which(request: Request) -> tuple[str, str | None]:
    """The folder or hub id to load, and its revision."""
    if not request.base:
        return request.model, None
    if request.base_model is not None:
        return request.base_model, request.revision
    adapter = read_json(Path(request.model) / "adapter_config.json") or {}
    if "base_model_name_or_path" not in adapter:
        raise VeriError("generate_failed", f"{request.model} does not say what its base model is.")
    return adapter["base_model_name_or_path"], adapter.get("revision")


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), _ROWS_AT_A_TIME):
        yield list(texts[start : start + _ROWS_AT_A_TIME])


def _sampling(request: Request) -> Mapping[str, Any]:
    from kernel_launcher.worker.answering import greedy

    if request.temperature > 0:
        return {"max_new_tokens": request.max_new_tokens, "do_sample": True, "temperature": request.temperature}
    return greedy(request.max_new_tokens)


def end_with_caller() -> None:
    """End this process as soon as the one that started it ends, however it does: it may hold a GPU.

    Raises:
        SystemExit: The caller had ended before, and with it whoever reads standard output.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    output = select.poll()
    output.register(1)
    if any(found & select.POLLERR for _, found in output.poll(0)):
        raise SystemExit(1)


def main() -> int:
    """Read the request, write the answers; returns the exit code."""
    end_with_caller()
    answers_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", TQDM_DISABLE="1")
    try:
        with collector_paused():
            import transformers  # noqa: F401
        answers = answer(Request(**json.load(sys.stdin)))
    except Exception as error:  # whatever it is, the caller gets one line
        text = " ".join(str(error).split())
        sys.stderr.write(f"{redact(f'{type(error).__name__}: {text}')}\n")
        return 1
    json.dump({"answers": answers}, answers_out, ensure_ascii=False)
    answers_out.write("\n")
    answers_out.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
