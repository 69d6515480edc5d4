"""Whether the base model is a complete folder, or can only be looked at when it is downloaded."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.chat.templates import read_template
from kernel_launcher.errors import Fault, InvalidRequest
from kernel_launcher.facts import hub_facts, read_model_facts
from kernel_launcher.facts.model import BrokenModelError, read_config, read_partial_facts, weight_files
from kernel_launcher.planner import ModelFacts
from kernel_launcher.planner.shape import Unknown
from kernel_launcher.secrets import redact, shown

if TYPE_CHECKING:
    from kernel_launcher.spec import JobSpec

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_DEQUANTISED = "Set lora_rank, say 16, or name the model that it was made from."
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tekken.json")


def check_model(spec: JobSpec, *, to_run: bool = True, ask_hub: bool = False) -> tuple[ModelFacts, list[Fault]]:
    """The facts of the base model, and what is wrong with it.

    Args:
        spec: Names a folder or a hub id.
        to_run: Whether it must be whole; for a plan its config.json is enough.
        ask_hub: Ask the hub about a model that is not here, a second at most.
    """
    facts, faults = _look(spec, to_run=to_run, ask_hub=ask_hub)
    if facts.quantized and not spec.method.lora_rank:
        reason = f"its weights are stored quantised ({facts.quantized}); they cannot be trained themselves."
        faults = [*faults, Fault("model.base", redact(spec.model.base or ""), reason, _DEQUANTISED)]
    return facts, [*faults, *_target_faults(spec, facts)]


def _target_faults(spec: JobSpec, facts: ModelFacts) -> list[Fault]:
    """Of a model whose layers are known by name; of others the ranks say it."""
    asked = spec.method.lora_target_modules
    if not spec.method.lora_rank or isinstance(facts.shape, Unknown):
        return []
    known = facts.shape.linears
    if any(target.rpartition(".")[2] in known for target in asked):
        return []
    fix = f"Its linear layers are: {', '.join(known)}."
    reason = "the model has no layer of such a name."
    return [Fault("method.lora_target_modules", shown("lora_target_modules", list(asked)), reason, fix)]


def _look(spec: JobSpec, *, to_run: bool, ask_hub: bool) -> tuple[ModelFacts, list[Fault]]:
    base = spec.model.base or ""
    path = Path(base)
    if not _exists(path):
        if not path.is_absolute() and _HUB_ID.fullmatch(base):
            try:
                return hub_facts(base, spec.model.revision, ask=ask_hub), []
            except (BrokenModelError, OSError):
                # Its copy in the cache is not whole; the download mends it.
                return read_model_facts(None), []
        near = _near(path)
        fix = f"Did you mean {near}?" if near else "veri-jupyter sample ./sample writes one to try."
        return ModelFacts(), [_fault(base, "there is no such folder.", fix)]
    if not path.is_dir():
        return ModelFacts(), [_fault(base, "is a file; a model is a folder with config.json.", f"Use {path.parent}.")]
    if spec.model.revision is not None:
        reason, fix = "only a model on the hub has revisions; this is a folder.", "Leave it out."
        return ModelFacts(), [Fault("model.revision", shown("revision", spec.model.revision), reason, fix)]
    try:
        facts = read_model_facts(path) if to_run else read_partial_facts(path)
        if (path / "adapter_config.json").exists():
            return facts, [
                _fault(base, "is a LoRA adapter, not a base model.", "Name the model that it was trained on.")
            ]
        if not to_run:
            return facts, []
        if not weight_files(path) and not list(path.glob("pytorch_model*.bin")):
            return facts, [_fault(base, "has no weights (model.safetensors).", "Copy the whole folder.")]
    except (BrokenModelError, OSError) as error:
        return ModelFacts(), [_fault(base, f"{str(error).removeprefix(f'{path} ')}.", "Copy or download it again.")]
    if not any((path / name).exists() for name in _TOKENIZERS):
        return facts, [_fault(base, "has no tokenizer.", "Copy the tokenizer's files, too.")]
    if not spec.model.trust_remote_code and spec.resources.python is None and _needs_its_code(read_config(path)):
        reason = f"{redact(base)} is a model of its own kind: transformers cannot load it without the code it brings."
        fix = f"Look at the Python files in {redact(base)}, and write trust_remote_code = true to let them run."
        return facts, [Fault("model.trust_remote_code", "false", reason, fix, "model_load_error")]
    return facts, []


def _needs_its_code(config: dict[str, Any]) -> bool:
    """Whether a model brings code, and transformers has no class of its own for it, which it would take unasked.

    Looked up in the source of the transformers that is installed here: to import it takes seconds.
    """
    code = config.get("auto_map")
    if not isinstance(code, dict) or "AutoConfig" not in code:
        return False
    found = find_spec("transformers")
    if found is None or found.origin is None:
        return False
    lists = list((Path(found.origin).parent / "models" / "auto").glob("*.py"))
    name = f'"{config.get("model_type")}"'
    return bool(lists) and not any(name in path.read_text(encoding="utf-8") for path in lists)


def _fault(base: str, reason: str, fix: str) -> Fault:
    return Fault("model.base", redact(base), redact(reason), redact(fix), "model_load_error")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long a name, or a folder that may not be looked into
        return False


def _near(path: Path) -> Path | None:
    """The model folder with the most similar name next to a path that does not exist."""
    try:
        folders = sorted(found.parent for found in path.parent.glob("*/config.json"))
    except OSError:
        return None
    return max(folders, key=lambda folder: SequenceMatcher(None, folder.name, path.name).ratio(), default=None)


def template_faults(spec: JobSpec) -> list[Fault]:
    """What is wrong with the chat template that a job names."""
    try:
        if spec.method.chat_template is not None:
            read_template(spec.method.chat_template)
    except InvalidRequest as error:
        return list(error.faults)
    return []


def model_stamp(spec: JobSpec) -> str:
    """What tells one state of a local base model, and of a chat template's file, from another; else empty."""
    base, template = Path(spec.model.base or ""), Path(spec.method.chat_template or "")
    try:
        files = sorted(path for path in base.iterdir() if path.is_file()) if base.is_dir() else []
        files += [template] if template.is_file() else []
        return ";".join(f"{path.name}:{(found := path.stat()).st_size}:{found.st_mtime_ns}" for path in files)
    except OSError:
        return ""
