"""What came out of a stream: frames, objects, how fast, how late."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

from gstinfer.elements.compat import Gst
from gstinfer.results import FrameResults

__all__ = ["Clockwork", "Counts"]

RECENT = 2.0
"""Seconds over which the present rate is taken."""


class Counts:
    """What came out of a stream.

    Attributes:
        frames: Frames behind the last analysing element.
        inferred: Those of them that a model saw.
        objects: Objects by label, over all frames.
        tracks: Ids seen.
        first: Monotonic time of the first frame, or None.
        last: Monotonic time of the last one, or None.
    """

    def __init__(self) -> None:
        self.frames = self.inferred = 0
        self.objects: Counter[str] = Counter()
        self.tracks: set[int] = set()
        self.first: float | None = None
        self.last: float | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=8)
        self._lock = threading.Lock()

    def add(self, results: FrameResults | None) -> None:
        """Counts one frame, with what is known about it."""
        with self._lock:
            self.last = time.monotonic()
            if self.first is None:
                self.first = self.last
            self.frames += 1
            if results is None or results.inferred is False:
                return
            self.inferred += 1
            found = results.detections
            if found is None:
                return
            self.objects.update(found.named(None).label or [])
            if found.tracker_id is not None:
                self.tracks.update(found.tracker_id.tolist())
                self.tracks.discard(-1)

    @property
    def fps(self) -> float:
        """Frames per second between the first and the last frame."""
        if self.first is None or self.last is None or self.last <= self.first:
            return 0.0
        return (self.frames - 1) / (self.last - self.first)

    def mark(self, now: float) -> None:
        """Remembers how many frames there were at a time; called now and then."""
        if not self._marks or now - self._marks[-1][0] >= RECENT / 4:
            self._marks.append((now, self.frames))

    @property
    def recent_fps(self) -> float:
        """Frames per second over the last seconds; 0 where none come any more."""
        inside = [mark for mark in self._marks if mark[0] >= self._marks[-1][0] - RECENT]
        if len(inside) < 2:
            return self.fps
        (t0, n0), (t1, n1) = inside[0], inside[-1]
        return (n1 - n0) / (t1 - t0)


class Clockwork:
    """Watches the timestamps on one pad: their order, and how old frames are there.

    Attributes:
        backward: Frames whose PTS did not grow within a segment.
    """

    def __init__(self) -> None:
        self.backward = 0
        self._segment: Any = None
        self._last: int | None = None
        self._ages: deque[int] = deque(maxlen=256)

    def event(self, event: Any) -> None:
        """An event on its way: a SEGMENT begins anew."""
        if event.type == Gst.EventType.SEGMENT:
            self._segment, self._last = event.parse_segment().copy(), None

    def order(self, pts: int) -> bool:
        """Whether a frame's PTS is later than the one before; counted where it is not."""
        if pts == Gst.CLOCK_TIME_NONE:
            return True
        good = self._last is None or pts > self._last
        self.backward += not good
        self._last = pts
        return good

    def age(self, pipeline: Any, pts: int) -> None:
        """Notes how long ago a frame was at its source, by the pipeline's clock."""
        clock = pipeline.get_clock()
        if clock is None or self._segment is None or pts == Gst.CLOCK_TIME_NONE:
            return
        running = self._segment.to_running_time(Gst.Format.TIME, pts)
        if running != Gst.CLOCK_TIME_NONE:
            self._ages.append(clock.get_time() - pipeline.get_base_time() - running)

    def lag(self, share: float = 0.5) -> float | None:
        """Seconds that frames are old, the given quantile of the last 256; None where nothing is known."""
        ages = sorted(self._ages)
        return ages[min(len(ages) - 1, int(share * len(ages)))] / 1e9 if ages else None
