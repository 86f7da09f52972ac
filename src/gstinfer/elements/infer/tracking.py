"""A tracker inside pyinfer: one step over the whole batch instead of one per stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gstinfer.elements.track.stage import TrackSettings, TrackStage
from gstinfer.frames import Frame
from gstinfer.results import Detections, Result

__all__ = ["BatchTracking"]


class BatchTracking:
    """Gives the detections of a runner's batches their ids; all users of the runner share it. Any thread.

    Args:
        tracker: Its registered name.
        arguments: Its settings, ``key=value,key=value``.
    """

    def __init__(self, tracker: str, arguments: str) -> None:
        self._stage = TrackStage(TrackSettings(tracker=tracker, tracker_args=arguments))
        self._stage.start()

    def __call__(self, frames: Sequence[Frame], results: list[tuple[Result, ...]]) -> list[tuple[Result, ...]]:
        """The results of a batch with ``tracker_id`` on their detections; other kinds as they are."""
        places = [
            next((i for i, part in enumerate(parts) if isinstance(part, Detections)), None) for parts in results
        ]
        # A frame on which nothing was found is a miss to its tracks; one with another kind of result says nothing.
        seen: list[Any] = [
            parts[place] if place is not None else Detections.empty()
            for parts, place in zip(results, places)
            if place is not None or not parts
        ]
        told = [frame for frame, parts, place in zip(frames, results, places) if place is not None or not parts]
        tracked = iter(self._stage.track(seen, told))
        return [
            _put(parts, place, next(tracked)) if place is not None or not parts else parts
            for parts, place in zip(results, places)
        ]

    def skipped(self, frames: Sequence[Frame]) -> None:
        """Puts the tracks' predictions on frames that were not inferred."""
        for frame, predicted in zip(frames, self._stage.track([None] * len(frames), frames)):
            if len(predicted):
                frame.results.add(predicted)

    def reset(self, stream_id: str) -> None:
        self._stage.reset(stream_id)


def _put(parts: tuple[Result, ...], place: int | None, tracked: Detections) -> tuple[Result, ...]:
    return (tracked,) if place is None else (*parts[:place], tracked, *parts[place + 1 :])
