"""Frames in system memory, read in place from the raw formats that models use."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from gstinfer.frames import FrameBatch
from gstinfer.hosts import caps_of
from gstinfer.hosts.frame import BufferFrame
from gstinfer.hosts.gstbuffer import Mapping, capture_time, plane_views, pts, video_meta
from gstinfer.hosts.metas import MetaCodec
from gstinfer.hosts.video import VideoFormat
from gstinfer.image import Image

if TYPE_CHECKING:
    from gstinfer.hosts import HostStream

__all__ = ["SystemHost"]


class SystemHost:
    """Opens buffers in system memory.

    Args:
        caps: Fixed ``Gst.Caps`` of raw video.
        stream: Facts about the pad's stream.
        write_meta: ``"auto"``, ``"carrier"``, ``"analytics"`` or ``"roi"``, see ``metas.MetaCodec``.

    Raises:
        ConfigError: A format that is not read in place, or metas that this GStreamer does not have.
    """

    CAPS = caps_of("system")
    """What an element offers on its pads for this host."""

    passthrough = False
    single = True

    def __init__(self, caps: Any, stream: HostStream, *, write_meta: str = "auto") -> None:
        self.format = VideoFormat.of(caps)
        self.metas = MetaCodec(write_meta)
        self.stream = stream

    def open(self, buffer: Any, *, write: bool = False) -> _Opened:
        """The buffer's one frame, see ``Host.open``."""
        return _Opened(self, buffer, write)

    def close(self) -> None:
        """Holds nothing between buffers."""


class _Opened:
    """One buffer while a stage works on it."""

    __slots__ = ("buffer", "frame", "host", "write")

    def __init__(self, host: SystemHost, buffer: Any, write: bool) -> None:
        self.host, self.buffer, self.write = host, buffer, write

    def __enter__(self) -> FrameBatch:
        host, buffer = self.host, self.buffer
        video, stream, meta = host.format, host.stream, video_meta(buffer)
        offsets, strides = (video.offsets, video.strides) if meta is None else (meta.offset, meta.stride)
        mapping = Mapping(buffer, write=self.write)
        planes = plane_views(mapping, video.name, video.width, video.height, offsets, strides)
        self.frame = BufferFrame(
            Image(video.name, planes, video.width, video.height, video.color),
            lambda: host.metas.read(self.buffer, video.size, video.pixel_aspect),
            stream_id=stream.stream_id,
            pts=pts(buffer),
            sequence=stream.sequence,
            time=capture_time(buffer),
            source=stream.source,
        )
        stream.sequence += 1
        return FrameBatch((self.frame,))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame, video = self.frame, self.host.format
        frame.close()
        if kind is None and frame.changed:
            self.host.metas.write(self.buffer, frame.results, video.size, video.pixel_aspect)
