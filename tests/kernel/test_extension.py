"""Loading and unloading the extension."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Sample
    from tests.kernel.kernels import Kernel

HEAVY = ("torch", "transformers", "plotly", "datasets")
MAGICS = (
    "veri_train",
    "veri_plan",
    "veri_data",
    "veri_jobs",
    "veri_attach",
    "veri_logs",
    "veri_stop",
    "veri_explore",
)
STATE = """
ip = get_ipython()
def state():
    magics = ip.magics_manager.magics
    return (sorted(magics["line"]), sorted(magics["cell"]), len(ip.Completer.custom_matchers))
"""


def python(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_nothing_heavy_is_imported(sample: Sample, tmp_path: Path) -> None:
    """Importing and loading the extension, and planning, import none of torch, transformers, plotly, datasets."""
    code = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import veri_jupyter
shell.run_line_magic("load_ext", "veri_jupyter")
after_loading = [name for name in {(*HEAVY, "pydantic", "pyarrow")} if name in sys.modules]
shell.run_line_magic("veri_plan", "{sample.tiny} --set dataset.id={sample.sft}")
after_planning = [name for name in {HEAVY} if name in sys.modules]
print(after_loading, after_planning)
"""
    printed = python(code, tmp_path).splitlines()
    assert any(line.startswith("plan: dp=") for line in printed)
    assert "[] []" == printed[-1]


def test_unloading_takes_away_what_loading_added(kernel: Kernel) -> None:
    """Magics and completion go with the extension, and come back with it."""
    kernel.run(STATE)
    kernel.run("%unload_ext veri_jupyter")
    kernel.run("without = state()")
    assert "%veri_train" not in kernel.complete("%veri_tr")
    kernel.run("%load_ext veri_jupyter\nloaded = state()")
    kernel.run("%reload_ext veri_jupyter\nreloaded = state()")
    kernel.run("%unload_ext veri_jupyter\nagain = state()")
    compared = "print(without == again, loaded == reloaded, sorted(set(loaded[0]) - set(without[0])))"
    printed = kernel.run(compared).stdout
    assert printed.startswith("True True [")
    assert all(repr(name) in printed for name in MAGICS)
    kernel.run("%load_ext veri_jupyter")


def test_help_prints_every_option_and_starts_nothing(kernel: Kernel, folder: Path) -> None:
    """--help is help, wherever it stands on the line."""
    reply = kernel.run("%%veri_train --name x --help\n[model]\nbase = './nothing'")
    assert "ok" == reply.status
    for option in (
        "--gpus",
        "--gpu-type",
        "--name",
        "--data",
        "--set",
        "--dry-run",
        "--wait",
        "--again",
        "--display",
    ):
        assert option in reply.stdout
    assert not (folder / "runs").exists()


def test_the_documentation_of_a_magic_is_its_help(kernel: Kernel) -> None:
    """%veri_logs? shows the options."""
    assert "--rank R" in kernel.run("print(get_ipython().find_line_magic('veri_logs').__doc__)").stdout


def test_no_jobs_is_a_sentence(kernel: Kernel) -> None:
    """An empty list says that it is one."""
    assert "No jobs yet.\n" == kernel.run("%veri_jobs").stdout


def test_public_names() -> None:
    """The names that people may use, and nothing else, are public."""
    code = "import veri_jupyter as v; print(*v.__all__); [getattr(v, name) for name in v.__all__]"
    expected = (
        "Client InvalidRequest Job JobFailed JobNotFound LaunchFailed VeriError __version__ "
        "attach compare explore jobs plan sample show_data stop train"
    )
    assert expected == python(code, None).strip()
