"""Whether a frame's turn has passed: how far the pipeline's clock is ahead of it."""

from __future__ import annotations

from typing import Any

from gstinfer.elements.compat import Gst

__all__ = ["Lateness"]


class Lateness:
    """Compares frames with the clock of a live pipeline.

    A live source's frames arrive at their running time plus the latency that upstream reports. One that arrives more than a
    frame period after that has waited behind others.

    Args:
        element: The element whose sink pad is asked.
    """

    def __init__(self, element: Any) -> None:
        self.element = element
        self.segment: Any = None
        self.live = False
        self.upstream = 0
        self._asked = False
        self._last: int | None = None
        self._period = 0

    def segment_event(self, event: Any) -> None:
        """A SEGMENT event: running times are counted anew."""
        self.segment = event.parse_segment().copy()
        self._asked, self._last = False, None

    def _ask(self) -> None:
        query = Gst.Query.new_latency()
        self._asked = True
        if self.element.get_static_pad("sink").peer_query(query):
            self.live, minimum, _ = query.parse_latency()
            self.upstream = minimum if minimum != Gst.CLOCK_TIME_NONE else 0

    def late(self, pts: int | None) -> bool:
        """Whether a frame of a live source waited for more than a frame period. Streaming thread."""
        if not self._asked:
            self._ask()
        if not self.live or pts is None or self.segment is None:
            return False
        if self._last is not None and pts > self._last:
            self._period = pts - self._last if not self._period else (7 * self._period + pts - self._last) // 8
        self._last = pts
        clock = self.element.get_clock()
        running = self.segment.to_running_time(Gst.Format.TIME, pts)
        if clock is None or running == Gst.CLOCK_TIME_NONE:
            return False
        now = clock.get_time() - self.element.get_base_time()
        return now - running - self.upstream > max(self._period, Gst.SECOND // 100)
