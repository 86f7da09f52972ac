"""Buffers of one frame opened, annotated and written on the runner's threads, a whole batch at a time.

A streaming thread only hands its buffer over and waits. With many streams that matters: Python code that runs once in a thread
that has just woken up costs several times what it costs in a loop, and every streaming thread has to get the interpreter's lock
for it.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from gstinfer.elements.infer.stage import InferStage
from gstinfer.errors import ModelError
from gstinfer.frames import DropFrame, Flushed, Frame, FrameBatch
from gstinfer.hosts import Host
from gstinfer.results import Result

__all__ = ["Handover", "can_hand_over", "hand_over"]


def can_hand_over(stage: InferStage, host: Host) -> bool:
    """Whether a whole buffer may go to the runner: one frame a buffer, and nothing of the user's sees it before it leaves."""
    return type(stage) is InferStage and stage.lane is not None and host.single and stage.plain


def hand_over(stage: InferStage, host: Host, buffer: Any, pts: int | None) -> None:
    """Infers a buffer's frame. Streaming thread.

    Raises:
        Flushed, ModelError, DropFrame, HostError: As ``InferStage.process`` inside ``host.open``.
    """
    job = Handover(stage, host.open(buffer))
    if stage.skips(pts, 1):
        stage.pass_on(job.open())
        job.leave()
        return
    assert stage.lane is not None
    try:
        stage.lane.submit_buffer(job).result()
    except ModelError as error:
        job.failed(error)


class Handover:
    """One buffer on its way through the runner."""

    __slots__ = ("_batch", "_context", "_stage")

    def __init__(self, stage: InferStage, context: AbstractContextManager[FrameBatch]) -> None:
        self._stage, self._context = stage, context
        self._batch: FrameBatch | None = None

    def open(self) -> tuple[Frame, ...]:
        """The buffer's frame. The runner's worker."""
        self._batch = self._context.__enter__()
        return self._batch.frames

    def close(self, results: list[tuple[Result, ...]], model: str) -> None:
        """Puts the results on the frame and writes them. The runner's finishing thread."""
        assert self._batch is not None
        try:
            self._stage.annotate(self._batch, results, model)
        except BaseException as error:
            self.leave(error)
            raise
        self.leave()

    def leave(self, error: BaseException | None = None) -> None:
        """Closes the buffer, once; with an error nothing is written."""
        batch, self._batch = self._batch, None
        if batch is not None:
            began = time.monotonic()
            self._context.__exit__(None if error is None else type(error), error, None)
            self._stage.write_seconds += time.monotonic() - began

    def failed(self, error: ModelError) -> None:
        """The model failed: what becomes of the frame is the stage's policy. Streaming thread."""
        batch = self._batch
        if batch is None:
            raise error
        try:
            self._stage.failed(batch, error)
        except (ModelError, DropFrame, Flushed) as outcome:
            self.leave(outcome)
            raise
        self.leave()
