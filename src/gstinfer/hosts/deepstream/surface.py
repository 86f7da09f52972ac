"""``NvBufSurface``: the frames of a batch in memory, as NumPy views or device arrays in place.

A buffer under ``memory:NVMM`` caps holds one ``NvBufSurface`` struct, which lists a surface per frame. Structs from the
public header nvbufsurface.h.
"""

from __future__ import annotations

import ctypes as C
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gstinfer import gpu
from gstinfer.errors import HostError
from gstinfer.hosts.cuda import Plane
from gstinfer.hosts.deepstream.libs import SURFACE, open_library
from gstinfer.hosts.gstbuffer import Mapping, function
from gstinfer.image import FORMATS, ColorInfo, Device, Image

__all__ = ["COLOR_FORMATS", "Hold", "Surface"]

DEFAULT, PINNED, DEVICE, UNIFIED, SURFACE_ARRAY, HANDLE, SYSTEM, CUDA_ARRAY = range(8)
MEMORY_NAMES = ("DEFAULT", "CUDA_PINNED", "CUDA_DEVICE", "CUDA_UNIFIED", "SURFACE_ARRAY", "HANDLE", "SYSTEM", "CUDA_ARRAY")
FOR_CPU = "nvvideoconvert nvbuf-memory-type=1"
FOR_GPU = "nvvideoconvert compute-hw=GPU nvbuf-memory-type=2"
SMALLEST, LARGEST = 64, 512
"""Bytes of a buffer that holds the struct; pixels are larger."""

_BT601, _BT709, _BT2020 = ColorInfo("bt601"), ColorInfo("bt709"), ColorInfo("bt2020")
_RGB = ColorInfo("rgb", True)
COLOR_FORMATS: dict[int, tuple[str, ColorInfo]] = {
    1: ("GRAY8", _BT601),
    2: ("I420", _BT601),
    6: ("NV12", _BT601),
    7: ("NV12", ColorInfo("bt601", True)),
    19: ("RGBA", _RGB),
    20: ("BGRA", _RGB),
    23: ("RGBx", _RGB),
    24: ("BGRx", _RGB),
    27: ("RGB", _RGB),
    28: ("BGR", _RGB),
    33: ("NV12", _BT709),
    34: ("NV12", ColorInfo("bt709", True)),
    35: ("NV12", _BT2020),
}
"""``NvBufSurfaceColorFormat`` -> GStreamer's name, matrix and range."""


class _Planes(C.Structure):
    _fields_ = (
        ("count", C.c_uint32),
        ("width", C.c_uint32 * 4),
        ("height", C.c_uint32 * 4),
        ("pitch", C.c_uint32 * 4),
        ("offset", C.c_uint32 * 4),
        ("size", C.c_uint32 * 4),
        ("bytes_per_pixel", C.c_uint32 * 4),
        ("reserved", C.c_void_p * 16),
    )


class _Params(C.Structure):
    """``NvBufSurfaceParams``."""

    _fields_ = (
        ("width", C.c_uint32),
        ("height", C.c_uint32),
        ("pitch", C.c_uint32),
        ("color_format", C.c_int),
        ("layout", C.c_int),
        ("buffer_desc", C.c_uint64),
        ("data_size", C.c_uint32),
        ("data", C.c_void_p),
        ("planes", _Planes),
        ("mapped", C.c_void_p * 4),
        ("egl_image", C.c_void_p),
        ("rest", C.c_void_p * 12),
    )


class _Surface(C.Structure):
    """``NvBufSurface``."""

    _fields_ = (
        ("gpu_id", C.c_uint32),
        ("batch_size", C.c_uint32),
        ("filled", C.c_uint32),
        ("contiguous", C.c_bool),
        ("memory", C.c_int),
        ("frames", C.POINTER(_Params)),
    )


