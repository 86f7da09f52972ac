"""Whether a frame's turn has passed: how far the pipeline's clock is ahead of it, and what latency the element reports."""

from __future__ import annotations

from typing import Any

from gstinfer.elements.compat import Gst

__all__ = ["Lateness"]


class Lateness:
    """Compares frames with the clock of a live pipeline.

    A live source's frames arrive at their running time plus the latency that upstream reports. One that could not leave before
    its time at the sink is late, unless nothing was inferred for as long as an inference takes: a sink in the same thread
    holds each frame back for the whole latency, so that no frame would ever be early enough. Streaming thread only.

    Args:
        element: The element whose sink pad is asked.

    Attributes:
        lag: Seconds that the last frame of a live source was old when its turn came, or None.
    """

    def __init__(self, element: Any) -> None:
        self.element = element
        self.segment: Any = None
        self.live = False
        self.upstream = 0
        self.latency = 0
        self.lag: float | None = None
        self._asked = False
        self._last: int | None = None
        self._period = 0
        self._cost = 0
        self._ended = 0
        self._skipping = False

    def segment_event(self, event: Any) -> None:
        """A SEGMENT event: running times are counted anew."""
        self.segment = event.parse_segment().copy()
        self._asked, self._last = False, None

    def late(self, pts: int | None) -> bool:
        """Whether the turn of a live source's frame has passed."""
        if not self._asked:
            self._ask()
        self._skipping = False
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
        self.lag = (now - running) / Gst.SECOND
        lateness = now - running - self.upstream
        period = max(self._period, Gst.SECOND // 100)
        starved = lateness <= self.latency + period and Gst.util_get_timestamp() - self._ended >= self._cost
        self._skipping = lateness > max(period, self.latency - self._cost) and not starved
        return self._skipping

    def took(self, nanoseconds: int) -> None:
        """A frame stayed this long in the element; the latency of a live pipeline grows with the longest stay."""
        if not self.live or self._skipping:
            return
        self._ended = Gst.util_get_timestamp()
        self._cost = max(nanoseconds, (7 * self._cost + nanoseconds) // 8)
        if nanoseconds > self.latency:
            # A quarter more, so that small growth does not make the whole pipeline reconfigure again and again.
            self.latency = nanoseconds * 5 // 4
            self.element.post_message(Gst.Message.new_latency(self.element))

    def answer(self, query: Any) -> None:
        """Adds the element's own latency to a LATENCY query that upstream has answered. Any thread."""
        live, minimum, maximum = query.parse_latency()
        if live and self.latency:
            endless = maximum == Gst.CLOCK_TIME_NONE
            query.set_latency(live, minimum + self.latency, maximum if endless else maximum + self.latency)

    def _ask(self) -> None:
        query = Gst.Query.new_latency()
        self._asked = True
        if self.element.get_static_pad("sink").peer_query(query):
            self.live, minimum, _ = query.parse_latency()
            self.upstream = minimum if minimum != Gst.CLOCK_TIME_NONE else 0
