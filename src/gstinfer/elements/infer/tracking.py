"""A tracker inside pyinfer: one step over the whole batch instead of one per stream."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from threading import Lock
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
        self._names: dict[tuple[Hashable, str], str] = {}
        self._naming = Lock()

    def __call__(
        self, frames: Sequence[Frame], results: list[tuple[Result, ...]], lanes: Sequence[Hashable]
    ) -> list[tuple[Result, ...]]:
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
        told = [
            self._named(frame, lane)
            for frame, lane, parts, place in zip(frames, lanes, results, places)
            if place is not None or not parts
        ]
        tracked = iter(self._stage.track(seen, told))
        return [
            _put(parts, place, next(tracked)) if place is not None or not parts else parts
            for parts, place in zip(results, places)
        ]

    def skipped(self, frames: Sequence[Frame], lane: Hashable) -> None:
        """Puts the tracks' predictions on frames of one lane that were not inferred."""
        told = [self._named(frame, lane) for frame in frames]
        for frame, predicted in zip(frames, self._stage.track([None] * len(frames), told)):
            if len(predicted):
                frame.results.add(predicted)

    def reset(self, stream_id: str, lane: Hashable) -> None:
        name = self._names.get((lane, stream_id))
        if name is not None:
            self._stage.reset(name)

    def forget(self, lane: Hashable) -> None:
        """The lane is gone for good."""
        with self._naming:
            for key in [key for key in self._names if key[0] is lane]:
                self._stage.reset(self._names.pop(key))

    def _named(self, frame: Frame, lane: Hashable) -> Frame:
        """The frame under a name that no other lane's stream has: two elements may read the same file."""
        name = self._names.get((lane, frame.stream_id)) or self._choose(lane, frame.stream_id)
        if name == frame.stream_id:
            return frame
        frame = copy(frame)
        frame.stream_id = name
        return frame

    def _choose(self, lane: Hashable, stream_id: str) -> str:
        with self._naming:
            name, taken, number = stream_id, set(self._names.values()), 1
            while name in taken:
                number += 1
                name = f"{stream_id}#{number}"
            return self._names.setdefault((lane, stream_id), name)


def _put(parts: tuple[Result, ...], place: int | None, tracked: Detections) -> tuple[Result, ...]:
    return (tracked,) if place is None else (*parts[:place], tracked, *parts[place + 1 :])
