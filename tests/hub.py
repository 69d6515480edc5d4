"""As much of the model hub as a download needs, on the loopback address."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "team/tiny"
TOKEN = "hf_secretsecretsecret"


@contextmanager
def hub(files: Mapping[str, bytes], **more: object) -> Iterator[str]:
    """The address of a hub with one repository; any other is gated, and its error repeats the caller's token.

    What else its metadata says is given by name.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.wfile.write(self._head())

        def do_HEAD(self) -> None:
            self._head()

        def _head(self) -> bytes:
            status, headers, body = _answer(self.path.partition("?")[0], files, more)
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            return body

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _answer(path: str, files: Mapping[str, bytes], more: Mapping[str, object]) -> tuple[int, dict[str, str], bytes]:
    """The repository is there twice, as a model and as a data set."""
    api, _, below = path.partition(f"/{REPOSITORY}")
    if api in ("/api/models", "/api/datasets"):
        if below.startswith("/tree/"):
            return 200, {}, json.dumps(_entries(below.split("/", 3)[3:], files)).encode()
        siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
        return 200, {}, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings, **more}).encode()
    if api in ("", "/datasets") and below.startswith("/resolve/"):
        name = below.removeprefix("/resolve/").partition("/")[2]
        if name not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        body = files[name]
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(body).hexdigest()}"'}, body
    return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": f"token {TOKEN} has no access"}, b""


def _entries(folder: list[str], files: Mapping[str, bytes]) -> list[dict[str, object]]:
    """What lies directly in a folder."""
    start = f"{folder[0]}/" if folder else ""
    below = {name.removeprefix(start): len(data) for name, data in files.items() if name.startswith(start)}
    folders = {name.partition("/")[0] for name in below if "/" in name}
    return [
        *({"type": "directory", "oid": "d", "size": 0, "path": f"{start}{name}"} for name in sorted(folders)),
        *(
            {"type": "file", "oid": "f", "size": size, "path": f"{start}{name}"}
            for name, size in below.items()
            if "/" not in name
        ),
    ]
