"""What the explorer begins with: what somebody handed to it, as a state, and where its rows are found by name."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_launcher.spec import read_spec
from veri_jupyter.explorer import text
from veri_jupyter.explorer.state import State


def begin(
    source: object, data: object, settings: Mapping[str, Any], variables: Mapping[str, Any]
) -> tuple[State, Mapping[str, Any]]:
    """A state, and the variables that it may name.

    Args:
        source: A dict, a TOML file, a text that describes a job, a model's folder or its id; None for nothing.
        data: A file, a hub id, or rows; None for what the source says.
        settings: Bare or dotted; they beat the source, but for those that are None.
        variables: The notebook's, by name.

    Raises:
        InvalidRequest: The source is none of these.
    """
    if source is None:
        state = State({})
    elif isinstance(source, Mapping):
        state = State({}).set(dict(text.flat(source)))
    elif isinstance(source, str | Path):
        state = text.read(str(source))
    else:
        read_spec(source)  # type: ignore[arg-type]  # refuses it by name
        raise AssertionError(source)
    state = state.set({key: value for key, value in text.flat(settings) if value is not None})
    if isinstance(data, str | Path):
        return state.with_rows("").set({"dataset.id": str(data)}), variables
    if data is None:
        return state, variables
    name = next((name for name, value in variables.items() if value is data and not name.startswith("_")), "rows")
    # A view of the notebook's variables and not a copy: those that are made later can be named, too.
    return state.with_rows(name), ChainMap({name: data}, variables)  # type: ignore[arg-type]
