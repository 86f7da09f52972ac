"""What a streaming thread waits for: its frames on their way through a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from gstinfer.frames import Frame
from gstinfer.results import Result

__all__ = ["BufferJob", "Ticket"]


class BufferJob(Protocol):
    """A buffer of one frame that is opened when its batch begins and closed with its results."""

    def open(self) -> tuple[Frame, ...]:
        """The frame. Worker thread."""

    def close(self, results: list[tuple[Result, ...]], model: str) -> None:
        """Takes the frame's results and the spec of the model that gave them. Not called when the batch failed."""


class Ticket:
    """Frames of one lane on their way through the model."""

    __slots__ = ("_done", "error", "frames", "job", "lane", "model", "pending", "results", "submitted", "waited")

    def __init__(self, lane: Any, frames: Sequence[Frame], job: BufferJob | None = None) -> None:
        self.lane, self.frames, self.job = lane, tuple(frames), job
        self.pending = len(self.frames) if job is None else 1
        self.results: list[tuple[Result, ...]] = [()] * self.pending
        self.error: BaseException | None = None
        self.model = ""
        self.submitted = time.monotonic()
        self.waited = 0.0
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
        with self._done:
            pass
        # The lock is taken and given back, so that a second reader passes as well.
        if self.error is not None:
            raise self.error
        return self.results

    def wait(self) -> None:
        """Waits until the model no longer reads the frames' pixels."""
        with self._done:
            pass

    def _deliver(self, index: int, result: tuple[Result, ...]) -> None:
        self.results[index] = result
        self.pending -= 1
        if self.pending == 0:
            self._done.release()

    def _fail(self, error: BaseException, count: int = 1) -> None:
        """Some frames will have no result; the ticket is done when none is on its way."""
        self.error = self.error or error
        self.pending -= count
        if self.pending == 0:
            self._done.release()
