"""The magics: parse the line, call the function, show the result."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from veri_jupyter import not_yet, options
from veri_jupyter.options import mistake

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from kernel_launcher.preflight import Prepared
    from veri_jupyter.options import Parser

    Shell = Any
    Run = Callable[[Shell, Namespace, str], None]
    Magic = Callable[..., None]

# Everything behind them is imported by the first magic that runs, so that loading the extension stays cheap.


def train(shell: Shell, asked: Namespace, cell: str) -> None:
    """``%%veri_train``."""
    from veri_jupyter import api, start
    from veri_jupyter.job import detaching
    from veri_jupyter.monitor.show import show

    api.refuse_after(asked.after)
    prepared = _prepared(shell, asked, cell)
    if asked.dry_run:
        _give_plan(shell, asked, prepared)
        return
    job = start.launch(prepared, again=asked.again)
    quiet = asked.display == "none"
    with detaching(job.id):
        # Before the wait: whoever interrupts it, or meets a failure, wants to look at the job.
        _assign(shell, asked.output, job)
        if not quiet:
            show(job.entry, asked.display)
    if asked.wait:
        job.wait(quiet=quiet)


def plan(shell: Shell, asked: Namespace, cell: str) -> None:
    """``%veri_plan``."""
    _give_plan(shell, asked, _prepared(shell, asked, cell, to_run=False))


def data(shell: Shell, asked: Namespace, cell: str) -> None:
    """``%veri_data``."""
    from kernel_launcher.preflight import look_at
    from kernel_launcher.spec.read import parse_override
    from veri_jupyter import start
    from veri_jupyter.data.shown import Choice, ShownData

    if asked.rows and asked.data:
        raise mistake(
            f"either ROWS or --data names the rows, not both: leave out {asked.rows}, or --data {asked.data}"
        )
    rows = asked.rows or _variable(shell, asked.data)
    overrides = dict(parse_override(pair) for pair in asked.set)
    choice = Choice.of(n=asked.n, kind=asked.kind, display=asked.display)
    spec, rows = start.read_job(_source(asked, cell), rows, {}, overrides)
    shown = ShownData(look_at(spec, rows, asked.heldout), choice)
    _assign(shell, asked.output, shown)
    shown.show()


def explore(shell: Shell, asked: Namespace, cell: str) -> None:
    """``%veri_explore``."""
    from kernel_launcher.spec.read import parse_gpus, parse_override
    from veri_jupyter import api

    settings = {"resources.gpu_type": asked.gpu_type}
    settings |= {f"resources.{key}": value for key, value in parse_gpus(asked.gpus).items()}
    settings |= dict(parse_override(pair) for pair in asked.set)
    rows = _variable(shell, asked.data)
    explorer = api.explore(_source(asked, cell), rows, display=asked.display, **settings)
    _assign(shell, asked.output, explorer)
    explorer.show()


def jobs(_: Shell, __: Namespace, ___: str) -> None:
    """``%veri_jobs``."""
    from veri_jupyter import api
    from veri_jupyter.monitor.show import show_all

    show_all([job.brief for job in api.jobs()])


def attach(_: Shell, asked: Namespace, __: str) -> None:
    """``%veri_attach``."""
    from veri_jupyter import api
    from veri_jupyter.monitor.show import show

    job = api.attach(asked.id)
    if asked.display != "none":
        show(job.entry, asked.display)


def logs(_: Shell, asked: Namespace, __: str) -> None:
    """``%veri_logs``."""
    from kernel_launcher.protocol.logs import nothing_logged
    from veri_jupyter import api
    from veri_jupyter.monitor.show import say

    job = api.attach(asked.id)
    say(job.logs(asked.rank, asked.n) or [nothing_logged(asked.rank)])


def stop(_: Shell, asked: Namespace, __: str) -> None:
    """``%veri_stop``."""
    from veri_jupyter import api
    from veri_jupyter.monitor.show import say

    say([api.stop(asked.id, now=asked.now).brief.line()])


MAGICS: dict[str, tuple[Parser, Run, str]] = {
    "veri_train": (options.TRAIN, train, "line_cell"),
    "veri_plan": (options.PLAN, plan, "line_cell"),
    "veri_data": (options.DATA, data, "line_cell"),
    "veri_explore": (options.EXPLORE, explore, "line_cell"),
    "veri_jobs": (options.JOBS, jobs, "line"),
    "veri_attach": (options.ATTACH, attach, "line"),
    "veri_logs": (options.LOGS, logs, "line"),
    "veri_stop": (options.STOP, stop, "line"),
}


def load(shell: Shell) -> None:
    """Register every magic, and those that are not in this release, which say so."""
    for name, (parser, run, kind) in MAGICS.items():
        shell.register_magic_function(_magic(shell, parser, run), kind, name)
    for name, hint in not_yet.MAGICS.items():
        shell.register_magic_function(_refused(name, hint), "line_cell", name)


def unload(shell: Shell) -> None:
    """Take them away again."""
    for registered in shell.magics_manager.magics.values():
        for name in (*MAGICS, *not_yet.MAGICS):
            registered.pop(name, None)


def _magic(shell: Shell, parser: Parser, run: Run) -> Magic:
    def magic(line: str, cell: str = "") -> None:
        asked = parser.parse_line(line)
        if asked is not None:
            run(shell, asked, cell)

    magic.__doc__ = parser.format_help()
    return magic


def _refused(name: str, hint: str) -> Magic:
    def magic(_: str, __: str = "") -> None:
        raise mistake(f"%{name} isn't in this release. {hint}".rstrip())

    magic.__doc__ = "Not in this release."
    return magic


def _prepared(shell: Shell, asked: Namespace, cell: str, *, to_run: bool = True) -> Prepared:
    from kernel_launcher.spec.read import parse_gpus, parse_override
    from veri_jupyter import start

    settings = {"job.name": getattr(asked, "name", None), "resources.gpu_type": asked.gpu_type}
    settings |= {f"resources.{key}": value for key, value in parse_gpus(asked.gpus).items()}
    overrides = dict(parse_override(pair) for pair in asked.set)
    source = _source(asked, cell)
    rows, ask_hub = _variable(shell, asked.data), getattr(asked, "hub", False)
    trace = getattr(asked, "trace", False)
    return start.prepare(source, rows, settings, overrides=overrides, to_run=to_run, ask_hub=ask_hub, trace=trace)


def _source(asked: Namespace, cell: str) -> str | None:
    """What describes the job."""
    if not cell.strip():
        file: str | None = asked.file
        return file
    if asked.file:
        raise mistake(f"either FILE or a cell describes the job, not both: leave out {asked.file}, or the cell")
    return cell


def _give_plan(shell: Shell, asked: Namespace, prepared: Prepared) -> None:
    from veri_jupyter.monitor.show import show_plan

    show_plan(prepared.plan)
    _assign(shell, asked.output, prepared.plan)


def _variable(shell: Shell, name: str | None) -> Any:
    if name is None:
        return None
    known = shell.user_ns
    if name not in known:
        near = get_close_matches(name, [other for other in known if not other.startswith("_")], n=3)
        guess = f"Did you mean {' or '.join(near)}?" if near else "Run the cell that makes it first."
        raise mistake(f"--data {name}: there is no such variable. {guess}")
    return known[name]


def _assign(shell: Shell, name: str | None, value: object) -> None:
    if name is not None:
        shell.user_ns[name] = value
