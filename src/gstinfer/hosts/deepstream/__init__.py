"""DeepStream: batches of frames in NVMM memory, and NVIDIA's metadata read and written as nvinfer does."""

from __future__ import annotations

from gstinfer.hosts.deepstream.host import DeepStreamHost
from gstinfer.hosts.deepstream.reader import OBJECT, PARENT, read_batch

__all__ = ["OBJECT", "PARENT", "DeepStreamHost", "read_batch"]
