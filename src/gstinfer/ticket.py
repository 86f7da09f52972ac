"""What a streaming thread waits for: its frames on their way through a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from gstinfer.frames import Frame
from gstinfer.results import Result

__all__ = ["Awaited", "BufferJob", "Ticket", "release_in_turn"]


class BufferJob(Protocol):
    """A buffer of one frame that is opened when its batch begins and closed with its results."""

    def open(self) -> tuple[Frame, ...]:
        """The frame. Worker thread."""

    def close(self, results: list[tuple[Result, ...]], model: str) -> None:
        """Takes the frame's results and the spec of the model that gave them. Not called when the batch failed."""


class Ticket:
    """Frames of one lane on their way through the model."""

    __slots__ = (
        "_awaited", "_done", "_next", "error", "frames", "job", "lane", "model", "pending", "results", "submitted", "waited",
    )  # fmt: skip

    def __init__(self, lane: Any, frames: Sequence[Frame], job: BufferJob | None = None) -> None:
        self.lane, self.frames, self.job = lane, tuple(frames), job
        self.pending = len(self.frames) if job is None else 1
        self.results: list[tuple[Result, ...]] = [()] * self.pending
        self.error: BaseException | None = None
        self.model = ""
        self.submitted = time.monotonic()
        self.waited = 0.0
        self._awaited = False
        self._next: Ticket | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def done(self) -> bool:
        return self.pending <= 0

    def result(self) -> list[tuple[Result, ...]]:
        """Waits, then gives one tuple of results per frame.

        Raises:
            Flushed: The lane was flushed or detached.
            ModelError: The model failed; all frames of the batch get the same error.
        """
        self.wait()
        if self.error is not None:
            raise self.error
        return self.results

    def wait(self) -> None:
        """Waits until the model no longer reads the frames' pixels."""
        self._awaited = True
        # The lock is taken and given back, so that a second reader passes as well.
        with self._done:
            after, self._next = self._next, None
        if after is not None:
            after._done.release()

    def _deliver(self, index: int, result: tuple[Result, ...]) -> bool:
        """Takes a frame's results; True when it was the last, and ``release_in_turn`` is to wake whoever waits."""
        self.results[index] = result
        self.pending -= 1
        return self.pending == 0

    def _fail(self, error: BaseException, count: int = 1) -> None:
        """Some frames will have no result; the ticket is done when none is on its way."""
        self.error = self.error or error
        self.pending -= count
        if self.pending == 0:
            self._done.release()


class Awaited:
    """Work whose ``ticket`` is waited for; None where nothing is."""

    __slots__ = ("ticket",)

    ticket: Ticket | None

    @property
    def done(self) -> bool:
        return self.ticket is None or self.ticket.done

    def wait(self) -> None:
        """Waits until the model no longer reads the pixels."""
        if self.ticket is not None:
            self.ticket.wait()


def release_in_turn(tickets: Sequence[Ticket]) -> None:
    """Wakes whoever waits for these tickets, each by the one before: all at once would fight for the interpreter's lock,
    and each of them go back to sleep until it is free.
    """
    # Nobody wakes up from a ticket that is not waited for yet, so it can wake nobody.
    awaited: list[Ticket] = []
    others: list[Ticket] = []
    for ticket in tickets:
        (awaited if ticket._awaited else others).append(ticket)
    for ticket, after in pairwise(awaited):
        ticket._next = after
    for ticket in (*others, *awaited[:1]):
        ticket._done.release()
