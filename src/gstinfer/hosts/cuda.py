"""Frames in CUDA memory (``nvh264dec``, ``cudaupload`` and their kin), read in place.

GStreamer maps such memory to a device pointer when ``GST_MAP_CUDA`` is among the flags; pitch and plane offsets come from
``GstVideoMeta``. Up to GStreamer 1.22 the decoder waits for its own copy; from 1.24 on work may still be pending on the
memory's stream, and ``gst_cuda_memory_sync`` waits for it. A buffer stays mapped until all GPU work on its planes has
finished: kernels of this package leave an event with the plane (``keep_until``), and leaving ``open`` waits.

Pixels are written only into memory that is nobody else's: see ``own``.
"""

from __future__ import annotations

import ctypes as C
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gstinfer.errors import HostError, MissingDependencyError
from gstinfer.hosts import caps_of
from gstinfer.hosts.gstbuffer import Mapping, function, is_writable, library
from gstinfer.hosts.metas import MetaCodec
from gstinfer.hosts.opened import OpenedBuffer
from gstinfer.hosts.video import VideoFormat
from gstinfer.image import FORMATS, Device, Image
from gstinfer.unwinder import cxx_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from gstinfer.hosts import HostStream

__all__ = ["MAP_CUDA", "CudaHost", "Plane", "own", "planes_of"]

MAP_CUDA = 1 << 17
"""``GST_MAP_CUDA``: ``GST_MAP_FLAG_LAST << 1``."""

READ_FORMATS = (*(name for name, layout in FORMATS.items() if layout.is_plain), "P010_10LE")
"""What the kernels read and draw on."""

READONLY = 1 << 1
"""``GST_MEMORY_FLAG_READONLY``."""


class _CudaMemory(C.Structure):
    """``GstMemory``, then the first field of ``GstCudaMemory``."""

    _fields_ = (
        ("mini_object", C.c_size_t),
        ("refcount", C.c_int),
        ("lockstate", C.c_int),
        ("flags", C.c_uint),
        ("functions", C.c_void_p * 3),
        ("priv_uint", C.c_uint),
        ("priv_pointer", C.c_void_p),
        ("allocator", C.c_void_p),
        ("parent", C.c_void_p),
        ("maxsize", C.c_size_t),
        ("align", C.c_size_t),
        ("offset", C.c_size_t),
        ("size", C.c_size_t),
        ("context", C.c_void_p),
    )


class _Library:
    """What is called of libgstcuda and libgobject.

    Raises:
        HostError: libgstcuda or NVIDIA's driver is missing.
    """

    def __init__(self) -> None:
        cuda = library("libgstcuda-1.0.so.0", releases_gil=True)
        # Any other call aborts when the plugin came from the registry cache and nothing has loaded the driver yet.
        if not function(cuda, "gst_cuda_load_library", C.c_int)():
            raise HostError("NVIDIA's driver library (libcuda.so.1) cannot be loaded", hint="use device=cpu")
        self.is_cuda = function(library("libgstcuda-1.0.so.0"), "gst_is_cuda_memory", C.c_int, C.c_void_p)
        self.sync = None
        if hasattr(cuda, "gst_cuda_memory_sync"):
            self.sync = function(cuda, "gst_cuda_memory_sync", None, C.c_void_p)
        self.wrapped: Callable[[int], int | None] | None = None
        if hasattr(cuda, "gst_cuda_memory_get_user_data"):
            self.wrapped = function(cuda, "gst_cuda_memory_get_user_data", C.c_void_p, C.c_void_p)
        gobject = library("libgobject-2.0.so.0")
        self._get = gobject["g_object_get"]
        self._get.restype = None

    def device_of(self, memory: int) -> int:
        """Index of the GPU that a memory lies on."""
        index = C.c_uint(0)
        context = C.c_void_p(_CudaMemory.from_address(memory).context)
        self._get(context, C.c_char_p(b"cuda-device-id"), C.byref(index), C.c_void_p(None))
        return int(index.value)


@lru_cache(maxsize=1)
def _library() -> _Library:
    return _Library()


