"""Short training runs on the GPUs of this machine, each beside its plan: ``make gpu-check PY=python3``.

    PYTHONPATH=. python scripts/gpu_check [--device cuda|cpu] [--out FOLDER] [--groups …] [--seconds 285]

Needs torch and transformers, no network and no files. Writes ``gpu_check.md`` and ``gpu_check.json``; what could not
be run is a row that says why. The exit code is 1 if a row failed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that its modules are a package, as for the ranks

from gpu_check import table
from gpu_check.rows import EIGHT, GROUPS, ROWS, Group

HERE = Path(__file__).parent
_MOST_RANKS = 8


def main() -> int:
    """Run all groups, one after the other, and write the table."""
    options = _options()
    if missing := _missing():
        print(f"nothing can be checked: {missing}")
        return 1
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        print(f"nothing can be checked on a GPU: torch {torch.__version__} sees none. Try --device cpu.")
        return 1
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + options.seconds
    results = []
    for group in options.groups:
        ranks = {"alone": 1, "eight": EIGHT, "together": min(_MOST_RANKS, gpus) if gpus else 2}[group]
        results += _group(group, ranks, device, options.out, deadline)
    header = table.header(device)
    (options.out / "gpu_check.json").write_text(json.dumps(header | {"rows": results}, indent=1), encoding="utf-8")
    page = table.markdown(header, results)
    (options.out / "gpu_check.md").write_text(page, encoding="utf-8")
    print(page)
    return 1 if any(row["status"].startswith("failed") for row in results) else 0


def _group(group: Group, ranks: int, device: str, out: Path, deadline: float) -> list[dict[str, Any]]:
    """The results of a group's rows; its processes are ended at the deadline."""
    rows = [row for row in ROWS if row.group == group]
    if ranks == 1 and group == "together":
        return [table.entry(row, "not run: this machine has one GPU") for row in rows]
    file = out / f"{group}.jsonl"
    file.unlink(missing_ok=True)
    processes = []
    port = _free_port()
    for rank in range(1 if group == "eight" else ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, str(HERE / "ranks.py"), group, device, str(file), str(deadline)]
        processes.append(subprocess.Popen(command, env=os.environ | place))
    codes = [_ended(process, deadline) for process in processes]
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    if len(found) < len(rows):
        why = "not run: the time is over" if None in codes else f"failed: a process ended with {codes}"
        # The first row without a result is the one that was running.
        found += [table.entry(row, why) for row in rows[len(found) :]]
    return found


def _ended(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit code; None for one that had to be ended."""
    try:
        return process.wait(max(1.0, deadline - time.time()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _missing() -> str:
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ImportError as error:
            return f"{sys.executable} has no {package} ({error})."
    return ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: the GPU, if torch sees one")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="folder of the table")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=GROUPS, help="which parts of the table")
    parser.add_argument("--seconds", type=float, default=285, help="when to stop")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
