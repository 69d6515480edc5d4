"""``python -m kernel_launcher.tracker``: one request as JSON on standard input, one answer on standard output.

The request is ``{"config": {...}, "run": {...}}``, a model's config.json and what ``Run`` has; the answer is what
``trace`` gives, or ``{"error": "..."}``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings

from kernel_launcher.protocol.files import readable

_MOST_CHARACTERS = 300


def main() -> int:
    """Answer; the exit code is 0, or 1 where nothing could be measured."""
    request = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    try:
        # Libraries say things on import and on use; standard output is for the answer.
        with contextlib.redirect_stdout(sys.stderr):
            from kernel_launcher.tracker.run import Run
            from kernel_launcher.tracker.trace import trace

            answer = trace(request["config"], Run(**request["run"]))
    except Exception as error:  # a config may break any line of a model's code, and each says why
        first = (str(error).strip() or "no reason given").splitlines()[0]
        print(json.dumps({"error": readable(f"{type(error).__name__}: {first}", _MOST_CHARACTERS)}))
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
