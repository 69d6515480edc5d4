"""The base model: where its files are, its tokenizer, its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.templates import read_template
from kernel_launcher.facts.model import BrokenModelError, read_config, safetensors_shapes, weight_files
from kernel_launcher.protocol.files import read_json, write_json
from kernel_launcher.secrets import redact
from kernel_launcher.worker.errors import ModelLoadError
from kernel_launcher.worker.failures import code_of
from kernel_launcher.worker.waiting import wait_for_first_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from kernel_launcher.worker.assignment import Assignment
    from kernel_launcher.worker.reporter import Reporter

_PATH_STARTS = ("/", ".", "~")
_NAMED_WEIGHTS = 5
# Tokens that models without a pad token keep for such a use; never one that ends a turn.
_PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>", "<|endoftext|>", "<unk>")


@dataclass(frozen=True, slots=True)
class Base:
    """A base model on this machine.

    Attributes:
        name: What an adapter calls its base: the absolute folder, or the hub id.
        revision: The commit on the hub; None for a folder.
        folder: Where its files are.
        trust_remote_code: Whether code in that folder may run.
    """

    name: str
    revision: str | None
    folder: Path
    trust_remote_code: bool

    @classmethod
    def find(cls, assignment: Assignment, reporter: Reporter) -> Base:
        """The base model of a job; what comes from the hub is downloaded by rank 0 while the others wait.

        Raises:
            ModelLoadError: It cannot be had, or a weight file is broken.
        """
        asked = assignment.spec.model
        assert asked.base is not None
        if Path(asked.base).is_dir():
            folder, revision = Path(asked.base).absolute(), None
            name = str(folder)
        elif asked.base.startswith(_PATH_STARTS):
            raise ModelLoadError(f"there is no folder {asked.base}.")
        else:
            folder, revision = _from_hub(assignment, reporter)
            name = asked.base
        if assignment.rank.is_first:
            _check_files(name, folder)
        return cls(name, revision, folder, asked.trust_remote_code)


def load_tokenizer(base: Base, chat_template: str | None = None) -> Any:
    """The model's tokenizer, just as it is but for the chat template where another one is asked for.

    Args:
        base: Where it is.
        chat_template: A name of ours or a file; None for the model's own.

    Raises:
        InvalidRequest: There is no such template.
        ModelLoadError: There is none, or it is broken.
    """
    from transformers import AutoTokenizer

    tokenizer = _loaded(
        base,
        lambda: AutoTokenizer.from_pretrained(base.folder, trust_remote_code=base.trust_remote_code),
        "its tokenizer",
    )
    if not can_write(tokenizer):
        raise ModelLoadError(f"{base.name} has no tokenizer.", "Copy the tokenizer's files, too.")
    if chat_template is not None:
        adds_bos = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
        tokenizer.chat_template = read_template(chat_template, adds_bos=adds_bos)
    return tokenizer


def can_write(tokenizer: Any) -> bool:
    """Whether there is a vocabulary; from a folder without one, transformers makes a tokenizer of no tokens."""
    return bool(tokenizer("a", add_special_tokens=False)["input_ids"])


def load_model(base: Base, dtype: torch.dtype, device: torch.device) -> Any:
    """The model on its device; on a GPU its weights go there without a copy in host memory, on ``meta`` it has none.

    Raises:
        ModelLoadError: Also when the files lack weights that the model needs, or hold them in other shapes.
    """
    from transformers import AutoModelForCausalLM

    model, found = _loaded(
        base,
        lambda: AutoModelForCausalLM.from_pretrained(
            base.folder,
            dtype=dtype,
            device_map=None if device.type == "cpu" else {"": device},
            trust_remote_code=base.trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the error that it raises otherwise names no tensor
        ),
        "it",
    )
    if mismatched := sorted(found["mismatched_keys"]):
        few = ", ".join(
            f"{name} is {_shape(stored)} in the file and {_shape(wanted)} in the model"
            for name, stored, wanted in mismatched[:_NAMED_WEIGHTS]
        )
        raise ModelLoadError(
            f"{base.name} has {len(mismatched)} weights that do not fit its config.json: {few}",
            "Weights and config.json are not of the same model. Copy or download it again.",
        )
    if missing := sorted(found["missing_keys"]):
        few = ", ".join(missing[:_NAMED_WEIGHTS])
        raise ModelLoadError(
            f"{base.name} lacks {len(missing)} weights that a {type(model).__name__} needs: {few}",
            "They would start at random values. Check that the download is complete.",
        )
    return model


def _shape(size: Sequence[int]) -> str:
    return " x ".join(map(str, size)) or "a single number"


def choose_pad_token(tokenizer: Any) -> str:
    """A token to fill up short rows with: the model's own, one kept for it, or else the end token.

    What it is does not matter to the loss (padding carries no label and no attention), only that the model has it:
    nothing is added, so no embedding is resized.
    """
    if tokenizer.pad_token is not None:
        return str(tokenizer.pad_token)
    known = tokenizer.get_added_vocab()
    free = [name for name in _PAD_NAMES if name in known and name != tokenizer.eos_token]
    token = free[0] if free else tokenizer.eos_token
    if token is None:
        raise ModelLoadError("the tokenizer has neither a pad token nor an end token.")
    return str(token)


def _from_hub(assignment: Assignment, reporter: Reporter) -> tuple[Path, str]:
    asked = assignment.spec.model
    note = assignment.run.data / "base.json"
    if assignment.rank.is_first:
        from kernel_launcher.worker.download import fetch

        assert asked.base is not None
        snapshot = fetch(
            asked.base,
            asked.revision,
            with_code=asked.trust_remote_code,
            report=lambda **fields: reporter.put("download", **fields),
            warn=reporter.warn,
        )
        write_json(note, {"folder": str(snapshot.folder), "revision": snapshot.revision})
        return snapshot.folder, snapshot.revision
    wait_for_first_rank(note, assignment)
    found = read_json(note)
    assert found is not None
    return Path(found["folder"]), str(found["revision"])


def _check_files(name: str, folder: Path) -> None:
    try:
        read_config(folder)
        for path in weight_files(folder):
            safetensors_shapes(path)
    except (BrokenModelError, OSError) as error:
        raise ModelLoadError(f"{name} cannot be loaded: {error}", "Copy or download it again.") from None


def _loaded(base: Base, load: Callable[[], Any], what: str) -> Any:
    try:
        return load()
    except Exception as error:
        # Out of memory, a missing package and so on have codes of their own; all else that is raised here means this.
        if code_of(error):
            raise
        reason = redact(f"{type(error).__name__}: {error}")
        raise ModelLoadError(f"{base.name} cannot be loaded, {what} failed: {reason}") from error
