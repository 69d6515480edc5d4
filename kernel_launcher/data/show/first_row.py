"""The first prepared row as the model sees it: the text of its token ids, with what is trained between ⟦ and ⟧."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from kernel_launcher.data.show.visible import TRAINED, foreign, visible
from kernel_launcher.data.training.encode import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Decode = Callable[[list[int]], str]
    Run = tuple[list[int], bool]

_MOST, _FIRST, _LAST = 2000, 400, 200


def first_row(path: Path, decode: Decode) -> dict[str, Any]:
    """The first row of a file that ``prepare`` wrote.

    Args:
        path: The file.
        decode: From token ids to their text, special tokens included.

    Returns:
        ``text``, shortened to about 2,000 characters; of a pair the prompt with the preferred answer, and the other
        answer below. ``tokens`` and ``trained`` count ids.
    """
    import pyarrow as pa

    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        row = stream.read_next_batch().slice(0, 1).to_pylist()[0]
    if "prompt_ids" in row:
        runs = [(row["prompt_ids"], False), (row["chosen_ids"], True), (row["rejected_ids"], True)]
        *preferred, other = runs
        text = f"{_text(preferred, decode)}\nrejected: {_text([other], decode)}"
    else:
        runs = _runs(row)
        text = _text(runs, decode)
    return {
        "text": text,
        "tokens": sum(len(ids) for ids, _ in runs),
        "trained": sum(len(ids) for ids, trained in runs if trained),
    }


def _runs(row: dict[str, list[int]]) -> list[Run]:
    length = row["lengths"][0] if "lengths" in row else len(row["input_ids"])
    # Nothing comes before the first token that could predict it.
    labels = [IGNORED, *row["labels"][1:length]]
    pairs = zip(row["input_ids"], labels, strict=False)
    runs = groupby(pairs, key=lambda pair: pair[1] != IGNORED)
    return [([token for token, _ in run], trained) for trained, run in runs]


def _text(runs: Iterable[Run], decode: Decode) -> str:
    said = "".join(_shown(ids, decode).join(TRAINED) if trained else _shown(ids, decode) for ids, trained in runs)
    return said if len(said) <= _MOST else f"{said[:_MOST]}…"


def _shown(ids: list[int], decode: Decode) -> str:
    text = foreign(visible(decode(ids)))
    if len(text) <= _FIRST + _LAST:
        return text
    return f"{text[:_FIRST]} … {len(text) - _FIRST - _LAST:,} characters … {text[-_LAST:]}"
