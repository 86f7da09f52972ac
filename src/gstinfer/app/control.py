"""What may be asked of a running session from outside, and the Unix socket that takes it.

One request a line, one answer a line, both JSON: ``{"command": "add", "source": "rtsp://..."}`` is answered by
``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "..."}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gstinfer.errors import ConfigError, GstInferError, HostError, UnknownNameError

if TYPE_CHECKING:
    from gstinfer.app.running import Running

__all__ = ["COMMANDS", "ControlSocket", "address", "ask", "execute"]

LONGEST = 65536
"""Bytes of a request."""

COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "add": (("source",), ("name",)),
    "remove": (("name",), ()),
    "list": ((), ()),
    "swap": (("model",), ()),
    "stats": ((), ("name",)),
}
"""Names of the arguments that a command needs, and of those that it may have."""

ROW = ("name", "source", "device", "state", "frames", "fps", "lag", "dropped", "error")
"""What ``list`` tells of a stream."""


def execute(session: Running, command: str, arguments: Mapping[str, Any]) -> Any:
    """Does what is asked, in the caller's thread.

    Returns:
        Plain values: the stream for ``add`` and ``remove``, a list of streams, the model, or the whole report.

    Raises:
        UnknownNameError: No such command, or no stream of that name.
        GstInferError: It cannot be done; the session goes on.
    """
    if command not in COMMANDS:
        raise UnknownNameError("command", command, COMMANDS)
    needed, optional = COMMANDS[command]
    for key, value in arguments.items():
        if key not in needed + optional:
            raise UnknownNameError(f"argument of {command}", key, needed + optional)
        if not isinstance(value, str) or (key in needed and not value):
            raise ConfigError(f"{key}={value!r} of {command} is no text")
    if missing := [key for key in needed if key not in arguments]:
        raise ConfigError(f"{command} needs {' and '.join(missing)}")
    if command == "add":
        return _row(session.add_source(arguments["source"], arguments.get("name", "")).report())
    if command == "remove":
        return _row(session.remove_source(arguments["name"]).report())
    if command == "swap":
        session.swap(arguments["model"])
        return {"model": session.model}
    if command == "stats":
        name = arguments.get("name")
        return session.find(name).report() if name else session.report()
    return [_row(stream) for stream in session.report()["streams"]]


def _row(stream: dict[str, Any]) -> dict[str, Any]:
    return {key: stream[key] for key in ROW}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    # Threads of clients that hold their connection open end with the process.
    block_on_close = False
    session: Running


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 300

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while line := self.rfile.readline(LONGEST + 1):
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")
                if len(line) > LONGEST:
                    return

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            if len(line) > LONGEST:
                raise ConfigError(f"a request is longer than {LONGEST} bytes")
            request = json.loads(line)
            if not isinstance(request, dict) or not isinstance(request.get("command"), str):
                raise ConfigError('a request must look like {"command": "list"}')
            command = request.pop("command")
            return {"ok": True, "result": execute(self.server.session, command, request)}
        except GstInferError as error:
            return {"ok": False, "error": str(error)}
        except (UnicodeDecodeError, ValueError) as error:
            return {"ok": False, "error": f"a request must be one line of JSON: {error}"}


class ControlSocket:
    """Listens on a Unix socket that only its owner may use, until closed.

    Args:
        session: What is controlled.
        path: Of the socket; one that a process which ended left behind is replaced.

    Raises:
        ConfigError: Another run listens there, or the socket cannot be made.
    """

    def __init__(self, session: Running, path: str) -> None:
        self.path = path
        if _answers(path):
            raise ConfigError(f"another run listens on {path!r}", hint="end it, or take another --control SOCKET")
        before = os.umask(0o177)
        try:
            if os.path.lexists(path):
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    raise ConfigError(f"{path!r} is there and is no socket", hint="take another --control SOCKET")
                os.unlink(path)
            self._server = _Server(path, _Handler)
        except OSError as error:
            raise ConfigError(
                f"the control socket {path!r} cannot be made: {error.strerror or error}",
                hint="its folder must be there and writable, and the path at most 107 bytes long",
            ) from error
        finally:
            os.umask(before)
        self._server.session = session
        self._inode = os.lstat(path).st_ino
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="gstinfer:control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and takes the socket away."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with contextlib.suppress(OSError):
            if os.lstat(self.path).st_ino == self._inode:
                os.unlink(self.path)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2)
        try:
            probe.connect(path)
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


def ask(path: str, command: str, patience: float = 300.0, **arguments: str) -> Any:
    """Asks a running session through its socket.

    Raises:
        HostError: Nobody listens there, or what was asked for cannot be done.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(patience)
        try:
            connection.connect(path)
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
        except OSError as error:
            reason = error.strerror or str(error)
            hint = f"start one: gstinfer run ... --control {path}" if not Path(path).exists() else ""
            raise HostError(f"no running session answers on {path!r}: {reason}", hint=hint) from error
    if not line:
        raise HostError(f"the session on {path!r} ended meanwhile")
    answer = json.loads(line)
    if not answer["ok"]:
        raise HostError(answer["error"])
    return answer["result"]


def address(text: str, host: str) -> tuple[str, int]:
    """``[HOST]:PORT`` or ``PORT`` as a pair; without a host the given one.

    Raises:
        ConfigError: The port is none.
    """
    before, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 65536:
        raise ConfigError(f"{text!r} is no address to listen on", hint="write PORT, :PORT or HOST:PORT")
    return before.strip("[]") or host, int(port)