_GST, _SLOW = library("libgstreamer-1.0.so.0"), library("libgstreamer-1.0.so.0", releases_gil=True)
_memories = function(_GST, "gst_buffer_n_memory", C.c_uint, C.c_void_p)
_memory = function(_GST, "gst_buffer_peek_memory", C.c_void_p, C.c_void_p, C.c_uint)
_unshared = function(_GST, "gst_mini_object_is_writable", C.c_int, C.c_void_p)
_copy = function(_SLOW, "gst_memory_copy", C.c_void_p, C.c_void_p, C.c_ssize_t, C.c_ssize_t)
_replace = function(_SLOW, "gst_buffer_replace_all_memory", None, C.c_void_p, C.c_void_p)


def own(buffer: Any, wrapped: Callable[[int], int | None] | None = None) -> bool:
    """Gives a buffer memory of its own where its pixels are not its own to change; the copy stays in the same kind of memory.

    That is so where another buffer holds the memory too (behind a ``tee`` or a repeated frame), where it is read-only, and
    where it is only wrapped: from GStreamer 1.24 on NVIDIA's decoders hand out their own surfaces that way.

    Args:
        buffer: A writable ``Gst.Buffer`` of one memory.
        wrapped: ``gst_cuda_memory_get_user_data``, where GStreamer has it: not 0 for memory that somebody wrapped.

    Returns:
        Whether it was copied.

    Raises:
        HostError: The buffer is not writable, or there is no memory for the copy.
    """
    memory = _memory(hash(buffer), 0)
    readonly = _CudaMemory.from_address(memory).flags & READONLY
    if not readonly and _unshared(memory) and not (wrapped is not None and wrapped(memory)):
        return False
    if not is_writable(buffer):
        raise HostError(
            "the buffer is not writable: somebody else holds it too",
            hint="an element that changes pixels must not run in passthrough mode",
        )
    # The allocator's own copy: in CUDA memory it goes from GPU to GPU, and has finished when it returns.
    copied = _copy(memory, 0, -1)
    if not copied:
        raise HostError("the frame cannot be copied before it is drawn on: the GPU has no memory left")
    _replace(hash(buffer), copied)
    return True


class _Hold:
    """A mapped buffer and the GPU work that still reads or writes it."""

    __slots__ = ("events", "mapping")

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self.events: list[Any] = []

    def wait(self) -> None:
        events, self.events = self.events, []
        for event in events:
            # One event serves a whole batch, whose end somebody has waited for as a rule: asking keeps the interpreter.
            query = getattr(event, "query", None)
            if query is None or not query():
                event.synchronize()


class Plane:
    """One plane in device memory: torch, CuPy and cuda-python take it as it is, through the CUDA array interface.

    Its memory stays mapped as long as this object, or an array made from it, lives. With ``cuda=False`` it is the same
    over system memory, for NumPy.

    Args:
        hold: The mapped buffer.
        address: Of the first byte.
        shape: In samples.
        strides: In bytes.
        device: GPU index, or None for system memory.
        readonly: Whether the pixels may not be changed; NumPy heeds it, on a GPU it is for the reader to heed.
    """

    def __init__(
        self,
        hold: _Hold,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: int | None,
        readonly: bool,
    ) -> None:
        self._hold, self._device = hold, device
        self.shape, self.strides = shape, strides
        face: dict[str, Any] = {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": "|u1",
            "data": (address, readonly),
        }
        if device is None:
            self.__array_interface__ = face
        else:
            # stream None: whatever wrote the pixels has finished, see CudaHost. Never read-only: torch refuses that flag.
            self.__cuda_array_interface__ = {**face, "data": (address, False), "stream": None}

    def keep_until(self, event: Any) -> None:
        """The buffer stays mapped until an event with ``synchronize()`` has happened."""
        self._hold.events.append(event)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self._device is None else (2, self._device)

    def __dlpack__(self, **options: Any) -> Any:
        try:
            with cxx_library():
                import torch
        except ImportError as error:
            raise MissingDependencyError("torch", extra="torch", purpose="DLPack of a plane in CUDA memory") from error
        place = "cpu" if self._device is None else f"cuda:{self._device}"
        return torch.as_tensor(self, device=place).__dlpack__(**options)


