"""Message lines of several processes, brought together in one file or on standard output."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
import time

from gstinfer.errors import PublishError
from gstinfer.publish.jsonl import JsonLines

__all__ = ["Relay"]

log = logging.getLogger("gstinfer.relay")

CHUNK = 1 << 16
"""Bytes of one read: what a pipe holds."""


class Relay:
    """Reads pipes and writes whole lines only, each process's in its order. What a killed process began is left out.

    Nothing is lost when the target is slow: the pipes fill up and their writers wait.

    Args:
        target: Where lines go, not yet open.

    Attributes:
        failure: Why the target took no more, or None. All pipes are closed by then, which their writers notice.
    """

    def __init__(self, target: JsonLines) -> None:
        self.target = target
        self.failure: PublishError | None = None
        self._pipes: dict[int, bytes] = {}
        self._moved = 0.0
        self._thread: threading.Thread | None = None

    def pipe(self) -> int:
        """The writing end of a new pipe, for a process that is started; the caller closes it afterwards."""
        reading, writing = os.pipe()
        self._pipes[reading] = b""
        return writing

    def start(self) -> None:
        """Opens the target, and reads from now on.

        Raises:
            PublishError: It cannot be opened.
        """
        self.target.open()
        self._thread = threading.Thread(target=self._run, name="gstinfer-relay", daemon=True)
        self._thread.start()

    def finish(self, patience: float = 5.0) -> None:
        """Waits for the rest, once the writers ended.

        Args:
            patience: Seconds without any progress after which the target counts as stuck.
        """
        if self._thread is None:
            self._close()
            return
        self._moved = time.monotonic()
        while self._thread.is_alive() and time.monotonic() < self._moved + patience:
            self._thread.join(0.05)
        if self._thread.is_alive():
            log.warning("%s did not take the last messages; they are lost", self.target.target)
        else:
            self.target.close()

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for pipe in self._pipes:
                    selector.register(pipe, selectors.EVENT_READ)
                while selector.get_map():
                    for key, _ in selector.select():
                        if not self._pass_on(key.fd):
                            selector.unregister(key.fd)
        except PublishError as error:
            self.failure = error
        finally:
            self._close()

    def _pass_on(self, pipe: int) -> bool:
        """Whether more may come out of a pipe."""
        chunk = os.read(pipe, CHUNK)
        lines, end, self._pipes[pipe] = (self._pipes[pipe] + chunk).rpartition(b"\n")
        if end:
            self.target.write(lines + end)
        self._moved = time.monotonic()
        return bool(chunk)

    def _close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                os.close(pipe)
        self._pipes.clear()
