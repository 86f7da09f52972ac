"""Frames in system memory, read in place from the raw formats that models use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gstinfer.hosts import caps_of
from gstinfer.hosts.gstbuffer import Mapping, plane_views
from gstinfer.hosts.metas import MetaCodec
from gstinfer.hosts.opened import OpenedBuffer
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


class _Opened(OpenedBuffer):
    """One buffer in system memory."""

    __slots__ = ()

    def image(self, offsets: Any, strides: Any) -> Image:
        video = self.host.format
        mapping = Mapping(self.buffer, write=self.write)
        planes = plane_views(mapping, video.name, video.width, video.height, offsets, strides)
        return Image(video.name, planes, video.width, video.height, video.color)

    def release(self) -> None:
        """The map ends with the last array made from it."""
