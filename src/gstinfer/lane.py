"""One stream's way into a runner."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from gstinfer.frames import Frame
from gstinfer.ticket import BufferJob, Ticket

__all__ = ["Lane"]


class Lane:
    """One user of a runner: usually one element on one stream.

    Args:
        runner: What it uses.
        depth: Most frames that the user has in flight.
    """

    def __init__(self, runner: Any, depth: int = 1) -> None:
        self.runner, self.depth = runner, depth
        self.active = False
        self.width = 1
        self.waiting: deque[tuple[Ticket, int]] = deque()

    def submit(self, frames: Sequence[Frame]) -> Ticket:
        """Queues frames; their pictures must stay valid until the ticket is done."""
        ticket: Ticket = self.runner._submit(self, frames)
        return ticket

    def submit_buffer(self, job: BufferJob) -> Ticket:
        """Queues a buffer of one frame, which the runner opens and closes on its own threads."""
        ticket: Ticket = self.runner._submit(self, (), job)
        return ticket

    def infer_buffer(self, job: BufferJob) -> Ticket:
        """As ``submit_buffer``, for who waits for the ticket at once: a runner of one lane works in the caller's thread."""
        ticket: Ticket = self.runner._submit(self, (), job, here=True)
        return ticket

    def idle(self) -> None:
        """The lane has nothing for now (EOS, gap, pause): others do not wait for it."""
        self.runner._release(self, flush=False)

    def flush(self) -> None:
        """Drops what waits: tickets raise ``Flushed``."""
        self.runner._release(self, flush=True)

    def close(self) -> None:
        """Flushes and leaves the runner."""
        self.runner._detach(self)
