"""A worker process: an ordinary session with a share of a job's inputs, which its parent asks through a socket.

Messages are pickled tuples. The parent sends an ``Order``, then (number, command, arguments); back come (kind, value).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gstinfer.app.session import Job, Session
from gstinfer.app.sources import Source
from gstinfer.errors import GstInferError

__all__ = ["Order", "main"]

REPORT_SECONDS = 0.5
"""Between two reports where nothing happens; changes of a stream's state are told at once."""

ORPHAN_SECONDS = 20.0
"""Time to finish files once the parent is gone."""


@dataclass(frozen=True)
class Order:
    """What a worker is to do.

    Attributes:
        job: Its job, without inputs; ``stay`` is set, since the parent decides on the end.
        shares: Key, source and video file of each of its inputs.
        descriptors: Inherited descriptors, which no process of its own shall inherit.
    """

    job: Job
    shares: Sequence[tuple[int, Source, Path | None]]
    descriptors: Sequence[int] = ()


def main(descriptor: int) -> None:
    """Runs the worker whose socket has this descriptor; returns when its parent lets it go or is gone."""
    # Ctrl-C reaches every process of a terminal; the parent says what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        order = connection.recv()
        for number in (descriptor, *order.descriptors):
            os.set_inheritable(number, False)
        _Worker(connection, order).run()


class _Worker:
    def __init__(self, connection: Connection, order: Order) -> None:
        self.connection, self.order = connection, order
        self._sending = threading.Lock()
        self._released = threading.Event()
        self._wanted = False
        self._keys = {id(source): key for key, source, _ in order.shares}
        self._told: list[Any] = []
        self._next = 0.0

    def run(self) -> None:
        try:
            self.session = Session(self.order.job, [(source, output) for _, source, output in self.order.shares])
        except GstInferError as error:
            self._send("error", error)
            return
        # Whoever ends this process ends its streams.
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        threading.Thread(target=self._listen, name="gstinfer:worker", daemon=True).start()
        try:
            self.session.run(self._tick, self._probed)
        except GstInferError as error:
            self._send("error", error)
        else:
            self._tell("done")

    def _send(self, kind: str, value: Any) -> None:
        with self._sending, contextlib.suppress(OSError):
            self.connection.send((kind, value))

    def _tell(self, kind: str) -> None:
        """Sends what is known of all streams; never an older report after a newer one."""
        with self._sending, contextlib.suppress(OSError):
            branches = [branch for branch in list(self.session.branches) if id(branch.source) in self._keys]
            rows = {self._keys[id(branch.source)]: branch.report() for branch in branches}
            self.connection.send((kind, rows))

    def _probed(self, session: Session) -> bool:
        self._tell("probed")
        self._released.wait()
        return self._wanted

    def _tick(self, session: Session) -> None:
        states = [(branch.state, branch.error, len(branch.warnings)) for branch in session.branches]
        now = time.monotonic()
        if states != self._told or now >= self._next:
            self._told, self._next = states, now + REPORT_SECONDS
            self._tell("rows")

    def _stop(self) -> None:
        self.session.stop()
        self._released.set()

    def _listen(self) -> None:
        while True:
            try:
                number, command, arguments = self.connection.recv()
            except (EOFError, OSError):
                # The parent is gone.
                self._stop()
                time.sleep(ORPHAN_SECONDS)
                os._exit(1)
            if command == "begin":
                self._wanted = True
                self._released.set()
            elif command == "stop":
                self._stop()
            else:
                # A model may load for long; a stop shall not wait for it.
                threading.Thread(target=self._answer, args=(number, command, arguments), daemon=True).start()

    def _answer(self, number: int, command: str, arguments: tuple[Any, ...]) -> None:
        reason: GstInferError | None = None
        # The parent may ask for something as soon as it has let this process begin.
        self.session.begun.wait()
        try:
            if command == "add":
                key, source, output = arguments
                self._keys[id(source)] = key
                self.session.begin(source, output)
            elif command == "remove":
                self.session.remove_source(*arguments)
            elif command == "swap":
                self.session.swap(*arguments)
        except GstInferError as error:
            reason = error
        self._tell("rows")
        self._send("answer", (number, reason))
