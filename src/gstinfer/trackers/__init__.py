"""Trackers give objects an identity over time. One file each; found by name over the entry points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gstinfer.frames import Frame
from gstinfer.results import Detections

__all__ = ["Tracker"]


class Tracker(Protocol):
    """Keeps the tracks of any number of streams."""

    def update(self, detections: Sequence[Detections | None], frames: Sequence[Frame]) -> list[Detections]:
        """Objects with ``tracker_id``, one entry per frame of a batch, keyed by ``frame.stream_id``.

        Args:
            detections: One per frame; None where inference was skipped, so that tracks are only predicted.
            frames: The frames they belong to.
        """

    def reset(self, stream_id: str) -> None:
        """Forgets the tracks of one stream; its ids start again at 1."""
