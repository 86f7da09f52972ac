"""A buffer of one frame while a stage works on it: the same on system and CUDA memory but for the pixels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

from gstinfer.frames import FrameBatch
from gstinfer.hosts.frame import BufferFrame
from gstinfer.hosts.gstbuffer import capture_time, pts, video_meta
from gstinfer.image import Image

__all__ = ["OpenedBuffer"]


class OpenedBuffer(ABC):
    """What ``Host.open`` gives for one frame a buffer.

    Args:
        host: Has ``format``, ``stream`` and ``metas``.
        buffer: A ``Gst.Buffer``. Whoever keeps the opened buffer may put another wrapper of the same one in its place, so
            nothing else here holds it: with a second reference it would not be writable.
        write: Whether pixels will be changed.
    """

    __slots__ = ("buffer", "frame", "host", "sequence", "write")

    def __init__(self, host: Any, buffer: Any, write: bool) -> None:
        self.host, self.buffer, self.write = host, buffer, write
        # Counted here, in the streaming thread: buffers may be entered later, on others and not in order.
        self.sequence = host.stream.sequence
        host.stream.sequence += 1

    @abstractmethod
    def image(self, offsets: Any, strides: Any) -> Image:
        """Maps the buffer; its pixels with planes at these offsets and strides."""

    @abstractmethod
    def release(self) -> None:
        """Pixels are needed no more, and the results are about to be written."""

    def __enter__(self) -> FrameBatch:
        host, video, stream, meta = self.host, self.host.format, self.host.stream, video_meta(self.buffer)
        offsets, strides = (video.offsets, video.strides) if meta is None else (meta.offset, meta.stride)
        self.frame = BufferFrame(
            self.image(offsets, strides),
            lambda: host.metas.read(self.buffer, video.size, video.pixel_aspect),
            stream_id=stream.stream_id,
            pts=pts(self.buffer),
            sequence=self.sequence,
            time=capture_time(self.buffer),
            source=stream.source,
        )
        return FrameBatch((self.frame,))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame, video = self.frame, self.host.format
        frame.close()
        self.release()
        if kind is not None:
            return
        if frame.changed:
            self.host.metas.write(self.buffer, frame.results, video.size, video.pixel_aspect)
        if (tally := getattr(self.host.stream, "tally", None)) is not None:
            tally(frame)
