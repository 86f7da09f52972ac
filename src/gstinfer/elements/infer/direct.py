"""Buffers of one frame opened, annotated and written on the runner's threads, a whole batch at a time.

A streaming thread only hands its buffer over and waits. With many streams that matters: Python code that runs once in a thread
that has just woken up costs several times what it costs in a loop, and every streaming thread has to get the interpreter's lock
for it.
"""

from __future__ import annotations

import time
from typing import Any

from gstinfer.elements.infer.stage import InferStage
from gstinfer.errors import ModelError
from gstinfer.frames import DropFrame, Flushed, Frame, FrameBatch
from gstinfer.hosts import Host
from gstinfer.results import Result
from gstinfer.ticket import Awaited

__all__ = ["Handover", "can_hand_over", "hand_over"]


def can_hand_over(stage: InferStage, host: Host) -> bool:
    """Whether a whole buffer may go to the runner: one frame a buffer, and nothing of the user's sees it before it leaves."""
    return type(stage) is InferStage and stage.lane is not None and host.single and stage.plain


def hand_over(stage: InferStage, host: Host, buffer: Any, pts: int | None, *, settled: bool = True) -> Handover:
    """Gives a buffer to the runner; its frame is finished by ``finish``. Streaming thread.

    Args:
        stage: Of the element.
        host: Of the pad.
        buffer: A ``Gst.Buffer``.
        pts: Its time, ns.
        settled: See ``Handover``.

    Raises:
        Flushed, DropFrame: The lane was flushed, or a late frame is to be dropped.
    """
    job = Handover(stage, host.open(buffer), settled)
    if stage.skips(pts, 1):
        stage.pass_on(job.open())
        job.leave()
    else:
        assert stage.lane is not None
        job.ticket = stage.lane.infer_buffer(job) if settled else stage.lane.submit_buffer(job)
    return job


class Handover(Awaited):
    """One buffer on its way through the runner.

    Args:
        stage: Of the element.
        context: The buffer as the host opens it.
        settled: Whether nobody else is going to take or leave a reference to the buffer, so that it may be written on any
            thread. Where it is not so when the results come, they are written by ``finish``.

    Attributes:
        ticket: What is waited for; None where nothing is inferred.
    """

    __slots__ = ("_batch", "context", "settled", "stage")

    def __init__(self, stage: InferStage, context: Any, settled: bool) -> None:
        self.stage, self.context, self.settled = stage, context, settled
        self.ticket = None
        self._batch: FrameBatch | None = None

    def open(self) -> tuple[Frame, ...]:
        """The buffer's frame. The runner's worker."""
        self._batch = self.context.__enter__()
        return self._batch.frames

    def close(self, results: list[tuple[Result, ...]], model: str) -> None:
        """Puts the results on the frame and writes them. The runner's finishing thread."""
        assert self._batch is not None
        try:
            self.stage.annotate(self._batch, results, model)
        except BaseException as error:
            self.leave(error)
            raise
        if self.settled:
            self.leave()

    def leave(self, error: BaseException | None = None) -> None:
        """Closes the buffer, once; with an error nothing is written."""
        batch, self._batch = self._batch, None
        if batch is not None:
            began = time.monotonic()
            self.context.__exit__(None if error is None else type(error), error, None)
            self.stage.write_seconds += time.monotonic() - began

    def finish(self) -> Any:
        """Waits until the results are on the buffer; where the model failed, the stage's policy decides. Streaming thread.

        Returns:
            The buffer, which nothing here knows any more: the runner's thread has this object until its next batch, and a
            buffer that is known there too is not writable for the elements behind.

        Raises:
            Flushed, ModelError, DropFrame, HostError: As ``InferStage.process`` inside ``host.open``.
        """
        # The ticket knows this object: as long as both knew each other, only a collection would let go of the buffer.
        ticket, self.ticket = self.ticket, None
        try:
            if ticket is not None:
                ticket.result()
        except ModelError as error:
            self._failed(error)
        self.leave()
        buffer, self.context.buffer = self.context.buffer, None
        return buffer

    def _failed(self, error: ModelError) -> None:
        batch = self._batch
        if batch is None:
            raise error
        try:
            self.stage.failed(batch, error)
        except (ModelError, DropFrame, Flushed) as outcome:
            self.leave(outcome)
            raise

    def abandon(self) -> None:
        """Closes the buffer without results, when the model no longer reads its pixels."""
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.wait()
        self.leave(Flushed())
        self.context.buffer = None
