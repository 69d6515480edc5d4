"""The command line: ``veri-jupyter VERB``. Each verb takes ``--json``: one JSON value on standard output.

Exit codes: 0 done (or detached), 1 failed or refused, 2 usage, 130 interrupted, or stopped while following.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_launcher import __version__
from kernel_launcher.data.show.text import text as data_text
from kernel_launcher.data.show.view import KINDS
from kernel_launcher.errors import Fault, InvalidRequest, LaunchFailed, VeriError
from kernel_launcher.launcher import client
from kernel_launcher.launcher.client import Failed, Refused, Reused
from kernel_launcher.launcher.job_object import job_object
from kernel_launcher.preflight import look_at, prepare
from kernel_launcher.protocol import index
from kernel_launcher.protocol.files import now
from kernel_launcher.protocol.logs import nothing_logged
from kernel_launcher.protocol.states import Status
from kernel_launcher.protocol.summary import Summary
from kernel_launcher.secrets import redact, shown
from kernel_launcher.spec import read_spec
from kernel_launcher.spec.read import parse_folder, parse_gpus, parse_override

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernel_launcher.protocol.fold import JobView
    from kernel_launcher.protocol.index import Entry
    from kernel_launcher.spec import JobSpec

_NOT_YET = ("resume", "checkpoints", "export", "rehearse", "explain", "doctor")
_INTERRUPTED = 130
_EXIT = {Status.COMPLETED: 0, Status.CANCELLED: _INTERRUPTED}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = _said(run, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (| head): nothing more to say, also not by the interpreter's own flush at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _said(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return run(arguments)
    except VeriError as error:
        if arguments.json:
            _print_json({"error": error.to_json()})
        else:
            print(f"{error.code}: {redact(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """One that repeats no token; what is wrong is often told by repeating what was typed."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit with 2."""
        super().error(redact(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="veri-jupyter", description="Plan, launch and watch a fine-tune.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace], int], help_: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=help_, description=help_)
        sub.add_argument("--json", action="store_true", help="one JSON value on standard output")
        sub.set_defaults(run=run)
        return sub

    sample = verb("sample", _sample, "Write a model and data to try, without a network.")
    sample.add_argument("dir", metavar="DIR")

    for name, run, help_ in (
        ("plan", _plan, "Check a job file and show its plan; nothing is started."),
        ("run", _run, "Start a job and follow it; Ctrl-C detaches, the job goes on."),
    ):
        sub = verb(name, run, help_)
        sub.add_argument("file", metavar="FILE", help="a TOML job file")
        sub.add_argument("--gpus", metavar="N|LIST", help="number of GPUs, or their indices (0,2 or 0-3)")
        sub.add_argument("--gpu-type", metavar="T", help="kind of GPU to plan for")
        sub.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="override a setting")
        if name == "plan":
            sub.add_argument(
                "--hub", action="store_true", help="ask the hub about a model that is not here, for a second"
            )
            sub.add_argument("--trace", action="store_true", help="measure the layers with torch's tracker, too")
        if name == "run":
            sub.add_argument("--name", help="name of the job and its folder")
            sub.add_argument("--run-dir", metavar="DIR", help="the job's folder (default: ./runs/NAME)")
            sub.add_argument("--again", action="store_true", help="start anew although the same job is done")
            sub.add_argument("--detach", action="store_true", help="do not follow")

    jobs = verb("jobs", _jobs, "List jobs, newest first.")
    jobs.add_argument("--status", choices=[str(status) for status in Status], help="only those")
    jobs.add_argument("-n", type=int, default=20, metavar="N", help="at most N")

    verb("show", _show, "Show one job.").add_argument("id", metavar="ID")
    logs = verb("logs", _logs, "Show the end of a job's log.")
    logs.add_argument("id", metavar="ID")
    logs.add_argument("-f", "--follow", action="store_true", help="until the job ends")
    logs.add_argument("-n", type=int, default=200, metavar="N", help="the last N lines")
    logs.add_argument("--rank", type=int, metavar="R", help="of one rank")
    stop = verb("stop", _stop, "Stop a job.")
    stop.add_argument("id", metavar="ID")
    stop.add_argument("--now", action="store_true", help="without the time to end by itself")
    data = verb("data", _data, "Show the rows of a job as its model learns from them.")
    data.add_argument("file", metavar="FILE", help="a TOML job file, or with --model a file of rows")
    data.add_argument("--model", metavar="FOLDER", help="the base model")
    data.add_argument("--heldout", metavar="FILE", help="rows that are held out, to be found among the others")
    data.add_argument("-n", type=int, default=5, metavar="N", help="rows to show")
    data.add_argument("--kind", default=KINDS[0], choices=KINDS, help=f"which rows (default: {KINDS[0]})")
    data.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="override a setting")
    for name in _NOT_YET:
        verb(name, _refuse(name), "Not in this release.").add_argument("rest", nargs="*", metavar="…")
    return parser