class _MapFunctions:
    """What maps the memory of a Jetson for the CPU."""

    def __init__(self) -> None:
        library = open_library(SURFACE, releases_gil=True)
        self.map = function(library, "NvBufSurfaceMap", C.c_int, C.c_void_p, C.c_int, C.c_int, C.c_int)
        self.unmap = function(library, "NvBufSurfaceUnMap", C.c_int, C.c_void_p, C.c_int, C.c_int)
        self.sync = function(library, "NvBufSurfaceSyncForCpu", C.c_int, C.c_void_p, C.c_int, C.c_int)


@lru_cache(maxsize=1)
def _map_functions() -> _MapFunctions:
    return _MapFunctions()


class Hold:
    """A mapped buffer, the surfaces mapped for the CPU, and the GPU work that still reads them.

    Args:
        mapping: The buffer's memory: while it lives, so does the surface.
    """

    __slots__ = ("__weakref__", "_mapped", "events", "mapping")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.events: list[Any] = []
        self._mapped: list[tuple[int, int]] = []

    def map_frame(self, surface: int, index: int) -> None:
        """Maps all planes of a frame for reading by the CPU.

        Raises:
            HostError: The library refuses.
        """
        functions = _map_functions()
        if functions.map(surface, index, -1, 0) or functions.sync(surface, index, -1):
            raise HostError(f"NvBufSurfaceMap failed on frame {index} of the batch", hint=f"add {FOR_CPU} before this element")
        self._mapped.append((surface, index))

    def wait(self) -> None:
        """Until all GPU work that reads the surface has finished: it is handed on, and soon written again."""
        events, self.events = self.events, []
        for event in events:
            event.synchronize()

    def __del__(self) -> None:
        for surface, index in self._mapped:
            _map_functions().unmap(surface, index, -1)


