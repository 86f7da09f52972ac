"""Several frames of one stream in flight: decoding, inference and drawing overlap without queues."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Any

from gstinfer.elements.compat import DROPPED, Gst
from gstinfer.frames import DropFrame, Flushed, FrameBatch

__all__ = ["FramesInFlight"]


class FramesInFlight:
    """Buffers whose results are awaited, in order. Streaming thread only.

    A buffer leaves when its own result is there and every earlier one has left, or when ``depth`` buffers wait.

    Args:
        element: The element; its host opens buffers and its stage submits them.
        depth: Most buffers that wait.
    """

    def __init__(self, element: Any, depth: int) -> None:
        self.element, self.depth = element, depth
        self._waiting: deque[tuple[Any, AbstractContextManager[FrameBatch], Any]] = deque()
        self._entering: tuple[AbstractContextManager[FrameBatch], Any] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, buffer: Any) -> None:
        """Opens a buffer and submits its frames; ``leave`` takes it over."""
        context = self.element.host.open(buffer)
        batch = context.__enter__()
        try:
            pending = self.element.stage.submit(batch)
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise
        self._entering = (context, pending)

    def leave(self, buffer: Any) -> tuple[Any, Any]:
        """Keeps the buffer just entered, if any, and gives the next one that may go: (flow, buffer or None)."""
        if buffer is not None and self._entering is not None:
            context, pending = self._entering
            self._entering = None
            # PyGObject gave the vfunc's wrapper a reference of its own when it outlived the call; with two references the
            # buffer would not be writable. One wrapper remains.
            context.buffer = buffer
            self._waiting.append((buffer, context, pending))
        if not self._waiting or (len(self._waiting) < self.depth and not self._waiting[0][2].done):
            return Gst.FlowReturn.OK, None
        return self._first()

    def _first(self) -> tuple[Any, Any]:
        buffer, context, pending = self._waiting.popleft()
        try:
            with _entered(context):
                pending.finish()
        except DropFrame:
            return DROPPED, None
        self.element.stage.wrote()
        return Gst.FlowReturn.OK, buffer

    def drain(self) -> None:
        """Finishes and pushes everything, before an event that must not overtake it."""
        pad = self.element.get_static_pad("src")
        while self._waiting:
            flow, buffer = self._first()
            if buffer is not None:
                flow = pad.push(buffer)
            if flow not in (Gst.FlowReturn.OK, DROPPED):
                self.clear()
                return

    def clear(self) -> None:
        """Lets go of everything without results."""
        if self._entering is not None:
            self._abandon(*self._entering)
            self._entering = None
        while self._waiting:
            _, context, pending = self._waiting.popleft()
            self._abandon(context, pending)

    def _abandon(self, context: AbstractContextManager[FrameBatch], pending: Any) -> None:
        # The model may still read the pixels: they stay mapped until its batch is out.
        pending.wait()
        flushed = Flushed()
        context.__exit__(Flushed, flushed, None)


class _entered:
    """A context that was entered before: leaving it is all that is left to do."""

    def __init__(self, context: AbstractContextManager[FrameBatch]) -> None:
        self.context = context

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> Any:
        return self.context.__exit__(*error)
