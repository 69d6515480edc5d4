"""JupyterLab in a real browser: a server, notebooks on it, and what a person sees and does there."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from jupyter_core.paths import jupyter_path

from kernel_launcher.launcher import client
from kernel_launcher.protocol import index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page, WebSocket

WIDTHS = (700, 1100)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
CHROMIUM: dict[str, Any] = {
    "executable_path": os.environ.get("VERI_CHROMIUM", "/usr/bin/chromium"),
    "args": [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ],
}
_LOG_LINES = 20
_BESIDE_OUTPUT = 118  # pixels of a notebook that are not output: prompt, padding, scroll bar


@dataclass
class Server:
    """One JupyterLab; its root folder and how to reach it."""

    root: Path
    home: Path
    url: str
    token: str

    @contextmanager
    def notebook(self, browser: Browser, *cells: str, width: int = 1100, height: int = 1400) -> Iterator[Notebook]:
        """A fresh notebook with these cells in a page of its own; ends its kernel afterwards."""
        path = f"{secrets.token_hex(4)}.ipynb"
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=kernel)
        nbformat.write(made, self.root / path)
        context = browser.new_context(viewport={"width": width + _BESIDE_OUTPUT, "height": height})
        page = context.new_page()
        notebook = Notebook(self, page, path)
        try:
            notebook.open()
            yield notebook
        except Exception as error:
            error.add_note(notebook.told())
            raise
        finally:
            notebook.close()
            context.close()


@dataclass
class Notebook:
    """One notebook in one browser page."""

    server: Server
    page: Page
    path: str
    received: list[tuple[float, int]] = field(default_factory=list)

    def open(self) -> None:
        """Open it, or open it again: a reload gets its old outputs and its running kernel."""
        self.page.on("websocket", self._listen)
        workspace = self.path.removesuffix(".ipynb")
        self.page.goto(
            f"{self.server.url}/doc/workspaces/{workspace}/tree/{self.path}?token={self.server.token}",
            wait_until="domcontentloaded",
        )
        self.ready()

    def ready(self) -> None:
        """Wait until the kernel answers."""
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        self.page.wait_for_function(
            f"() => {_PANEL}?.sessionContext?.session?.kernel?.status === 'idle'", timeout=60_000
        )

    def reload(self) -> None:
        self.page.reload(wait_until="domcontentloaded")
        self.ready()

    def close(self) -> None:
        self.page.evaluate(f"async () => {{ await {_PANEL}?.sessionContext?.shutdown(); }}")

    def run_cell(self, index: int, *, wait: bool = True) -> None:
        """Run one cell, as Shift+Enter does; by default until it has ended."""
        self.page.evaluate(
            f"""async ([index, wait]) => {{
                const panel = {_PANEL};
                panel.content.activeCellIndex = index;
                panel.content.deselectAll();
                const run = jupyterapp.commands.execute('notebook:run-cell');
                if (wait) await run;
            }}""",
            [index, wait],
        )

    def run(self, code: str, *, wait: bool = True) -> int:
        """Add a cell at the end and run it; its number."""
        index: int = self.page.evaluate(
            f"""(code) => {{
                const cells = {_PANEL}.content.model.sharedModel;
                cells.insertCell(cells.cells.length, {{cell_type: 'code', source: code}});
                return cells.cells.length - 1;
            }}""",
            code,
        )
        self.run_cell(index, wait=wait)
        return index

    def output(self, index: int) -> Locator:
        """What stands below a cell."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputArea")

    def execute(self, command: str, **arguments: Any) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate(
            "async ([command, args]) => { await jupyterapp.commands.execute(command, args); }", [command, arguments]
        )

    def restart_kernel(self) -> None:
        self.page.evaluate(f"async () => {{ await {_PANEL}.sessionContext.session.kernel.restart(); }}")
        self.ready()

    def saved(self) -> Any:
        """Save it, and read the file."""
        self.execute("docmanager:save")
        return nbformat.read(self.server.root / self.path, as_version=4)

    def theme(self, name: str) -> None:
        """``light`` or ``dark``."""
        self.execute("apputils:change-theme", theme=THEMES[name])
        self.page.wait_for_function(
            "(light) => document.body.dataset.jpThemeLight === String(light)", arg=name == "light"
        )

    def width(self, pixels: int) -> None:
        """Make the output so wide."""
        height = (self.page.viewport_size or {"height": 1000})["height"]
        self.page.set_viewport_size({"width": pixels + _BESIDE_OUTPUT, "height": height})

    def screenshot(self, name: str, index: int, folder: Path, *, until: Locator | None = None) -> None:
        """Pictures of what stands below a cell, at both widths and in both themes, once something is seen."""
        for theme in THEMES:
            self.theme(theme)
            for width in WIDTHS:
                self.width(width)
                self.page.wait_for_timeout(400)
                if until is not None:
                    until.wait_for(timeout=40_000)
                self.output(index).screenshot(path=folder / f"{name}-{width}-{theme}.png", animations="allow")
        self.theme("light")
        self.width(WIDTHS[-1])

    def told(self) -> str:
        """What the page says below its cells, and the jobs that ran here say in their logs: why a test failed."""
        outputs = self.page.locator(".jp-Notebook .jp-Cell .jp-Cell-outputArea").all_inner_texts()
        parts = {f"below cell {place}": [text] for place, text in enumerate(outputs)}
        parts |= {entry.id: client.log_lines(entry, n=_LOG_LINES) for entry in index.entries()}
        return "\n".join(f"--- {name}\n" + "\n".join(lines) for name, lines in parts.items())

    def _listen(self, socket_: WebSocket) -> None:
        if re.search("/api/kernels/", socket_.url):
            socket_.on("framereceived", lambda data: self.received.append((time.monotonic(), len(data))))


_PANEL = "[...jupyterapp.shell.widgets('main')][0]"


@contextmanager
def serving(root: Path, home: Path) -> Iterator[Server]:
    """Run a JupyterLab whose kernels have this state directory."""
    # Without it every test waits a minute for a widget that the page never draws.
    found = [Path(folder, "@jupyter-widgets") for folder in jupyter_path("labextensions")]
    assert any(folder.is_dir() for folder in found), (
        f"no widgets for JupyterLab in any of {', '.join(map(str, found))}"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
        f"--ServerApp.root_dir={root}",
    ]  # fmt: skip
    settings = home / "settings"
    settings.mkdir(parents=True)
    environment = {
        **os.environ,
        "VERI_HOME": str(home),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    # Else a question about news covers the page.
    notification = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    notification.parent.mkdir(parents=True)
    notification.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(f"{url}/api/status?token={token}", process, home / "server.log")
            yield Server(root, home, url, token)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