def planes_of(
    hold: _Hold, video: VideoFormat, offsets: Any, strides: Any, device: int | None, readonly: bool
) -> tuple[str, tuple[Plane, ...]]:
    """The planes of a mapped buffer and the format they have.

    P010 is handed on as NV12 of its upper bytes: samples two bytes apart, eight of the ten bits.

    Raises:
        HostError: The planes do not fit into the buffer.
    """
    name, width = (("NV12", 2) if video.name == "P010_10LE" else (video.name, 1))
    interface: Any = hold.mapping.__array_interface__
    first, size = interface["data"][0], hold.mapping.size
    planes = []
    for number, shape in enumerate(FORMATS[name].plane_shapes(video.width, video.height)):
        offset, pitch = int(offsets[number]), int(strides[number])
        sample = (shape[2] if len(shape) == 3 else 1) * width
        row = shape[1] * sample
        end = offset + (shape[0] - 1) * pitch + row
        if pitch < row or end > size:
            raise HostError(
                f"plane {number} of a {video.name} frame of {video.width}x{video.height} does not fit: offset {offset}, "
                f"pitch {pitch}, {row} bytes a row, {end} bytes needed, {size} in the buffer",
                hint="the buffer does not match its caps",
            )
        steps = (pitch, sample, width) if len(shape) == 3 else (pitch, sample)
        planes.append(Plane(hold, first + offset + width - 1, shape, steps, device, readonly))
    return name, tuple(planes)


class CudaHost:
    """Opens buffers in CUDA memory.

    Args:
        caps: Fixed ``Gst.Caps`` of raw video.
        stream: Facts about the pad's stream.
        write_meta: See ``metas.MetaCodec``.
        cuda: False opens system memory in the same way, to be tried where no GPU is.

    Raises:
        ConfigError: A format that is not read in place.
        HostError: libgstcuda or the driver is missing.
    """

    CAPS = caps_of("cuda")
    """What an element offers on its pads for this host."""

    passthrough = False
    single = True

    def __init__(self, caps: Any, stream: HostStream, *, write_meta: str = "auto", cuda: bool = True) -> None:
        self.format = VideoFormat.of(caps, READ_FORMATS)
        self.metas = MetaCodec(write_meta)
        self.stream = stream
        self.cuda = cuda
        self.device: int | None = None
        if cuda:
            _library()

    def open(self, buffer: Any, *, write: bool = False) -> _Opened:
        """The buffer's one frame, see ``Host.open``."""
        return _Opened(self, buffer, write)

    def close(self) -> None:
        """Holds nothing between buffers."""

    def map(self, buffer: Any, write: bool) -> _Hold:
        """Maps a buffer's memory to a device pointer, and waits for work that is pending on it.

        To be written it is copied first where it is not the buffer's own, see ``own``.

        Raises:
            HostError: It is no CUDA memory, in several pieces, or cannot be copied.
        """
        if not self.cuda:
            if write:
                own(buffer)
            return _Hold(Mapping(buffer, write=write))
        gst = _library()
        count, memory = _memories(hash(buffer)), _memory(hash(buffer), 0)
        if count != 1 or not gst.is_cuda(memory):
            raise HostError(
                f"the buffer holds {count} memories, the first {'is' if memory and gst.is_cuda(memory) else 'is no'} "
                "CUDA memory; expected one piece of CUDA memory",
                hint="put cudadownload ! cudaupload before this element",
            )
        if write and own(buffer, gst.wrapped):
            memory = _memory(hash(buffer), 0)
        hold = _Hold(Mapping(buffer, write=write, flags=MAP_CUDA))
        if gst.sync is not None:
            gst.sync(memory)
        if self.device is None:
            self.device = gst.device_of(memory)
        return hold


class _Opened(OpenedBuffer):
    """One buffer in CUDA memory."""

    __slots__ = ("hold",)

    def image(self, offsets: Any, strides: Any) -> Image:
        host, video = self.host, self.host.format
        self.hold = host.map(self.buffer, self.write)
        name, planes = planes_of(self.hold, video, offsets, strides, host.device, not self.write)
        device = Device() if host.device is None else Device("cuda", host.device)
        return Image(name, planes, video.width, video.height, video.color, device)

    def release(self) -> None:
        # Nothing here keeps the memory from now on: whoever lets go of a decoder's surface last waits for the decoder, and
        # this thread would do so with the interpreter.
        hold, self.hold = self.hold, None
        hold.wait()
