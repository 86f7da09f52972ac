"""Draws on pictures in CUDA memory: one upload of what is to be drawn, and one launch a picture.

The table (``cuda_table``) goes from pinned memory to the GPU on a stream of this module's own, so that drawing does not
queue behind a network on the default stream. What wrote the pixels must have finished, as a host's planes guarantee; the
planes keep an event of the drawing, and the host waits for it before the buffer goes on. torch owns memory, stream and
events, CuPy where torch is missing.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import MissingDependencyError
from gstinfer.image import Image
from gstinfer.overlay.cuda_kernels import CUDA_SOURCE, triton_kernel
from gstinfer.overlay.cuda_table import Drawing, head_of
from gstinfer.preprocess.cuda import gpu_torch
from gstinfer.preprocess.triton_launch import TritonLaunch

__all__ = ["CudaEngine", "CupyBackend", "TorchBackend", "engine"]

SLOTS = 4
"""Tables in the ring: pictures whose drawing may be under way at once."""
SMALLEST = 1 << 18
"""Bytes of a table at first."""

BLOCK = 128, 8
"""Samples and rows of one Triton program."""


class Backend(Protocol):
    """The library that owns memory, stream and events."""

    def slot(self, size: int) -> Slot:
        """A table of ``size`` bytes, a multiple of 8."""

    def run(self, slot: Slot, size: int, samples: int, height: int, planes: int) -> Any:
        """Uploads the first bytes of a table and launches; returns an event after both, with ``synchronize()``."""


class Slot:
    """One table: pinned host memory, seen as bytes, its device copy, and the event of the launch that read it last."""

    __slots__ = ("device", "event", "host", "table")

    def __init__(self, host: Any, table: NDArray[np.uint8], device: Any) -> None:
        self.host, self.table, self.device, self.event = host, table, device, None


class TorchBackend:
    """torch's memory, and the kernel in Triton where it is installed, else through CuPy.

    Raises:
        ImportError: torch is not installed.
        ConfigError: torch sees no GPU.
    """

    def __init__(self, index: int) -> None:
        self.torch, self.index = gpu_torch(), index
        self.stream = self.torch.cuda.Stream(index, priority=-1)
        try:
            self.kernel: TritonLaunch | None = TritonLaunch(triton_kernel())
        except ImportError:
            self.kernel = None
            self.cupy = CupyBackend(index)

    def slot(self, size: int) -> Slot:
        host = self.torch.empty(size // 8, dtype=self.torch.int64, pin_memory=True)
        # On the stream that uses it, so that torch gives it to nobody else too early.
        with self.torch.cuda.stream(self.stream):
            device = self.torch.empty(size // 8, dtype=self.torch.int64, device=f"cuda:{self.index}")
        return Slot(host, host.numpy().view(np.uint8), device)

    def run(self, slot: Slot, size: int, samples: int, height: int, planes: int) -> Any:
        words = -(-size // 8)
        with self.torch.cuda.stream(self.stream):
            slot.device[:words].copy_(slot.host[:words], non_blocking=True)
            if self.kernel is None:
                self.cupy.launch(slot.device.data_ptr(), samples, height, planes, self.stream.cuda_stream)
            else:
                grid = -(-samples // BLOCK[0]), -(-height // BLOCK[1]), planes
                self.kernel(grid, (slot.device,), BLOCK, self.stream.cuda_stream)
            event = self.torch.cuda.Event()
            event.record(self.stream)
        return event


class CupyBackend:
    """CuPy's memory, and the kernel in CUDA C compiled by NVRTC.

    Raises:
        MissingDependencyError: CuPy is not installed.
    """

    def __init__(self, index: int) -> None:
        try:
            import cupy  # type: ignore[import-not-found]
        except ImportError as error:
            raise MissingDependencyError("torch", extra="torch", purpose="drawing in CUDA memory") from error
        self.cupy, self.index = cupy, index
        self.kernel = cupy.RawKernel(CUDA_SOURCE, "draw")
        with cupy.cuda.Device(index):
            self.stream = cupy.cuda.Stream(non_blocking=True)

    def launch(self, table: int, samples: int, height: int, planes: int, stream: int) -> None:
        """Launches on a raw stream handle."""
        grid = -(-samples // 64), -(-height // 4), planes
        with self.cupy.cuda.Device(self.index), self.cupy.cuda.ExternalStream(stream, self.index):
            self.kernel(grid, (64, 4, 1), (np.uint64(table),))

    def slot(self, size: int) -> Slot:
        import cupyx  # type: ignore[import-not-found]

        with self.cupy.cuda.Device(self.index), self.stream:
            host = cupyx.empty_pinned(size, np.uint8)
            return Slot(host, host, self.cupy.empty(size, np.uint8))

    def run(self, slot: Slot, size: int, samples: int, height: int, planes: int) -> Any:
        with self.cupy.cuda.Device(self.index), self.stream:
            slot.device[:size].set(slot.host[:size], stream=self.stream)
            self.launch(slot.device.data.ptr, samples, height, planes, self.stream.ptr)
            event = self.cupy.cuda.Event(disable_timing=True)
            event.record(self.stream)
        return event


class CudaEngine:
    """Draws on one GPU. Safe from several threads."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._slots: list[Slot] = []
        self._turn = 0
        self._lock = threading.Lock()

    def draw(self, image: Image, drawing: Drawing) -> None:
        """Starts a drawing; the image's first plane keeps its event (``keep_until``), without one this waits.

        Raises:
            ConfigError: A format that is not drawn on by the kernel.
        """
        head, size = head_of(image), drawing.bytes
        samples = max(math.prod(shape[1:]) for shape in image.layout.plane_shapes(image.width, image.height))
        with self._lock:
            slot = self._free(size)
            drawing.pack(head, slot.table)
            event = slot.event = self.backend.run(slot, size, samples, image.height, len(image.planes))
        keep = getattr(image.planes[0], "keep_until", None)
        if keep is None:
            event.synchronize()
        else:
            keep(event)

    def _free(self, size: int) -> Slot:
        if not self._slots:
            self._slots = [self.backend.slot(SMALLEST) for _ in range(SLOTS)]
        self._turn = (self._turn + 1) % len(self._slots)
        slot = self._slots[self._turn]
        if slot.event is not None:
            slot.event.synchronize()
        if len(slot.table) < size:
            slot = self._slots[self._turn] = self.backend.slot(1 << (size - 1).bit_length())
        return slot


@lru_cache(maxsize=64)
def engine(index: int) -> CudaEngine:
    """The engine of GPU ``index``.

    Raises:
        ConfigError: torch sees no GPU.
        MissingDependencyError: Neither torch nor CuPy is installed.
    """
    try:
        return CudaEngine(TorchBackend(index))
    except ImportError:
        return CudaEngine(CupyBackend(index))
