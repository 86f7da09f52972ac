"""Pixels and fields of a ``GstBuffer``, reached through ctypes.

PyGObject maps buffers only with gst-python's compiled overrides and copies otherwise, so the C structs are read here:
``GstBuffer``, ``GstMapInfo`` and ``GstVideoMeta`` are public and have the same layout in all of GStreamer 1.x.
A buffer's address is ``hash(buffer)``. An address is its own hash, so it stands for the buffer where no Python object of it
may be made: one takes a reference, and the buffer is not writable then.

Fast C functions are called through ``ctypes.PyDLL``, which keeps the GIL: giving it up for a microsecond costs a
fight to get it back. Functions that may copy a frame or free it go through ``CDLL``.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import HostError
from gstinfer.image import FORMATS

__all__ = [
    "MAP_READ",
    "MAP_WRITE",
    "BufferStruct",
    "MapInfo",
    "Mapping",
    "VideoMeta",
    "address",
    "capture_time",
    "discontinuous",
    "function",
    "is_writable",
    "library",
    "plane_views",
    "pts",
    "video_meta",
]

MAP_READ, MAP_WRITE = 1, 2
_NONE = (1 << 64) - 1
_FLAG_DISCONT = 1 << 6
# Seconds from 1900, where NTP counts from, to 1970.
_NTP_TO_UNIX = 2_208_988_800 * 1_000_000_000


class BufferStruct(C.Structure):
    """``GstBuffer`` with its ``GstMiniObject`` up to ``offset_end``."""

    _fields_ = (
        ("type", C.c_size_t),
        ("refcount", C.c_int),
        ("lockstate", C.c_int),
        ("flags", C.c_uint),
        ("copy", C.c_void_p),
        ("dispose", C.c_void_p),
        ("free", C.c_void_p),
        ("priv_uint", C.c_uint),
        ("priv_pointer", C.c_void_p),
        ("pool", C.c_void_p),
        ("pts", C.c_uint64),
        ("dts", C.c_uint64),
        ("duration", C.c_uint64),
        ("offset", C.c_uint64),
        ("offset_end", C.c_uint64),
    )


class MapInfo(C.Structure):
    """``GstMapInfo``."""

    _fields_ = (
        ("memory", C.c_void_p),
        ("flags", C.c_int),
        ("data", C.c_void_p),
        ("size", C.c_size_t),
        ("maxsize", C.c_size_t),
        ("user_data", C.c_void_p * 4),
        ("_reserved", C.c_void_p * 4),
    )


class VideoMeta(C.Structure):
    """``GstVideoMeta`` up to ``stride``."""

    _fields_ = (
        ("meta_flags", C.c_int),
        ("info", C.c_void_p),
        ("buffer", C.c_void_p),
        ("flags", C.c_int),
        ("format", C.c_int),
        ("id", C.c_int),
        ("width", C.c_uint),
        ("height", C.c_uint),
        ("n_planes", C.c_uint),
        ("offset", C.c_size_t * 4),
        ("stride", C.c_int * 4),
    )


class _ReferenceTimestamp(C.Structure):
    _fields_ = (
        ("meta_flags", C.c_int),
        ("info", C.c_void_p),
        ("reference", C.c_void_p),
        ("timestamp", C.c_uint64),
        ("duration", C.c_uint64),
    )


def library(name: str, *, releases_gil: bool = False) -> C.CDLL:
    """A shared library of GStreamer or GLib by its soname.

    Raises:
        HostError: It is not installed.
    """
    try:
        return C.CDLL(name) if releases_gil else C.PyDLL(name)
    except OSError as error:
        raise HostError(
            f"the library {name} cannot be loaded: {error}",
            hint="install GStreamer 1.20 or later with its base plugins (libgstreamer-plugins-base1.0-0)",
        ) from error


def function(lib: C.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    """A typed C function of a library."""
    found = lib[name]
    found.restype, found.argtypes = result, list(arguments)
    return found


_SLOW = library("libgstreamer-1.0.so.0", releases_gil=True)
_GST = library("libgstreamer-1.0.so.0")
_VIDEO = library("libgstvideo-1.0.so.0")



class _Mapper:
    """The calls that map memory and let go of it."""

    def __init__(self, lib: C.CDLL) -> None:
        self.map = function(lib, "gst_buffer_map", C.c_int, C.c_void_p, C.POINTER(MapInfo), C.c_int)
        self.unmap = function(lib, "gst_memory_unmap", None, C.c_void_p, C.POINTER(MapInfo))
        self.unref = function(lib, "gst_mini_object_unref", None, C.c_void_p)


# To system memory a map may copy; what lies on a device already has an address.
_copying, _in_place = _Mapper(_SLOW), _Mapper(_GST)
_writable = function(_GST, "gst_mini_object_is_writable", C.c_int, C.c_void_p)
_video_meta = function(_VIDEO, "gst_buffer_get_video_meta", C.POINTER(VideoMeta), C.c_void_p)
_caps_from_string = function(_GST, "gst_caps_from_string", C.c_void_p, C.c_char_p)
_reference_timestamp = function(
    _GST, "gst_buffer_get_reference_timestamp_meta", C.POINTER(_ReferenceTimestamp), C.c_void_p, C.c_void_p
)

address = hash
"""Address of the C struct behind a ``Gst.Buffer``."""


def is_writable(buffer: Any) -> bool:
    """Whether metas may be added and pixels changed: nobody else holds the buffer, which is given itself or by its address."""
    return bool(_writable(hash(buffer)))


def pts(buffer: Any) -> int | None:
    """Presentation time in ns, None where it is not set."""
    value = int(BufferStruct.from_address(hash(buffer)).pts)
    return None if value == _NONE else value


def discontinuous(buffer: Any) -> bool:
    """Whether the buffer does not follow the one before (``GST_BUFFER_FLAG_DISCONT``)."""
    return bool(BufferStruct.from_address(hash(buffer)).flags & _FLAG_DISCONT)


def video_meta(buffer: Any) -> VideoMeta | None:
    """The buffer's ``GstVideoMeta``; valid while the buffer is."""
    found = _video_meta(hash(buffer))
    return found.contents if found else None


