"""Messages as JSON lines, to a file or to standard output."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from gstinfer.errors import ConfigError, PublishError

__all__ = ["JsonLines", "encode", "stdout_alone"]

_stdout = 1
"""Descriptor that ``stdout:`` writes to."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as one line of UTF-8 JSON, with its line end.

    Raises:
        PublishError: It holds NaN or something that JSON has no form for.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise PublishError(f"a message cannot be written as JSON: {error}") from error
    # Half a surrogate pair (a file name that is no UTF-8) becomes \udcXX, which is its JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


@contextmanager
def stdout_alone() -> Iterator[None]:
    """Keeps standard output for messages: whatever else prints there meanwhile, in Python or in C, goes to stderr."""
    global _stdout
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    _stdout = kept
    try:
        yield
    finally:
        sys.stdout.flush()
        _stdout = 1
        os.dup2(kept, 1)
        os.close(kept)


class JsonLines:
    """``file:PATH`` or ``stdout:``; every line is written whole, at once, with nothing buffered in this process.

    Args:
        url: ``stdout:``, ``file:PATH`` (relative to the working folder) or ``file:///PATH`` with %-escapes.
        append: Whether lines are added to a file that exists; otherwise it is begun anew.

    Raises:
        ConfigError: Another URL, or no path.
    """

    def __init__(self, url: str, *, append: bool = False) -> None:
        scheme, _, rest = url.partition(":")
        if scheme == "file" and rest.startswith("//"):
            rest = unquote(rest[2:].removeprefix("localhost"))
        if scheme == "file" and not rest:
            raise ConfigError(f"url={url!r} names no file", hint="write url=file:PATH")
        if scheme not in ("file", "stdout") or (scheme == "stdout" and rest not in ("", "//")):
            raise ConfigError(f"url={url!r} is not understood", hint="use stdout: or file:PATH")
        self.path = os.path.abspath(rest) if scheme == "file" else ""
        self.append = append
        self._fd: int | None = None
        self._lock = threading.Lock()

    @property
    def target(self) -> str:
        """What is written to, the same text for every way to name it."""
        return f"file:{os.path.realpath(self.path)}" if self.path else "stdout:"

    def open(self) -> None:
        """Opens or creates the file; its folder must exist.

        Raises:
            PublishError: It cannot be written.
        """
        if not self.path:
            self._fd = _stdout
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (0 if self.append else os.O_TRUNC)
        try:
            self._fd = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise self._error(error, "opened") from error

    def publish(self, message: dict[str, Any]) -> None:
        """Writes one line.

        Raises:
            PublishError: Disk full, closed pipe, or not open.
        """
        self.write(encode(message))

    def write(self, lines: bytes) -> None:
        """Writes lines that are ready, with their line ends.

        Raises:
            PublishError: Disk full, closed pipe, or not open.
        """
        with self._lock:
            if self._fd is None:
                raise PublishError(f"{self.target} is not open")
            try:
                _write(self._fd, lines)
            except OSError as error:
                raise self._error(error, "written") from error

    def close(self) -> None:
        """Closes the file; nothing is left to write."""
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None and self.path:
            try:
                os.close(fd)
            except OSError:
                pass  # every line was written and checked already

    def _error(self, error: OSError, done: str) -> PublishError:
        name = repr(self.path) if self.path else "standard output"
        folder = os.path.dirname(self.path)
        hint = {
            errno.ENOENT: f"the folder {folder!r} does not exist; make it first",
            errno.ENOTDIR: f"{folder!r} is not a folder",
            errno.EISDIR: "name a file, not a folder",
            errno.EACCES: "choose a place that this user may write to",
            errno.EROFS: "choose a place that this user may write to",
            errno.ENOSPC: "free some space; the lines written so far are whole but for the last",
            errno.EPIPE: "the reader closed its end",
        }.get(error.errno or 0, "")
        return PublishError(f"{name} cannot be {done} for messages: {error.strerror or error}", hint=hint)


def _write(fd: int, data: bytes) -> None:
    """One ``os.write``; goes on where the system took only a part, and waits where a pipe is set not to block."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Not select(): it takes no descriptor above 1023, and many streams have more.
            writable = select.poll()
            writable.register(fd, select.POLLOUT)
            writable.poll()
