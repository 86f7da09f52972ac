"""A worker process as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from gstinfer.app.worker import Order
from gstinfer.errors import GstInferError, HostError

__all__ = ["Child", "ended_by"]

START = "import sys; sys.path[:] = {path!r}; from gstinfer.app.worker import main; main({descriptor})"
"""Begins with the parent's module path, so that both find the same modules."""


class Child:
    """A process that works on an ``Order``. It begins at once, and ends when this process does.

    Args:
        name: For messages, such as ``"worker 2 of 3"``.
        order: What it does.
        told: Called (kind, value) with what it says, on a thread of its own; ``("ended", exit code)`` is the last.

    Attributes:
        name: See above.
        pid: Of the process.
        ended: How it ended, or empty while it runs.
    """

    def __init__(self, name: str, order: Order, told: Callable[[str, Any], None]) -> None:
        self.name, self.ended = name, ""
        self._told = told
        self._numbers = count()
        self._asked: dict[int, Future[None]] = {}
        self._sending = threading.Lock()
        ours, theirs = socket.socketpair()
        code = START.format(path=sys.path, descriptor=theirs.fileno())
        # Until it has handlers of its own no signal may end it: Ctrl-C reaches all processes of a terminal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=(theirs.fileno(), *order.descriptors))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.pid = self._process.pid
        self._connection = Connection(ours.detach())
        self._send(order)
        self._thread = threading.Thread(target=self._listen, name=f"gstinfer:{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it runs, and all that it said was handed on."""
        return self._thread.is_alive()

    def tell(self, command: str) -> None:
        """Says something that has no answer: ``"begin"`` or ``"stop"``; nothing happens where it ended."""
        self._send((next(self._numbers), command, ()))

    def ask(self, command: str, *arguments: Any, patience: float = 300.0) -> None:
        """Asks for something and waits until it is done.

        Args:
            command: ``"add"``, ``"remove"`` or ``"swap"``.
            *arguments: Its arguments.
            patience: Seconds.

        Raises:
            GstInferError: What the worker raised.
            HostError: It ended meanwhile, or does not answer.
        """
        number, answer = next(self._numbers), Future[None]()
        self._asked[number] = answer
        self._send((number, command, arguments))
        if not self.alive:
            self._forget()
        try:
            answer.result(patience)
        except LateError:
            raise HostError(f"{self.name} did not answer within {patience:g} s") from None
        finally:
            self._asked.pop(number, None)

    def kill(self) -> None:
        """Ends it at once, with nothing finished; also from a signal handler."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def join(self) -> None:
        """Waits until it ended."""
        self._thread.join()

    def _send(self, message: Any) -> None:
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(message)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            # The socket alone does not tell: a process that the worker started may hold it open.
            while self._connection.poll(0.5) or self._process.poll() is None or self._connection.poll():
                if not self._connection.poll():
                    continue
                kind, value = self._connection.recv()
                if kind == "answer":
                    self._answered(*value)
                else:
                    self._told(kind, value)
        code = self._process.wait()
        self.ended = ended_by(code)
        self._forget()
        self._told("ended", code)
        self._connection.close()

    def _answered(self, number: int, error: GstInferError | None) -> None:
        future = self._asked.pop(number, None)
        if future is not None and error is not None:
            future.set_exception(error)
        elif future is not None:
            future.set_result(None)

    def _forget(self) -> None:
        """Nobody answers any more."""
        for number in list(self._asked):
            self._answered(number, HostError(f"{self.name} {self.ended or 'ended'}"))


def ended_by(code: int) -> str:
    """How a process ended, by its exit code or, below zero, by a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
