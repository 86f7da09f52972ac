"""DeepStream: batches of frames in NVMM memory, and NVIDIA's metadata read and written as nvinfer does."""

from __future__ import annotations

from gstinfer.hosts.deepstream.host import DeepStreamHost
from gstinfer.hosts.deepstream.reader import OBJECT, read_batch

__all__ = ["OBJECT", "DeepStreamHost", "read_batch"]
