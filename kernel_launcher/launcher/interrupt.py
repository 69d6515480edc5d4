"""Ctrl-C while waiting for a job, kept until it can be acted on."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def interrupts_kept() -> Iterator[Callable[[], None]]:
    """While inside, Ctrl-C is raised by the check that is yielded; pressed a second time, it is raised at once.

    Python raises ``KeyboardInterrupt`` in whatever runs when the signal comes: in a destructor or in a callback from
    C it is printed and forgotten, and whoever pressed the keys goes on waiting. Outside the main thread, and where
    somebody else handles or ignores the signal, nothing is changed.
    """
    pressed = False

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    def keep(*_: object) -> None:
        nonlocal pressed
        check()
        pressed = True

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check
        return
    signal.signal(signal.SIGINT, keep)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