def _sample(arguments: argparse.Namespace) -> int:
    command = [sys.executable, "-P", "-m", "kernel_launcher.samples", arguments.dir]
    return subprocess.run([*command, "--json"] if arguments.json else command, check=False).returncode


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.trace:
        print("measuring a step with torch's tracker, unless that was done before…", file=sys.stderr)
    prepared = prepare(_spec(arguments), to_run=False, ask_hub=arguments.hub, trace=arguments.trace)
    plan = prepared.plan
    if arguments.json:
        _print_json({key: value for key, value in plan.to_json().items() if key not in _OF_THE_FILE})
    else:
        print("\n".join(plan.describe()))
    return 0


_OF_THE_FILE = ("method", "resources", "outlook")


def _data(arguments: argparse.Namespace) -> int:
    if arguments.n < 1:
        raise InvalidRequest([Fault("-n", str(arguments.n), "must be at least 1.", "")])
    view = look_at(_looked_at(arguments), heldout=arguments.heldout).view(arguments.kind, arguments.n)
    if arguments.json:
        _print_json(view.to_json())
    else:
        print(data_text(view, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return 0


def _looked_at(arguments: argparse.Namespace) -> JobSpec:
    overrides = dict(parse_override(text) for text in arguments.set)
    if arguments.model is None:
        fix = "Its name ends in .toml; a file of rows needs --model FOLDER beside it."
        return read_spec(_job_file(arguments.file, fix), overrides=overrides)
    return read_spec(arguments.model, settings={"dataset.id": arguments.file}, overrides=overrides)


def _run(arguments: argparse.Namespace) -> int:
    run_dir = None if arguments.run_dir is None else parse_folder("--run-dir", arguments.run_dir)
    prepared = prepare(_spec(arguments))
    if not arguments.json:
        print("\n".join(prepared.plan.describe()))
    began = now()
    try:
        outcome = client.start(prepared, base_dir=Path.cwd(), run_dir=run_dir, again=arguments.again)
    except KeyboardInterrupt:
        begun = index.added(prepared.fingerprint, since=began)
        if begun is None:
            raise
        _say_left(begun)
        return 0
    if isinstance(outcome, Refused):
        raise InvalidRequest([outcome.fault])
    if isinstance(outcome, Failed):
        raise LaunchFailed(outcome.message, "\n".join(outcome.log_tail[-20:]), "\n".join(outcome.log_tail))
    entry = outcome.entry
    if not arguments.json:
        how = "the same job, not started again (--again does)" if isinstance(outcome, Reused) else "started"
        print(f"job {entry.id}: {how}\nfolder {entry.root}")
    if arguments.detach:
        if arguments.json:
            _print_json(job_object(entry))
        return 0
    return _follow(entry, as_json=arguments.json)


def _follow(entry: Entry, *, as_json: bool) -> int:
    line = _Line(sys.stderr if as_json else sys.stdout)
    try:
        view = client.follow(entry, lambda view: line.show(_summary(entry, view).line()))
    except KeyboardInterrupt:
        line.end()
        _say_left(entry)
        return 0
    line.end()
    if as_json:
        _print_json(job_object(entry))
    else:
        print(_summary(entry, view).text(f"veri-jupyter show {entry.id}"))
    return _EXIT.get(view.status, 1)


def _say_left(entry: Entry, what: str = "detached; the job goes on.") -> None:
    lines = (
        what,
        f"  attach: veri-jupyter logs -f {entry.id}",
        f"  stop:   veri-jupyter stop {entry.id}",
    )
    print("\n".join(lines), file=sys.stderr)


class _Line:
    """One line that is written over on a terminal; in a file, a line only when it changes, every few seconds."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._last = ""
        self._next = 0.0

    def show(self, text: str) -> None:
        if text == self._last or (not self._terminal and time.monotonic() < self._next):
            return
        self._next = time.monotonic() + 5
        self._last = text
        # Cut to the width: a line that wraps cannot be written over.
        cut = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r\x1b[2K{cut}" if self._terminal else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        if self._terminal and self._last:
            self._stream.write("\n")


def _jobs(arguments: argparse.Namespace) -> int:
    every = (job_object(entry) for entry in index.entries())
    found = list(islice((job for job in every if arguments.status in (None, job["status"])), max(0, arguments.n)))
    if arguments.json:
        _print_json(found)
    elif not found:
        print("no jobs")
    else:
        width = max(len(job["id"]) for job in found)
        for job in found:
            steps = f"{job['current_step']}/{job['total_steps'] or '?'}"
            print(f"{job['id']:{width}}  {job['status']:12}  {steps:>11}  {job['created_at'][:19].replace('T', ' ')}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    entry = client.find(arguments.id)
    if arguments.json:
        _print_json(job_object(entry))
    else:
        view = client.Watcher(entry).refresh()
        print(_summary(entry, view).text(f"veri-jupyter show {entry.id}"))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    entry = client.find(arguments.id)
    if arguments.json:
        if arguments.follow:
            raise VeriError(
                "invalid_request", "--json gives one value, and --follow goes on.", "Leave one of them out."
            )
        _print_json(client.log_lines(entry, arguments.rank, arguments.n))
        return 0
    if not arguments.follow:
        lines = client.log_lines(entry, arguments.rank, arguments.n)
        if lines:
            print("\n".join(lines))
        else:
            print(nothing_logged(arguments.rank), file=sys.stderr)
        return 0
    try:
        for line in client.follow_log(entry, arguments.rank, arguments.n):
            print(line, flush=True)
    except KeyboardInterrupt:
        _say_left(entry)
        return 0
    return _EXIT.get(client.Watcher(entry).refresh().status, 1)


def _stop(arguments: argparse.Namespace) -> int:
    entry = client.find(arguments.id)
    try:
        view: JobView = client.stop(entry, now=arguments.now)
    except KeyboardInterrupt:
        _say_left(entry, "stopping was interrupted before the job had ended.")
        return _INTERRUPTED
    if arguments.json:
        _print_json(job_object(entry))
    else:
        print(f"{entry.id}: {view.status}")
    return 0 if view.status.is_terminal else 1


def _refuse(name: str) -> Callable[[argparse.Namespace], int]:
    def refuse(_: argparse.Namespace) -> int:
        raise VeriError("not_in_release", f"veri-jupyter {name} isn't in this release.")

    return refuse


def _job_file(path: str, fix: str = "Its name ends in .toml.") -> str:
    if Path(path).suffix.lower() not in (".toml", ".yaml", ".yml"):
        raise InvalidRequest([Fault("file", shown("file", path), "is no job file.", fix)])
    return path


def _spec(arguments: argparse.Namespace) -> JobSpec:
    _job_file(arguments.file)
    settings: dict[str, Any] = {
        "job.name": getattr(arguments, "name", None),
        "resources.gpu_type": arguments.gpu_type,
    }
    settings |= {f"resources.{key}": value for key, value in parse_gpus(arguments.gpus).items()}
    overrides = dict(parse_override(text) for text in arguments.set)
    return read_spec(arguments.file, settings=settings, overrides=overrides)


def _summary(entry: Entry, view: JobView) -> Summary:
    return Summary.of(entry, view, datetime.now().astimezone())


def _print_json(value: Any) -> None:
    text = redact(json.dumps(value, ensure_ascii=False, indent=1))
    print("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(character: str) -> str:
    """A character that a terminal would act on, in JSON; ``json`` itself escapes only those below the space."""
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]


if __name__ == "__main__":
    sys.exit(main())
