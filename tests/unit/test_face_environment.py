"""When a widget is the right picture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from veri_jupyter import environment
from veri_jupyter.environment import cell_run, has_live_widgets


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel with a person in front of it, of no known frontend."""
    kernel = SimpleNamespace(
        _allow_stdin=True, get_parent=lambda: {"metadata": {"cellId": "c1"}, "header": {"msg_id": "m1"}}
    )
    shell = SimpleNamespace(kernel=kernel, user_ns={})
    monkeypatch.setattr(environment, "shell", lambda: shell)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return shell


def test_a_widget_only_where_a_frontend_is_known(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a kernel of which nothing is known; in Jupyter Server's and VS Code's it is."""
    assert not has_live_widgets()
    here.user_ns["__vsc_ipynb_file__"] = "x.ipynb"
    assert has_live_widgets()
    here.user_ns.clear()
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    assert has_live_widgets()


def test_not_in_a_program_that_was_started_from_a_notebook(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """nbconvert in a notebook's cell inherits the name of its session; nobody looks at what it runs."""
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    here.kernel._allow_stdin = False
    assert not has_live_widgets()


def test_not_without_the_packages(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core can be installed alone."""
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    assert not has_live_widgets()


def test_the_cell_that_runs(here: Any) -> None:
    """As JupyterLab and VS Code name it; others do not."""
    assert ("c1", "m1") == cell_run()
    here.kernel.get_parent = dict
    assert ("", "") == cell_run()
