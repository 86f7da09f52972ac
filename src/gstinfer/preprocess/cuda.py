"""Pictures in GPU memory to network input: one launch for a batch of any sizes, formats and pitches.

The numbers of each picture travel as one row of a small table (``cuda_table``) in pinned memory, copied on the current
stream of torch (or CuPy, where torch is missing) ahead of the kernel. A ring of tables is reused; a slot waits for the
launch that read it last, so nothing is allocated per batch but the output, and that only where ``out`` is not given.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError, MissingDependencyError
from gstinfer.geometry import ImageTransform
from gstinfer.image import Image
from gstinfer.preprocess import Preprocessing
from gstinfer.preprocess.cuda_kernels import CUDA_SOURCE, triton_kernel
from gstinfer.preprocess.cuda_table import ROW, ROW_BYTES, Table
from gstinfer.preprocess.triton_launch import TritonLaunch
from gstinfer.unwinder import cxx_library

__all__ = ["gpu_torch", "prepare", "to_array", "to_tensor"]

SLOTS, ROWS = 8, 64
"""Tables in the ring, and rows in each at first."""

BLOCK = 128, 1, 4
"""Output pixels (x, y) of one step of a Triton program, and its steps down."""
WARPS = 2

C_TYPES = {"float32": "float", "float16": "__half", "uint8": "unsigned char", "int32": "int"}


class Backend(Protocol):
    """The library that owns arrays, streams and events."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any: ...

    def strides(self, array: Any) -> tuple[int, ...]:
        """In elements."""

    def slot(self, rows: int) -> _Slot: ...

    def upload(self, slot: _Slot, rows: int) -> None: ...

    def launch(self, slot: _Slot, out: Any, spec: Preprocessing, count: int, strides: tuple[int, ...]) -> None: ...

    def record(self) -> Any:
        """An event after all work given to the current stream so far."""

    def to_host(self, array: Any) -> NDArray[Any]: ...


def _integer(spec: Preprocessing) -> tuple[bool, bool]:
    """(whether values are rounded, whether they saturate to a byte)."""
    return spec.dtype in ("uint8", "int32"), spec.dtype == "uint8"


class _Slot:
    """One table: a pinned host copy seen as rows, its device copy, and the event of the launch that read it last."""

    def __init__(self, host: Any, rows: NDArray[np.void], device: Any) -> None:
        self.host, self.rows, self.device, self.event = host, rows, device, None
        self.paired = False
        self.parts: dict[int, tuple[Any, Any]] = {}


def gpu_torch() -> Any:
    """torch, where it sees a GPU.

    Raises:
        ImportError: It is not installed.
        ConfigError: It sees none.
    """
    with cxx_library():
        import torch

    if not torch.cuda.is_available():
        raise ConfigError("frames lie in CUDA memory but torch sees no GPU", hint="install a CUDA build of torch")
    return torch