_clocks: list[tuple[int, int]] = []


def capture_time(buffer: Any) -> int | None:
    """UTC capture time in ns since 1970 from a ``GstReferenceTimestampMeta`` of Unix or NTP time; None without one."""
    if not _clocks:
        _clocks.extend(
            (_caps_from_string(name), epoch)
            for name, epoch in ((b"timestamp/x-unix", 0), (b"timestamp/x-ntp", _NTP_TO_UNIX))
        )
    for caps, epoch in _clocks:
        found = _reference_timestamp(hash(buffer), caps)
        if found and found.contents.timestamp != _NONE and found.contents.timestamp >= epoch:
            return int(found.contents.timestamp) - epoch
    return None


class Mapping:
    """A buffer's bytes, mapped as long as this object or any array made from it lives.

    Arrays have it as their base, so a view that somebody kept stays valid memory with the frame's own pixels, and the
    map ends when the last of them goes. The map holds the ``GstMemory``, not the buffer.

    Args:
        buffer: A ``Gst.Buffer``.
        write: Whether the arrays are writable; the buffer must be.
        flags: Further ``GstMapFlags``, which ask for an address on the device that the memory is on.

    Raises:
        HostError: The memory cannot be mapped.
    """

    __slots__ = ("__array_interface__", "_info", "_mapper", "size")

    def __init__(self, buffer: Any, *, write: bool = False, flags: int = 0) -> None:
        self._info = None
        self._mapper = _in_place if flags else _copying
        info = MapInfo()
        if write and not is_writable(buffer):
            raise HostError(
                "the buffer is not writable: somebody else holds it too",
                hint="an element that changes pixels must not run in passthrough mode",
            )
        if not self._mapper.map(hash(buffer), info, MAP_READ | (MAP_WRITE if write else 0) | flags):
            raise HostError(
                f"the buffer cannot be mapped for {'writing' if write else 'reading'}",
                hint="bring the frames to system memory before this element (cudadownload, gldownload, vapostproc)",
            )
        self._info = info
        self.size = int(info.size)
        self.__array_interface__ = {
            "version": 3,
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (info.data or 0, not write),
        }

    def __del__(self) -> None:
        info = self._info
        # An empty buffer maps to no memory.
        if info is not None and info.memory:
            memory = info.memory
            self._mapper.unmap(memory, info)
            self._mapper.unref(memory)


def plane_views(
    mapping: Mapping,
    format: str,
    width: int,
    height: int,
    offsets: Sequence[int],
    strides: Sequence[int],
) -> tuple[NDArray[Any], ...]:
    """One array per plane over a mapped buffer, shaped as ``PixelFormat.plane_shapes`` says; nothing is copied.

    Raises:
        HostError: The planes do not fit into the buffer or their rows overlap.
    """
    layout, views = FORMATS[format], []
    flat, word = np.asarray(mapping), np.dtype(layout.dtype)
    for number, (shape, (source, first, step, channel)) in enumerate(zip(layout.plane_shapes(width, height), layout.places)):
        offset, stride = int(offsets[source]) + first, int(strides[source])
        row = (shape[1] - 1) * step + (shape[2] - 1 if len(shape) == 3 else 0) * channel + word.itemsize
        end = offset + (shape[0] - 1) * stride + row
        if stride < row or offset < 0 or end > mapping.size:
            raise HostError(
                f"plane {number} of a {format} frame of {width}x{height} does not fit: offset {offset}, stride "
                f"{stride}, {row} bytes a row, {end} bytes needed, {mapping.size} in the buffer",
                hint="the buffer does not match its caps; put videoconvert before this element",
            )
        steps = (stride, step, channel) if len(shape) == 3 else (stride, step)
        views.append(np.ndarray(shape, word, flat, offset, steps))
    return tuple(views)