class Surface:
    """The frames of one buffer.

    Args:
        buffer: A ``Gst.Buffer``.
        device: Where the element works: ``"auto"``, ``"cpu"`` or ``"cuda:N"``.
        gpu_id: The GPU that the element wants, or None.

    Raises:
        HostError: The buffer holds no surface, or one that the device cannot read.
    """

    def __init__(self, buffer: Any, device: str = "auto", gpu_id: int | None = None) -> None:
        mapping = Mapping(buffer)
        self.hold = Hold(mapping)
        self.address = mapping.__array_interface__["data"][0]  # type: ignore[index]
        if not SMALLEST <= mapping.size <= LARGEST:
            raise _no_surface(f"{mapping.size} bytes")
        self._struct = struct = _Surface.from_address(self.address)
        if not (0 <= struct.memory < len(MEMORY_NAMES) and struct.filled <= struct.batch_size <= 4096 and struct.frames):
            raise _no_surface("a struct that is none")
        self.memory, self.gpu_id = int(struct.memory) or _default_memory(), int(struct.gpu_id)
        self.count = int(struct.filled)
        self.device = self._choose(device, gpu_id)

    def __len__(self) -> int:
        return self.count

    def _choose(self, wanted: str, gpu_id: int | None) -> Device:
        memory, name = self.memory, MEMORY_NAMES[self.memory]
        on_gpu = memory == DEVICE or (memory == UNIFIED and wanted != "cpu" and (wanted != "auto" or gpu.device_count() > 0))
        if on_gpu and wanted == "cpu":
            raise HostError(
                f"the frames are in {name} memory, which device=cpu cannot read",
                hint=f"add {FOR_CPU} before this element, or run the model on the GPU with device=cuda:{self.gpu_id}",
            )
        if on_gpu:
            asked = Device.parse(wanted).index if ":" in wanted else gpu_id
            if asked is not None and asked != self.gpu_id:
                raise HostError(
                    f"the frames are on GPU {self.gpu_id}, this element works on GPU {asked}",
                    hint=f"set gpu-id={self.gpu_id} or device=cuda:{self.gpu_id}, or move the frames: "
                    f"nvvideoconvert gpu-id={asked}",
                )
            return Device("cuda", self.gpu_id)
        if memory in (SURFACE_ARRAY, HANDLE) and wanted != "cpu" and (wanted != "auto" or gpu.device_count() > 0):
            raise HostError(
                f"the frames are in {name} memory, which CUDA reads only through an EGL image",
                hint=f"add {FOR_GPU} before this element",
            )
        if memory in (HANDLE, CUDA_ARRAY):
            raise HostError(f"the frames are in {name} memory, which is not read in place", hint=f"add {FOR_CPU}")
        return Device()

    def image(self, index: int) -> Image:
        """One frame's pixels in place.

        Raises:
            HostError: There is no such frame, or its format or layout is not read in place.
        """
        if not 0 <= index < self.count:
            raise HostError(
                f"the batch meta names frame {index}, but the surface list holds {self.count} frames",
                hint="something before this element changed one of the two without the other",
            )
        params = self._struct.frames[index]
        known = COLOR_FORMATS.get(params.color_format)
        if known is None:
            raise HostError(
                f"frame {index} has NvBufSurfaceColorFormat {params.color_format}, which is not read in place",
                hint="add nvvideoconvert ! 'video/x-raw(memory:NVMM),format=RGBA' before this element",
            )
        if params.layout != 0:
            raise HostError(f"frame {index} is in block-linear layout", hint=f"add {FOR_GPU} before this element")
        if not params.data:
            self.hold.map_frame(self.address, index)
        name, color = known
        width, height = int(params.width), int(params.height)
        return Image(name, self._planes(params, name, width, height, index), width, height, color, self.device)

    def _planes(self, params: _Params, name: str, width: int, height: int, index: int) -> tuple[Any, ...]:
        shapes, planes = _shapes(name, width, height), params.planes
        if planes.count < len(shapes):
            raise HostError(f"frame {index}: {name} has {len(shapes)} planes, the surface {planes.count}")
        cuda = self.device.index if self.device.is_cuda else None
        views: list[Any] = []
        pitches, offsets = planes.pitch, planes.offset
        for number, (shape, sample) in enumerate(shapes):
            pitch, offset = pitches[number], offsets[number]
            end = offset + (shape[0] - 1) * pitch + shape[1] * sample
            if pitch < shape[1] * sample or (params.data_size and end > params.data_size):
                raise HostError(
                    f"plane {number} of frame {index} ({name} {width}x{height}) does not fit: offset {offset}, pitch "
                    f"{pitch}, {end} bytes needed, {params.data_size} there",
                    hint="the surface does not match its own description",
                )
            start = params.data + offset if params.data else params.mapped[number]
            strides = (pitch, sample, 1) if len(shape) == 3 else (pitch, 1)
            plane = Plane(self.hold, start, shape, strides, cuda, True)  # type: ignore[arg-type]
            views.append(plane if cuda is not None else np.asarray(plane))
        return tuple(views)

    def finish_reads(self) -> None:
        """Waits until every GPU read of the surface is over: by the events that our kernels left, else, for a model that read
        the planes itself, on the stream where torch works by default. Never for the whole device."""
        known = bool(self.hold.events)
        self.hold.wait()
        torch = sys.modules.get("torch")
        if self.device.is_cuda and not known and torch is not None and torch.cuda.is_initialized():
            torch.cuda.default_stream(self.device.index).synchronize()


@lru_cache(maxsize=64)
def _shapes(name: str, width: int, height: int) -> list[tuple[tuple[int, ...], int]]:
    """Shape and bytes a sample of each plane."""
    shapes = FORMATS[name].plane_shapes(width, height)
    return [(tuple(shape), shape[2] if len(shape) == 3 else 1) for shape in shapes]


def _no_surface(found: str) -> HostError:
    return HostError(
        f"a buffer under memory:NVMM caps holds {found}, not an NvBufSurface",
        hint="its frames are in system memory: nvvideoconvert, or nvstreammux behind it, makes NVMM of them",
    )


@lru_cache(maxsize=1)
def _default_memory() -> int:
    """What DEFAULT stands for: surface arrays on a Jetson, device memory elsewhere."""
    return SURFACE_ARRAY if Path("/etc/nv_tegra_release").exists() else DEVICE