class TorchBackend:
    """torch arrays, and the kernel in Triton where it is installed, else through CuPy."""

    def __init__(self, index: int) -> None:
        self.torch, self.index = gpu_torch(), index
        try:
            self.kernel: TritonLaunch | None = TritonLaunch(triton_kernel())
        except ImportError:
            self.kernel = None
            self.cupy = CupyBackend(index)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=f"cuda:{self.index}")

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(array.stride())

    def slot(self, rows: int) -> _Slot:
        host = self.torch.empty(rows * ROW_BYTES // 8, dtype=self.torch.int64, pin_memory=True)
        device = self.torch.empty(rows * ROW_BYTES // 8, dtype=self.torch.int64, device=f"cuda:{self.index}")
        return _Slot(host, host.numpy().view(ROW), device)

    def upload(self, slot: _Slot, rows: int) -> None:
        parts = slot.parts.get(rows)
        if parts is None:
            words = rows * ROW_BYTES // 8
            parts = slot.parts[rows] = slot.device[:words], slot.host[:words]
        parts[0].copy_(parts[1], non_blocking=True)

    def launch(self, slot: _Slot, out: Any, spec: Preprocessing, count: int, strides: tuple[int, ...]) -> None:
        width, height = spec.size
        if self.kernel is None:
            stream = self.torch.cuda.current_stream(self.index).cuda_stream
            self.cupy.run(slot.device.data_ptr(), out.data_ptr(), spec, count, strides, stream)
            return
        grid = (-(-width // BLOCK[0]), -(-height // (BLOCK[1] * BLOCK[2])), count)
        more = width, height, *strides, spec.channels, *_integer(spec), slot.paired, *BLOCK
        cuda = self.torch.cuda
        with nullcontext() if cuda.current_device() == self.index else cuda.device(self.index):
            stream = cuda.current_stream(self.index).cuda_stream
            self.kernel(grid, (slot.device, out), more, stream, num_warps=WARPS)

    def record(self) -> Any:
        event = self.torch.cuda.Event()
        event.record(self.torch.cuda.current_stream(self.index))
        return event

    def to_host(self, array: Any) -> NDArray[Any]:
        result: NDArray[Any] = array.cpu().numpy()
        return result


class CupyBackend:
    """CuPy arrays, and the kernel in CUDA C compiled by NVRTC."""

    def __init__(self, index: int) -> None:
        try:
            import cupy  # type: ignore[import-not-found]
        except ImportError as error:
            raise MissingDependencyError("torch", extra="torch", purpose="frames in CUDA memory") from error
        self.cupy, self.index = cupy, index

    @lru_cache(maxsize=32)  # noqa: B019 - a backend lives as long as the process
    def _kernel(self, dtype: str, channels: int) -> Any:
        head = "#include <cuda_fp16.h>\n" if dtype == "float16" else ""
        options = (
            f"-DOUT={C_TYPES[dtype]}",
            f"-DCHANNELS={channels}",
            f"-DINTEGER={int(dtype in ('uint8', 'int32'))}",
            f"-DBYTE={int(dtype == 'uint8')}",
        )
        return self.cupy.RawKernel(head + CUDA_SOURCE, "fused", options)

    def run(
        self, table: int, out: int, spec: Preprocessing, count: int, strides: tuple[int, ...], stream: int
    ) -> None:
        """Launches on a raw stream handle; pointers as integers."""
        width, height = spec.size
        kernel = self._kernel(spec.dtype, spec.channels)
        arguments = (np.uint64(table), np.uint64(out), np.int32(width), np.int32(height), *map(np.int64, strides))
        with self.cupy.cuda.Device(self.index), self.cupy.cuda.ExternalStream(stream, self.index):
            kernel((-(-width // 64), -(-height // 4), count), (64, 4, 1), arguments)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        with self.cupy.cuda.Device(self.index):
            return self.cupy.empty(shape, dtype)

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(s // array.itemsize for s in array.strides)

    def slot(self, rows: int) -> _Slot:
        import cupyx  # type: ignore[import-not-found]

        with self.cupy.cuda.Device(self.index):
            host = cupyx.empty_pinned(rows * ROW_BYTES // 8, np.int64)
            return _Slot(host, host.view(ROW), self.cupy.empty(rows * ROW_BYTES // 8, np.int64))

    def upload(self, slot: _Slot, rows: int) -> None:
        words = rows * ROW_BYTES // 8
        slot.device[:words].set(slot.host[:words], stream=self.cupy.cuda.get_current_stream())

    def launch(self, slot: _Slot, out: Any, spec: Preprocessing, count: int, strides: tuple[int, ...]) -> None:
        stream = self.cupy.cuda.get_current_stream().ptr
        self.run(slot.device.data.ptr, out.data.ptr, spec, count, strides, stream)

    def record(self) -> Any:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record()
        return event

    def to_host(self, array: Any) -> NDArray[Any]:
        result: NDArray[Any] = array.get()
        return result


class Engine:
    """The ring of tables of one GPU. Safe from several threads, each on its own stream."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._tables = lru_cache(maxsize=64)(Table)
        self._slots: list[_Slot] = []
        self._turn = 0
        self._lock = threading.Lock()

    def prepare(
        self, images: Sequence[Image], spec: Preprocessing, transforms: Sequence[ImageTransform], out: Any
    ) -> Any:
        """See ``preprocess.prepare``; the work is ordered on the current stream, and nothing waits for it."""
        count = len(images)
        if out is None:
            out = self.backend.empty(spec.input_shape(count), spec.dtype)
        if count == 0:
            return out
        strides = self.backend.strides(out)
        if spec.layout == "NHWC":
            strides = strides[0], strides[3], strides[1], strides[2]
        with self._lock:
            slot = self._free(count)
            slot.paired = self._tables(spec).fill(slot.rows, images, transforms)
            self.backend.upload(slot, count)
            self.backend.launch(slot, out, spec, count, strides)
            slot.event = event = self.backend.record()
        for image in images:
            keep = getattr(image.planes[0], "keep_until", None)
            if keep is not None:
                keep(event)
        return out

    def _free(self, count: int) -> _Slot:
        if not self._slots:
            self._slots = [self.backend.slot(max(ROWS, count)) for _ in range(SLOTS)]
        self._turn = (self._turn + 1) % len(self._slots)
        slot = self._slots[self._turn]
        if slot.event is not None:
            slot.event.synchronize()
        if len(slot.rows) < count:
            slot = self._slots[self._turn] = self.backend.slot(count)
        return slot


@lru_cache(maxsize=64)
def engine(index: int) -> Engine:
    """The engine of GPU ``index``.

    Raises:
        MissingDependencyError: Neither torch nor CuPy is installed.
    """
    try:
        return Engine(TorchBackend(index))
    except ImportError:
        return Engine(CupyBackend(index))


def prepare(
    images: Sequence[Image], spec: Preprocessing, transforms: Sequence[ImageTransform], out: Any = None
) -> Any:
    """All pictures as one input on their GPU, on the current stream; see ``preprocess.prepare``."""
    for number, image in enumerate(images):
        if image.device is not images[0].device and image.device != images[0].device:
            raise ConfigError(
                f"picture 0 of the batch lies on {images[0].device}, picture {number} on {image.device}",
                hint="give each device a model of its own",
            )
    return engine(images[0].device.index).prepare(images, spec, transforms, out)


def _whole(image: Image, color: str) -> Preprocessing:
    return Preprocessing(image.size, "stretch", 0, color, 1.0, layout="NHWC", dtype="uint8")


def to_tensor(image: Image, color: str = "rgb") -> Any:
    """One picture as H x W x 3 (``"rgb"``, ``"bgr"``) or H x W (``"gray"``) uint8 on its GPU.

    RGB in the order wanted is a view without a copy, valid as long as the frame is; anything else is converted.
    """
    if image.format.lower() == color and image.region is None:
        backend = engine(image.device.index).backend
        if isinstance(backend, TorchBackend):
            return backend.torch.as_tensor(image.planes[0], device=f"cuda:{image.device.index}")
        return backend.cupy.asarray(image.planes[0])  # type: ignore[attr-defined]
    transform = ImageTransform.plan(image.size, image.size, "stretch")
    if image.region is not None:
        transform = image.region.placed(transform)
    picture = prepare([image], _whole(image, color), [transform])[0]
    return picture[..., 0] if color == "gray" else picture


def to_array(image: Image, color: str = "rgb") -> NDArray[np.uint8]:
    """``to_tensor`` copied to host memory."""
    return engine(image.device.index).backend.to_host(to_tensor(image, color))
