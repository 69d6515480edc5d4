"""``make demo``: the quickstart notebook from top to bottom, with the job's progress in the terminal."""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from kernel_launcher.launcher import client
from kernel_launcher.protocol import index
from kernel_launcher.protocol.files import now
from kernel_launcher.protocol.summary import Summary

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
EXECUTED = NOTEBOOKS / "quickstart.executed.ipynb"


def main() -> int:
    """Run the notebook in a thread, and follow the job that it starts or shows."""
    since = now()
    notebook = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    run = NotebookClient(
        notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}}
    )
    outcome: list[BaseException | None] = []
    thread = threading.Thread(target=_execute, args=(run, outcome), daemon=True)
    print(f"running {NOTEBOOKS / 'quickstart.ipynb'}", flush=True)
    thread.start()
    _show_progress(since, thread)
    thread.join()
    nbformat.write(notebook, EXECUTED)
    error = outcome[0] if outcome else None
    if error is not None:
        print(f"\nthe notebook failed:\n{error}", file=sys.stderr)
        return 1
    _print_answers(notebook)
    final = next((entry.run.final for entry in index.entries() if entry.run.final.is_dir()), None)
    print(f"\nthe model:     {final}")
    print(f"with outputs:  {EXECUTED}")
    print("open it:       make lab")
    return 0


def _execute(run: NotebookClient, outcome: list[BaseException | None]) -> None:
    try:
        run.execute()
        outcome.append(None)
    except CellExecutionError as error:
        outcome.append(error)


def _show_progress(since: str, thread: threading.Thread) -> None:
    watchers: dict[str, client.Watcher] = {}
    last = ""
    while thread.is_alive():
        thread.join(timeout=2)
        for entry in index.entries():
            if entry.created_at >= since and entry.id not in watchers:
                watchers[entry.id] = client.Watcher(entry)
                print(f"job {entry.id} in {entry.root}", flush=True)
        for watcher in watchers.values():
            line = Summary.of(watcher.entry, watcher.refresh(), datetime.now().astimezone()).line()
            if line != last:
                print(line, flush=True)
                last = line


def _print_answers(notebook: nbformat.NotebookNode) -> None:
    last = next((cell for cell in reversed(notebook.cells) if cell.cell_type == "code" and cell.outputs), None)
    for output in last.outputs if last else []:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        print(text.rstrip())


if __name__ == "__main__":
    sys.exit(main())
