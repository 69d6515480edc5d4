"""What may stand on the line of each magic. A mistake is a ``UsageError``: one sentence, no traceback."""

from __future__ import annotations

import argparse
import keyword
import shlex
from difflib import get_close_matches
from typing import NoReturn

from IPython.core.error import UsageError

from kernel_launcher.data.show.view import KINDS
from kernel_launcher.secrets import redact
from veri_jupyter.environment import DISPLAYS


def mistake(text: str) -> UsageError:
    """The error of a line that is not understood; what was typed may be a token."""
    return UsageError(redact(text))


class Parser(argparse.ArgumentParser):
    """The options of one magic."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, add_help=False, allow_abbrev=False)
        self.add_argument("--help", action="store_true", help="print this and do nothing")

    def parse_line(self, line: str) -> argparse.Namespace | None:
        """What a line asks for; None after it asked for help and got it.

        Raises:
            UsageError: It is not understood.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise mistake(f"{self.prog}: {error}: {line}") from None
        if "--help" in words:
            self.print_help()
            return None
        options, unknown = self.parse_known_args(words)
        if unknown:
            name = unknown[0].partition("=")[0]
            near = get_close_matches(name, self.flags(), n=1)
            guess = f"Did you mean {near[0]}?" if near else "It takes " + ", ".join(self.flags())
            raise mistake(f"{self.prog}: there is no {name}. {guess}")
        return options

    def flags(self) -> list[str]:
        """Every option, as it is written."""
        return [flag for action in self.actions for flag in action.option_strings]

    @property
    def actions(self) -> list[argparse.Action]:
        """Every option and argument."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        raise mistake(f"{self.prog}: {message}. See {self.prog} --help")


def _train() -> Parser:
    parser = Parser("%veri_train", "Start the job that the cell (TOML) or FILE describes, in the background.")
    _job(parser)
    parser.add_argument("--name", metavar="NAME", help="name of the job and of its folder, ./runs/NAME/")
    parser.add_argument("--dry-run", action="store_true", help="check and plan, start nothing")
    parser.add_argument("--wait", action="store_true", help="wait for the end; interrupting leaves the job running")
    parser.add_argument("--again", action="store_true", help="start anew, although the same job runs or is done")
    parser.add_argument("--after", metavar="ID", help="not in this release")
    _display(parser)
    return parser


def _attach() -> Parser:
    parser = _one_job("%veri_attach", "Show a job, and keep it current. As a value: veri_jupyter.attach(ID).")
    _display(parser)
    return parser


def _display(parser: Parser) -> None:
    parser.add_argument(
        "--display", default="auto", choices=(*DISPLAYS, "none"),
        help="widget: the dashboard; static: no script needed; auto: the dashboard where somebody looks (default)",
    )  # fmt: skip


def _plan() -> Parser:
    parser = Parser(
        "%veri_plan", "Show how the job that the cell (TOML) or FILE describes would run. Starts nothing."
    )
    _job(parser)
    parser.add_argument("--hub", action="store_true", help="ask the hub about a model that is not here, for a second")
    parser.add_argument("--trace", action="store_true", help="measure the layers with torch's tracker, too")
    return parser


def _explore() -> Parser:
    parser = Parser(
        "%veri_explore", "A form for the job that the cell (TOML) or FILE describes, with its plan beside it."
    )
    _job(parser)
    parser.add_argument(
        "--display", default="auto", choices=DISPLAYS,
        help="widget: the form; static: the card of its plan; auto: the form where somebody looks (default)",
    )  # fmt: skip
    return parser


def _job(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="a TOML job file, or the base model")
    parser.add_argument("--gpus", metavar="N|LIST", help="how many GPUs, or which: 2, or 0,2, or 0-3")
    parser.add_argument("--gpu-type", metavar="TYPE", help="kind of GPU; auto is what is here")
    _settings(parser)


def _settings(parser: Parser) -> None:
    parser.add_argument("--data", metavar="VAR", help="variable with rows: a list of dicts, a DataFrame, a Dataset")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="set anything else; beats the rest"
    )
    parser.add_argument("-o", dest="output", metavar="VAR", type=_variable, help="variable that gets the result")


def _data() -> Parser:
    parser = Parser(
        "%veri_data",
        "Show the rows of the job that the cell (TOML) or FILE describes as its model learns from them: tokens and "
        "which of them are trained, lengths, findings.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="a TOML job file, or the base model")
    parser.add_argument("rows", metavar="ROWS", nargs="?", help="a file of rows, after the base model")
    parser.add_argument("--heldout", metavar="FILE", help="rows that are held out, to be found among the others")
    parser.add_argument("-n", type=int, default=5, metavar="N", help="rows to show (default: 5)")
    parser.add_argument("--kind", default=KINDS[0], choices=KINDS, help=f"which rows (default: {KINDS[0]})")
    _settings(parser)
    parser.add_argument(
        "--display", default="auto", choices=(*DISPLAYS, "none"), help="how it is shown (default: auto)"
    )
    return parser


def _one_job(prog: str, description: str) -> Parser:
    parser = Parser(prog, description)
    parser.add_argument("id", metavar="ID", help="a job's id, the beginning of it, its name, its folder, or last")
    return parser


def _logs() -> Parser:
    parser = _one_job("%veri_logs", "Print the last lines of a job's logs.")
    parser.add_argument("-n", type=int, default=200, metavar="N", help="lines (default: 200)")
    parser.add_argument("--rank", type=int, metavar="R", help="of this rank only")
    return parser


def _stop() -> Parser:
    parser = _one_job("%veri_stop", "Stop a job, and wait until it has stopped.")
    parser.add_argument("--now", action="store_true", help="give the ranks no time to end by themselves")
    return parser


def _variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name for a variable")
    return text


TRAIN = _train()
PLAN = _plan()
DATA = _data()
EXPLORE = _explore()
JOBS = Parser("%veri_jobs", "List your newest jobs.")
ATTACH = _attach()
LOGS = _logs()
STOP = _stop()
