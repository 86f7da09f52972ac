"""DeepStream: batches of frames in NVMM memory, and NVIDIA's metadata read and written as nvinfer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gstinfer.hosts.deepstream.host import DeepStreamHost
from gstinfer.hosts.deepstream.reader import OBJECT, read_batch

if TYPE_CHECKING:
    from gstinfer.hosts import Host, HostStream

__all__ = ["OBJECT", "DeepStreamHost", "make_host", "read_batch"]


def make_host(caps: Any, stream: HostStream, *, access: str = "surface", **options: Any) -> Host:
    """The host for one way into a batch.

    Args:
        caps: Fixed ``Gst.Caps`` with the ``memory:NVMM`` feature.
        stream: Facts about the pad's stream.
        access: ``"surface"`` reads NvBufSurface and writes structs, ``"pyservicemaker"`` goes through NVIDIA's bindings.
        **options: See ``DeepStreamHost`` and ``ServiceMakerHost``.
    """
    if access == "pyservicemaker":
        from gstinfer.hosts.deepstream.pyservicemaker import ServiceMakerHost

        return ServiceMakerHost(caps, stream, **options)
    return DeepStreamHost(caps, stream, **options)
