"""What a model folder says of itself: config.json and the headers of its safetensors files, never the weights."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kernel_launcher.planner import ModelFacts

if TYPE_CHECKING:
    from pathlib import Path

MOST_HEADER_BYTES = 100 * 2**20  # the limit of the safetensors format itself


class BrokenModelError(ValueError):
    """A model folder whose files do not hold what they say; the message names the file."""


def read_model_facts(base: Path | None) -> ModelFacts:
    """The facts of a local model folder; unknown (not an error) for None, a model that is not here yet.

    Raises:
        BrokenModelError: A file is missing, or lies about its size.
    """
    if base is None:
        return ModelFacts(source="unknown until the model is downloaded")
    config = read_config(base)
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    limit = text.get("max_position_embeddings") if isinstance(text, dict) else None
    length = limit if isinstance(limit, int) and limit > 0 else None
    files = weight_files(base)
    if not files or config.get("quantization_config"):
        return ModelFacts(max_length=length, source="unknown")
    shapes: dict[str, list[int]] = {}
    for file in files:
        shapes |= safetensors_shapes(file)
    linears: dict[str, int] = defaultdict(int)
    for name, shape in shapes.items():
        if name.endswith(".weight") and len(shape) == 2:
            linears[name.removesuffix(".weight").rpartition(".")[2]] += sum(shape)
    return ModelFacts(
        param_count=sum(math.prod(shape) for shape in shapes.values()),
        source="safetensors headers",
        max_length=length,
        linears=dict(linears),
    )


def read_config(base: Path) -> dict[str, Any]:
    """A model folder's config.json.

    Raises:
        BrokenModelError: There is none, or it is not a JSON object.
    """
    path = base / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BrokenModelError(f"{base} has no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BrokenModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise BrokenModelError(f"{path} is not a JSON object")
    return config


def weight_files(base: Path) -> list[Path]:
    """The safetensors files of a model folder: those of its index, or the single file, or none.

    Raises:
        BrokenModelError: The index is broken, or names a file that is not there.
    """
    index = base / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise BrokenModelError(f"{index} is not a safetensors index") from None
        missing = [name for name in names if not (base / name).is_file()]
        if missing:
            raise BrokenModelError(f"{index.name} names {missing[0]}, which is not in {base}")
        return [base / name for name in names]
    single = base / "model.safetensors"
    return [single] if single.is_file() else []


def safetensors_shapes(path: Path) -> dict[str, list[int]]:
    """Name and shape of every tensor in a safetensors file, from its header alone.

    Raises:
        BrokenModelError: The header is longer than the file or the format's limit, is not JSON, or places tensors
            past the end of the file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
            raise BrokenModelError(f"{path} says its header has {length:,} bytes; the file has {size:,}")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            ends = [int(tensor["data_offsets"][1]) for tensor in header.values()]
            shapes = {name: [int(n) for n in tensor["shape"]] for name, tensor in header.items()}
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError):
            raise BrokenModelError(f"{path} has a broken safetensors header") from None
    if max(ends, default=0) != size - 8 - length:
        wanted = max(ends, default=0) + 8 + length
        raise BrokenModelError(f"{path} should have {wanted:,} bytes and has {size:,}; the copy is incomplete")
    return shapes
