"""Several frames of one stream in flight: decoding, inference and drawing overlap without queues."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

from gstinfer.elements.compat import DROPPED, Gst
from gstinfer.frames import DropFrame, Flushed

__all__ = ["FramesInFlight"]

_gst = ctypes.CDLL("libgstreamer-1.0.so.0")
_ref, _push = _gst.gst_mini_object_ref, _gst.gst_pad_push
_ref.argtypes, _ref.restype = [ctypes.c_void_p], ctypes.c_void_p
_push.argtypes, _push.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int


class FramesInFlight:
    """Buffers whose results are awaited, in order. Streaming thread only.

    A buffer leaves when its own result is there and every earlier one has left, or when ``depth`` buffers wait.

    Args:
        element: The element; its host opens buffers and its stage submits them.
        depth: Most buffers that wait.
    """

    def __init__(self, element: Any, depth: int) -> None:
        self.element, self.depth = element, depth
        self._waiting: deque[tuple[Any, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def cycle(self, buffer: Any) -> Any:
        """Takes a buffer in and sends on those that may go.

        Returns:
            OK where this very buffer may go at once; else DROPPED, which means to GStreamer that it is kept, or the flow of a
            push that failed.
        """
        context = self.element.host.open(buffer)
        batch = context.__enter__()
        try:
            pending = self.element.stage.submit(batch)
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise
        self._waiting.append((context, pending))
        while len(self._waiting) > 1 and (len(self._waiting) > self.depth or self._waiting[0][1].done):
            flow = self._send()
            if flow != Gst.FlowReturn.OK:
                return flow
        if len(self._waiting) == 1 and pending.done:
            self._waiting.clear()
            self._finish(context, pending)
            return Gst.FlowReturn.OK
        return DROPPED

    def _finish(self, context: Any, pending: Any) -> None:
        with _entered(context):
            pending.finish()
        self.element.stage.wrote()

    def _send(self) -> Any:
        """Finishes the first buffer and pushes it."""
        context, pending = self._waiting.popleft()
        try:
            self._finish(context, pending)
        except DropFrame:
            return Gst.FlowReturn.OK
        pointer = hash(context.buffer)
        # PyGObject gave the wrapper a reference of its own when it outlived the vfunc. The push takes another, and the wrapper
        # goes first, so that elements behind find the buffer writable.
        _ref(pointer)
        context.buffer = None
        return Gst.FlowReturn(_push(hash(self.element.srcpad), pointer))

    def drain(self) -> None:
        """Finishes and pushes everything, before an event that must not overtake it."""
        while self._waiting:
            if self._send() != Gst.FlowReturn.OK:
                self.clear()
                return

    def clear(self) -> None:
        """Lets go of everything without results."""
        while self._waiting:
            self._abandon(*self._waiting.popleft())

    def _abandon(self, context: Any, pending: Any) -> None:
        # The model may still read the pixels: they stay mapped until its batch is out.
        pending.wait()
        flushed = Flushed()
        context.__exit__(Flushed, flushed, None)


class _entered:
    """A context that was entered before: leaving it is all that is left to do."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> Any:
        return self.context.__exit__(*error)
