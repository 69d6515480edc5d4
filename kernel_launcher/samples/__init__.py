"""A sample to train on without a network: a small real model, a tiny one for tests, and three data files.

``python -m kernel_launcher.samples DIR`` is a process of its own, for making the models needs torch.
"""

from __future__ import annotations

import json
import logging
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_launcher.errors import Fault, InvalidRequest, VeriError
from kernel_launcher.samples import documentation, source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MODELS = ("smollm2", "tiny")
DATA_SETS = ("sft", "heldout", "dpo")
PARTS = (*MODELS, "data")

_log = logging.getLogger(__name__)


def write(directory: str | Path, only: Collection[str] = PARTS) -> dict[str, Path]:
    """Write the sample, or `only` some of its `PARTS`, and tell where each model and data file is.

    What is there already is left as it is. Each folder and file gets its name when it is complete.

    Raises:
        InvalidRequest: An unknown part, or something else has the name of a model or a data file.
        VeriError: A package is missing (``dependency_error``; nothing is written then), or the disk refuses
            (``sample_failed``).
    """
    root = Path(directory).expanduser().absolute()
    targets = {name: root / name for name in MODELS if name in only}
    if "data" in only:
        targets |= {name: root / f"{name}.jsonl" for name in DATA_SETS}
    try:
        _refuse(root, only, targets)
        _write_absent(root, {name: path for name, path in targets.items() if not path.exists()})
    except OSError as error:
        message = f"The sample could not be written to {root}: {error}."
        raise VeriError("sample_failed", message, "Free some space, or choose another folder.") from error
    return targets


def _refuse(root: Path, only: Collection[str], targets: dict[str, Path]) -> None:
    faults = [
        Fault("only", part, "the sample has no such part.", f"Choose from {', '.join(PARTS)}.")
        for part in only
        if part not in PARTS
    ]
    folder_is_free = root.is_dir() or not root.exists()
    faults += [
        Fault("directory", str(path), "this is there and is not of the sample.", "Choose another folder.")
        for path in (targets.values() if folder_is_free else [root])
        if path.exists() and not _is_complete(path)
    ]
    if faults:
        raise InvalidRequest(faults)


def _is_complete(path: Path) -> bool:
    return path.is_file() if path.suffix else (path / "model.safetensors").is_file()


def _write_absent(root: Path, absent: dict[str, Path]) -> None:
    # Both may refuse, so both come before the first write.
    gguf = source.gguf_file() if absent.keys() & set(MODELS) else None
    data_sets = documentation.data_sets() if absent.keys() & set(DATA_SETS) else {}
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in data_sets.items():
        if name in absent:
            _publish(absent[name], partial(_write_jsonl, rows=rows))
    if gguf:
        _write_models(absent, gguf)


def _write_models(absent: dict[str, Path], gguf: Path) -> None:
    from kernel_launcher.samples.models import read_tokenizer, save_smollm2, save_tiny

    tokenizer = read_tokenizer(gguf)
    if "tiny" in absent:
        _publish(absent["tiny"], partial(save_tiny, tokenizer=tokenizer))
    if "smollm2" in absent:
        _publish(absent["smollm2"], partial(save_smollm2, gguf=gguf, tokenizer=tokenizer))


def _publish(target: Path, make: Callable[[Path], None]) -> None:
    _log.info("writing %s", target)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        make(made)
        try:
            made.rename(target)
        except OSError:
            if not target.exists():  # else another process wrote the same bytes meanwhile
                raise


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
