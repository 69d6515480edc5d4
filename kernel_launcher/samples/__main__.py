"""``python -m kernel_launcher.samples DIR``: write the sample and print where its parts are."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from kernel_launcher import samples
from kernel_launcher.errors import VeriError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the paths; the exit code is 0, 1 (refused) or 2 (usage)."""
    options = _parser().parse_args(arguments)
    try:
        paths = samples.write(options.directory, options.only)
    except VeriError as error:
        if options.json:
            _print(json.dumps({"error": error.to_json()}))
        else:
            sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        _print(json.dumps({name: str(path) for name, path in paths.items()}))
    else:
        for name, path in paths.items():
            _print(f"{name:<8} {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernel_launcher.samples",
        description="Write a small model, a tiny one and three data files; what is there already stays as it is.",
    )
    parser.add_argument("directory", metavar="DIR", help="where to write; made when it does not exist")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--only",
        type=_parts,
        default=samples.PARTS,
        metavar="PART,…",
        help=f"some of {', '.join(samples.PARTS)}; data alone needs no torch",
    )
    return parser


def _parts(text: str) -> list[str]:
    parts = text.split(",")
    for part in parts:
        if part not in samples.PARTS:
            message = f"{part!r} is none of {', '.join(samples.PARTS)}"
            raise argparse.ArgumentTypeError(message)
    return parts


def _show_progress_in_lines() -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")  # four bars of transformers would hide our lines
    logger = logging.getLogger(samples.__name__)
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.setLevel(logging.INFO)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    _show_progress_in_lines()
    raise SystemExit(main())
