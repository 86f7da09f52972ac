"""Several frames of one stream in flight: decoding, inference and drawing overlap without queues."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any

from gstinfer.elements.compat import DROPPED, Gst
from gstinfer.elements.infer.direct import Handover, can_hand_over, hand_over
from gstinfer.frames import DropFrame, Flushed
from gstinfer.hosts.gstbuffer import pts

__all__ = ["FramesInFlight"]

_gst = ctypes.CDLL("libgstreamer-1.0.so.0")
_ref, _push = _gst.gst_mini_object_ref, _gst.gst_pad_push
_ref.argtypes, _ref.restype = [ctypes.c_void_p], ctypes.c_void_p
_push.argtypes, _push.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int


class FramesInFlight:
    """Buffers whose results are awaited, in order. Streaming thread only.

    A buffer leaves when its own result is there and every earlier one has left, or when ``depth`` buffers wait; the first of a
    stream at once.

    Args:
        element: The element; its host opens buffers and its stage submits them.
        depth: Most buffers that wait.
    """

    def __init__(self, element: Any, depth: int) -> None:
        self.element, self.depth = element, depth
        self._waiting: deque[Handover | _Opened] = deque()
        self._flowing = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unfinished(self) -> int:
        """How many of them the model is not through with."""
        return sum(not taken.done for taken in self._waiting)

    def cycle(self, buffer: Any) -> Any:
        """Takes a buffer in and sends on those that may go.

        Returns:
            OK where this very buffer may go at once; else DROPPED, which means to GStreamer that it is kept, or the flow of a
            push that failed.
        """
        waiting, stage, host = self._waiting, self.element.stage, self.element.host
        if waiting:
            # The vfunc that took it has returned: its wrapper holds the only reference now.
            waiting[-1].settled = True
        if can_hand_over(stage, host):
            taken: Handover | _Opened = hand_over(stage, host, buffer, pts(buffer), settled=False)
        else:
            taken = _Opened(stage, host.open(buffer))
        waiting.append(taken)
        while len(waiting) > 1 and (len(waiting) > self.depth or waiting[0].done):
            flow = self._send()
            if flow != Gst.FlowReturn.OK:
                return flow
        # Sinks wait for a first buffer each before they let any go: behind a tee it has to come without a second one.
        if len(waiting) == 1 and (taken.done or not self._flowing):
            waiting.clear()
            taken.finish()
            self._flowing = True
            return Gst.FlowReturn.OK
        return DROPPED

    def _send(self) -> Any:
        """Finishes the first buffer and pushes it."""
        first = self._waiting.popleft()
        try:
            buffer = first.finish()
        except DropFrame:
            return Gst.FlowReturn.OK
        pointer = hash(buffer)
        # PyGObject gave the wrapper a reference of its own when it outlived the vfunc. The push takes another, and the wrapper
        # goes first, so that elements behind find the buffer writable.
        _ref(pointer)
        del buffer
        return Gst.FlowReturn(_push(hash(self.element.srcpad), pointer))

    def catch_up(self) -> None:
        """Waits until the model is through with all that wait."""
        for taken in self._waiting:
            taken.wait()

    def drain(self) -> None:
        """Finishes and pushes everything, before an event that must not overtake it."""
        while self._waiting:
            if self._send() != Gst.FlowReturn.OK:
                self.clear()
                return

    def clear(self) -> None:
        """Lets go of everything without results."""
        self._flowing = False
        while self._waiting:
            self._waiting.popleft().abandon()


class _Opened:
    """A buffer that this thread opens and closes, as something of the user's sees its frames.

    Raises:
        Flushed, DropFrame: As ``InferStage.submit``.
    """

    __slots__ = ("_pending", "_stage", "context", "settled")

    def __init__(self, stage: Any, context: Any) -> None:
        self._stage, self.context, self.settled = stage, context, False
        batch = context.__enter__()
        try:
            self._pending = stage.submit(batch)
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise

    @property
    def done(self) -> bool:
        return bool(self._pending.done)

    def wait(self) -> None:
        """See ``Handover.wait``."""
        self._pending.wait()

    def finish(self) -> Any:
        """See ``Handover.finish``."""
        try:
            self._pending.finish()
        except BaseException as error:
            self.context.__exit__(type(error), error, error.__traceback__)
            raise
        self.context.__exit__(None, None, None)
        self._stage.wrote()
        buffer, self.context.buffer = self.context.buffer, None
        return buffer

    def abandon(self) -> None:
        """See ``Handover.abandon``."""
        # The model may still read the pixels: they stay mapped until its batch is out.
        self._pending.wait()
        flushed = Flushed()
        self.context.__exit__(Flushed, flushed, None)
