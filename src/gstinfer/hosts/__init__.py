"""The only code that knows where pixels live and how metadata is spelled."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from gstinfer.frames import FrameBatch
from gstinfer.results import FrameResults

__all__ = ["CAPS", "Host", "HostStream", "caps_of", "read", "select"]


class HostStream(Protocol):
    """What a host learns from a pad, and what it needs to open that pad's buffers. The element keeps it up to date."""

    stream_id: str
    source: str
    component_id: int


class Host(Protocol):
    """Opens the buffers of one pad under fixed caps."""

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
        from gstinfer.hosts.deepstream import DeepStreamHost

        return DeepStreamHost(caps, stream, **options)
    if memory is not None and memory.contains("memory:CUDAMemory"):
        from gstinfer.hosts.cuda import CudaHost

        return CudaHost(caps, stream, **options)
    from gstinfer.hosts.system import SystemHost

    return SystemHost(caps, stream, **options)


def read(buffer: Any) -> FrameResults | None:
    """What our elements wrote on a buffer, in pixels of the frame that the buffer holds now; None where nothing is."""
    from gstinfer.hosts.metas import carrier

    return carrier.read(buffer)


SYSTEM_FORMATS = "{ RGB, BGR, RGBA, BGRA, RGBx, BGRx, NV12, I420, YV12, GRAY8 }"
CUDA_FORMATS = "{ NV12, P010_10LE, RGBA, BGRA, RGBx, BGRx, RGB, BGR }"
NVMM_FORMATS = "{ NV12, RGBA, RGB }"
RANGES = "width=[1,2147483647], height=[1,2147483647], framerate=[0/1,2147483647/1]"
CAPS = {
    "system": f"video/x-raw, format={SYSTEM_FORMATS}, {RANGES}",
    "cuda": f"video/x-raw(memory:CUDAMemory), format={CUDA_FORMATS}, {RANGES}",
    "deepstream": f"video/x-raw(memory:NVMM), format={NVMM_FORMATS}, {RANGES}",
}
"""Host -> the caps it takes."""


def caps_of(*hosts: str) -> str:
    """Caps string of several hosts, in order of preference."""
    return "; ".join(CAPS[host] for host in hosts)
