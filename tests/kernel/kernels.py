"""A real kernel for tests: what a cell prints and shows, and what arrives later."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import KernelManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jupyter_client.blocking.client import BlockingKernelClient


@dataclass
class Reply:
    """What came of one cell."""

    status: str = ""
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = field(default_factory=list)
    stdout: str = ""
    stderr: str = ""
    shown: list[dict[str, str]] = field(default_factory=list)
    updates: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def hear(self, message: dict[str, Any]) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "stream" if content["name"] == "stdout":
                self.stdout += content["text"]
            case "stream":
                self.stderr += content["text"]
            case "display_data" | "execute_result":
                self.shown.append(content["data"])
            case "update_display_data":
                self.updates.append(content["data"])
            case "error":
                self.ename, self.evalue, self.traceback = content["ename"], content["evalue"], content["traceback"]


class Kernel:
    """One kernel with a person in front of it, unless a cell is said to be run by a program."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self._client = client

    def run(self, code: str, *, interactive: bool = True, timeout: float = 120) -> Reply:
        """Run a cell."""
        reply = Reply()
        start = time.monotonic()
        answer = self._client.execute_interactive(
            code, allow_stdin=interactive, output_hook=reply.hear, timeout=timeout
        )
        reply.seconds = time.monotonic() - start
        reply.status = answer["content"]["status"]
        return reply

    def begin(self, code: str, until: str) -> None:
        """Run a cell until this text comes from it."""
        self._client.execute(code)
        assert until in str(self.hear(60, until)), f"no {until!r}"

    def interrupt(self) -> Reply:
        """Interrupt the cell that runs; what came of it."""
        self.manager.interrupt_kernel()
        answer = self._client.get_shell_msg(timeout=30)
        reply = self.hear(30, until="'idle'")
        reply.status = answer["content"]["status"]
        return reply

    def hear(self, seconds: float, until: str = "") -> Reply:
        """What arrives within so many seconds, or up to the first message with this text."""
        reply = Reply()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self._client.get_iopub_msg(timeout=left)
            except Empty:
                break
            reply.hear(message)
            if until and until in str(message["content"]):
                break
        return reply

    def subshell(self) -> str:
        """Ask for a thread that runs messages while a cell is busy; JupyterLab sends clicks to one."""
        request = self._client.session.msg("create_subshell_request", {})
        self._client.control_channel.send(request)
        answer = self._client.get_control_msg(timeout=30)
        found: str = answer["content"]["subshell_id"]
        return found

    def click(self, comm_id: str, subshell: str | None = None) -> None:
        """Click on a button, as a browser does."""
        content = {"comm_id": comm_id, "data": {"method": "custom", "content": {"event": "click"}}}
        message = self._client.session.msg("comm_msg", content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._client.shell_channel.send(message)

    def hear_comm(self, seconds: float, text: str) -> bool:
        """Whether a message to a widget has this text within so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self._client.get_iopub_msg(timeout=left)
            except Empty:
                break
            if message["msg_type"] == "comm_msg" and text in str(message["content"]):
                return True
        return False

    def complete(self, code: str) -> list[str]:
        """What Tab offers at the end of the code."""
        answer = self._client.complete(code, reply=True, timeout=60)
        matches: list[str] = answer["content"]["matches"]
        return matches


@contextmanager
def started(folder: Path, **environment: str) -> Iterator[Kernel]:
    """A fresh kernel whose notebook lies in a folder."""
    import os

    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env={**os.environ, **environment})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
