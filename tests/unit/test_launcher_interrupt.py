"""Ctrl-C while waiting counts, wherever it falls."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kernel_launcher.launcher.interrupt import interrupts_kept

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Python's own handler, also where these tests run in the background of a shell, which ignores Ctrl-C there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class PressesInItsDestructor:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))  # the signal is handled in here


def test_an_interrupt_in_a_destructor_is_not_forgotten() -> None:
    """Python would print it and go on."""
    with interrupts_kept() as check:
        check()
        PressesInItsDestructor()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_a_second_interrupt_does_not_wait_for_the_check() -> None:
    """What is waited for may itself hang."""
    with interrupts_kept():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_handler_of_somebody_else_stays() -> None:
    """Who ignores Ctrl-C, or has a use for it, keeps it."""
    heard: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with interrupts_kept() as check:
            os.kill(os.getpid(), signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [signal.SIGINT] == heard


def test_a_thread_leaves_the_signal_alone() -> None:
    """Only the main thread may have handlers."""
    seen: list[Any] = []

    def wait() -> None:
        with interrupts_kept() as check:
            check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert [signal.default_int_handler] == seen
