"""``make demo``: the quickstart notebook from top to bottom, with the job's progress in the terminal."""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

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
    print("first the sample (half a minute, once), then the training", flush=True)
    thread.start()
    _show_progress(since, thread)
    thread.join()
    nbformat.write(notebook, EXECUTED)
    if outcome != [None]:
        print("\nthe notebook failed", *outcome, sep="\n", file=sys.stderr)
        return 1
    _print_answers(notebook)
    print(f"\nthe model:     {_demo_job().run.final}")
    print(f"with outputs:  {EXECUTED}")
    print("open it:       make lab")
    return 0


def _demo_job() -> index.Entry:
    """The newest job that the notebook started."""
    return next(entry for entry in index.entries() if entry.run.root.parent == NOTEBOOKS / "runs")


def _execute(run: NotebookClient, outcome: list[BaseException | None]) -> None:
    try:
        run.execute()
        outcome.append(None)
    except (CellExecutionError, DeadKernelError, TimeoutError) as error:
        outcome.append(error)


def _show_progress(since: str, thread: threading.Thread) -> None:
    watchers: dict[str, client.Watcher] = {}
    last = ""
    said = False
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
            if watcher.refresh().status.is_terminal and not said:
                print("now the answers before and after, from processes of their own", flush=True)
                said = True


def _print_answers(notebook: nbformat.NotebookNode) -> None:
    """What the notebook says at its end: the loss, and the answers before and after."""
    for cell in [cell for cell in notebook.cells if cell.cell_type == "code"][-2:]:
        for output in cell.outputs:
            if output.get("name") == "stdout":
                print(output["text"].rstrip())


if __name__ == "__main__":
    sys.exit(main())
