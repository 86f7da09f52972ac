"""A stage works on a batch of frames in place; a chain of stages is a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from gstinfer.frames import FrameBatch

__all__ = ["Chain", "Stage"]


@runtime_checkable
class Stage(Protocol):
    """Work on frames: reads ``frame.image`` and ``frame.results``, changes ``frame.results`` or the pixels."""

    def start(self) -> None:
        """Called once before the first batch, READY to PAUSED. May raise any GstInferError."""

    def process(self, batch: FrameBatch) -> None:
        """Called for every batch on the streaming thread."""

    def reset(self, stream_id: str) -> None:
        """A discontinuity of a stream: flush, seek, new segment or its end."""

    def interrupt(self) -> None:
        """Releases a ``process`` that waits, from any thread; it raises ``frames.Flushed``."""

    def stop(self) -> None:
        """Called once after the last batch. Never raises for what ``start`` did not open."""


class Chain:
    """Several stages one after another."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)

    def start(self) -> None:
        started: list[Stage] = []
        try:
            for stage in self.stages:
                stage.start()
                started.append(stage)
        except BaseException:
            for stage in reversed(started):
                stage.stop()
            raise

    def process(self, batch: FrameBatch) -> None:
        for stage in self.stages:
            stage.process(batch)

    def reset(self, stream_id: str) -> None:
        for stage in self.stages:
            stage.reset(stream_id)

    def interrupt(self) -> None:
        for stage in self.stages:
            stage.interrupt()

    def stop(self) -> None:
        for stage in reversed(self.stages):
            stage.stop()
