"""The only code that knows where pixels live and how metadata is spelled."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from gstinfer.errors import HostError
from gstinfer.frames import FrameBatch
from gstinfer.image import FORMATS
from gstinfer.results import FrameResults

__all__ = ["CAPS", "Host", "HostStream", "caps_of", "deepstream_installed", "read", "read_frames", "select"]


_RANGES = "width=[1,2147483647], height=[1,2147483647], framerate=[0/1,2147483647/1]"
CAPS = {
    "system": f"video/x-raw, format={{ {', '.join(FORMATS)} }}, {_RANGES}",
    "cuda": "video/x-raw(memory:CUDAMemory), "
    f"format={{ NV12, P010_10LE, RGBA, BGRA, RGBx, BGRx, RGB, BGR }}, {_RANGES}",
    "deepstream": f"video/x-raw(memory:NVMM), format={{ NV12, RGBA, RGB }}, {_RANGES}",
}
"""Caps by host: what its ``open`` takes."""


class HostStream(Protocol):
    """What a host needs to know of a pad's stream. The element keeps it up to date; hosts count ``sequence``.

    Attributes:
        stream_id: Which stream.
        source: Where it comes from, for people; may be empty.
        component_id: unique-id of the element.
        sequence: Number of the next frame; the element sets it to 0 when a stream starts.

    One with a ``tally`` that is not None has it called with each frame of a host that opens single frames, once its results
    are written.
    """

    stream_id: str
    source: str
    component_id: int
    sequence: int


class Host(Protocol):
    """Opens the buffers of one pad under fixed caps."""

    single: bool
    """Whether a buffer holds exactly one frame."""
    passthrough: bool
    """Whether the element must run in passthrough mode (DeepStream), see ``docs/architecture.md``."""

    def open(self, buffer: Any, *, write: bool = False) -> AbstractContextManager[FrameBatch]:
        """The buffer's frames, with the results that are on it already.

        Leaving the context cleanly writes ``frame.results`` of every frame whose results changed, once; on an exception
        nothing is written. Views are invalid after that.

        Args:
            buffer: A ``Gst.Buffer``.
            write: Whether pixels will be changed.

        Raises:
            HostError: The memory cannot be mapped or does not fit the caps.
        """

    def close(self) -> None:
        """Called when caps change or the element stops."""


def caps_of(*hosts: str) -> str:
    """The caps string that an element offers for hosts named ``"system"``, ``"cuda"`` or ``"deepstream"``, in order."""
    return "; ".join(CAPS[name] for name in hosts)


def select(caps: Any, stream: HostStream, **options: Any) -> Host:
    """The host for a pad's fixed caps, by their memory feature.

    Args:
        caps: Fixed ``Gst.Caps``.
        stream: Facts about the pad's stream.
        **options: Host options that the element's properties set, such as ``write_meta`` or ``device``.

    Raises:
        ConfigError: No host takes this memory, or not this format.
    """
    memory = caps.get_features(0)
    if memory is not None and memory.contains("memory:NVMM"):
        from gstinfer.hosts.deepstream import make_host

        return make_host(caps, stream, **options)
    if memory is not None and memory.contains("memory:CUDAMemory"):
        from gstinfer.hosts.cuda import CudaHost

        return CudaHost(caps, stream, **options)
    from gstinfer.hosts.system import SystemHost

    return SystemHost(caps, stream, **options)


def deepstream_installed() -> bool:
    """Whether DeepStream's libraries are in their folder or in this process."""
    from gstinfer.hosts.deepstream.libs import installed

    return installed()


def read_frames(buffer: Any) -> list[FrameResults]:
    """What is known about every frame of a buffer: those of a DeepStream batch in its order, else the one of ``read``.

    Args:
        buffer: A ``Gst.Buffer``, or a ``Gst.Sample``.

    Returns:
        Empty where nothing is.
    """
    frames = _deepstream_frames(buffer.get_buffer() if hasattr(buffer, "get_buffer") else buffer)
    if frames:
        return frames
    found = read(buffer)
    return [] if found is None else [found]


def _deepstream_frames(buffer: Any) -> list[FrameResults]:
    from gstinfer.hosts.deepstream.libs import loaded

    if not loaded():
        return []
    from gstinfer.hosts.deepstream.reader import read_batch

    return read_batch(buffer)


def read(buffer: Any, caps: Any = None) -> FrameResults | None:
    """What our elements wrote on a buffer, in pixels of the frame that the buffer holds now.

    Args:
        buffer: A ``Gst.Buffer``, or a ``Gst.Sample`` that brings its caps along.
        caps: The pad's fixed ``Gst.Caps`` where known: they tell a letterboxed frame from a stretched one.

    Returns:
        None where nothing is. Arrays are read-only. Boxes, points and masks are left out, with one warning, where the
        frame was cropped or turned since they were written.

    Raises:
        HostError: A DeepStream batch of several frames; ``read_frames`` reads those.
    """
    from gstinfer.hosts.metas import carrier
    from gstinfer.hosts.video import size_of

    if hasattr(buffer, "get_buffer"):
        buffer, caps = buffer.get_buffer(), caps or buffer.get_caps()
    found = carrier.read(buffer, *(size_of(caps) if caps is not None else ()))
    frames = _deepstream_frames(buffer) if found is None else []
    if len(frames) > 1:
        raise HostError(f"the buffer is a batch of {len(frames)} frames", hint="use gstinfer.read_frames(buffer)")
    return frames[0] if frames else found
