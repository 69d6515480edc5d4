"""What a model says of itself: config.json and the headers of its safetensors files, never the weights."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernel_launcher.facts.shape import read_shape, text_config
from kernel_launcher.planner import ModelFacts
from kernel_launcher.planner.shape import ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_HEADER_BYTES = 100 * 2**20  # the limit of the safetensors format itself
_MOST_JSON_BYTES = 100 * 2**20
_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = ".safetensors"
_SINGLE = "model.safetensors"
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class BrokenModelError(ValueError):
    """A model folder whose files do not hold what they say; the message names the file."""


class MissingShardError(BrokenModelError):
    """A model folder whose index names a file that is not there."""


def read_model_facts(base: Path | None) -> ModelFacts:
    """The facts of a local model folder; unknown (not an error) for None, a model that is not here yet.

    Raises:
        BrokenModelError: A file is missing, or lies about its size.
    """
    if base is None:
        return ModelFacts(source="unknown until the model is downloaded")
    return _read_once(base, _signature(base))


def read_partial_facts(base: Path) -> ModelFacts:
    """The facts of a model folder that may hold some of its files only, such as one in the hub's cache.

    Raises:
        BrokenModelError: A file that is there lies about its size.
    """
    try:
        return read_model_facts(base)
    except MissingShardError:
        # The index says how many bytes there are in all.
        return facts_of_config(read_config(base), stored_bytes=_total_size(base / _INDEX))


def facts_of_config(config: Mapping[str, Any], *, stored_bytes: int | None = None) -> ModelFacts:
    """What a config.json alone tells: the shape, and the count by formula or from the bytes that are stored.

    Args:
        config: A model's config.json.
        stored_bytes: Bytes of all weights, as a safetensors index gives them.
    """
    text = text_config(config)
    length = text.get("max_position_embeddings")
    shape = read_shape(config)
    facts = ModelFacts(
        max_length=length if isinstance(length, int) and not isinstance(length, bool) and length > 0 else None,
        shape=shape,
        quantized=_quantized(config),
    )
    if isinstance(shape, ModelShape):
        facts = replace(
            facts,
            param_count=shape.params,
            source="by formula, from config.json",
            linears={name: shape.layers * sum(sizes) for name, sizes in shape.linears.items()},
            tied=shape.tied,
        )
    width = _BYTES.get(str(config.get("dtype", config.get("torch_dtype"))).removeprefix("torch."))
    if stored_bytes and width and not facts.quantized:
        return replace(facts, param_count=stored_bytes // width, source="safetensors index")
    return facts


def read_config(base: Path) -> dict[str, Any]:
    """A model folder's config.json.

    Raises:
        BrokenModelError: There is none, or it is not a JSON object.
    """
    path = base / _CONFIG
    try:
        config = _read_json(path)
    except FileNotFoundError:
        raise BrokenModelError(f"{base} has no {_CONFIG}") from None
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
    index = base / _INDEX
    if index.exists():
        try:
            names = sorted({str(name) for name in _read_json(index)["weight_map"].values()})
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise BrokenModelError(f"{index} is not a safetensors index") from None
        missing = [name for name in names if not (base / name).is_file()]
        if missing:
            raise MissingShardError(f"{index.name} names {missing[0]}, which is not in {base}")
        return [base / name for name in names]
    single = base / _SINGLE
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


def _signature(base: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files that the facts are read from: while they stay, the facts do."""
    try:
        with os.scandir(base) as entries:
            files = [entry for entry in entries if entry.name in (_CONFIG, _INDEX) or entry.name.endswith(_WEIGHTS)]
            states = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple(sorted((name, state.st_size, state.st_mtime_ns) for name, state in states))


@lru_cache(maxsize=32)
def _read_once(base: Path, _: tuple[tuple[str, int, int], ...]) -> ModelFacts:
    config = read_config(base)
    facts = facts_of_config(config)
    files = weight_files(base)
    shapes: dict[str, list[int]] = {}
    for file in files:
        shapes |= safetensors_shapes(file)
    if not shapes or facts.quantized:
        return facts
    linears: dict[str, int] = defaultdict(int)
    for name, shape in shapes.items():
        if name.endswith(".weight") and len(shape) == 2:
            linears[name.removesuffix(".weight").rpartition(".")[2]] += sum(shape)
    return replace(
        facts,
        param_count=sum(math.prod(shape) for shape in shapes.values()),
        source="safetensors headers",
        linears=dict(linears),
    )


def _quantized(config: Mapping[str, Any]) -> str:
    """How the weights are packed; empty for plain ones."""
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return ""
    method = str(found.get("quant_method", "unknown"))[:40]
    bits = 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else found.get("bits")
    return f"{method}, {bits} bits" if isinstance(bits, int) else method


def _total_size(index: Path) -> int | None:
    try:
        size = _read_json(index)["metadata"]["total_size"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return size if isinstance(size, int) and 0 < size < 2**63 else None


def _read_json(path: Path) -> Any:
    size = path.stat().st_size
    if size > _MOST_JSON_BYTES:
        raise ValueError(f"it has {size:,} bytes")
    return json.loads(path.read_bytes())
