# SPDX-License-Identifier: Apache-2.0
"""Buffer and the tensors taken out of it."""

from __future__ import annotations

import ctypes

from ._libraries import gst, gst_meta, segfault
from ._metadata import BatchMetadata

_RGB = 27
_DEVICE, _SURFACE_ARRAY = 2, 4
_live = 0


def live_buffers() -> int:
    """Wrappers that still hold a buffer: each makes GStreamer copy it for the next writer."""
    return _live


class _MapInfo(ctypes.Structure):
    _fields_ = [
        ("memory", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("maxsize", ctypes.c_size_t),
        ("user_data", ctypes.c_void_p * 4),
        ("reserved", ctypes.c_void_p * 4),
    ]


class _Surface(ctypes.Structure):
    _fields_ = [
        ("gpu_id", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
        ("num_filled", ctypes.c_uint32),
        ("is_contiguous", ctypes.c_bool),
        ("mem_type", ctypes.c_int),
        ("surface_list", ctypes.c_void_p),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("pitch", ctypes.c_uint32),
        ("color_format", ctypes.c_int),
        ("layout", ctypes.c_int),
        ("buffer_desc", ctypes.c_uint64),
        ("data_size", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
    ]


_FRAME_SIZE = 416


class Tensor:
    """A view of one RGB frame. A failed extract gives one without data: falsy, and fatal to ask."""

    __slots__ = ("_array",)

    def __init__(self, array=None) -> None:
        self._array = array

    def __bool__(self) -> bool:
        return self._array is not None

    def _checked(self, what: str):
        if self._array is None:
            segfault(f"Tensor.{what} of a failed extract")
        return self._array

    @property
    def shape(self) -> list[int]:
        return list(self._checked("shape").shape)

    @property
    def strides(self) -> list[int]:
        return list(self._checked("strides").strides)

    @property
    def dtype(self):
        return self._checked("dtype").dtype

    def clone(self) -> Tensor:
        return Tensor(self._checked("clone").copy())

    def __dlpack__(self, **options):
        return self._checked("__dlpack__").__dlpack__(**options)

    def __dlpack_device__(self):
        return self._checked("__dlpack_device__").__dlpack_device__()


class Buffer:
    """Wraps a Gst.Buffer by the pointer its hash is. Anything else makes an empty one."""

    __slots__ = ("_pointer",)

    def __init__(self, gst_buffer=None) -> None:
        global _live
        self._pointer = 0
        if type(gst_buffer).__name__ == "Buffer" and type(gst_buffer) is not Buffer:
            self._pointer = hash(gst_buffer)
            gst.gst_mini_object_ref(self._pointer)
            _live += 1

    def __del__(self) -> None:
        global _live
        if getattr(self, "_pointer", 0):
            gst.gst_mini_object_unref(self._pointer)
            self._pointer = 0
            _live -= 1

    @property
    def batch_meta(self) -> BatchMetadata:
        found = gst_meta.gst_buffer_get_nvds_batch_meta(self._pointer) if self._pointer else 0
        return BatchMetadata(found or 0)

    @property
    def batch_size(self) -> int:
        return self.batch_meta.n_frames

    @property
    def timestamp(self) -> int:
        # GstMiniObject is 64 bytes, then pool, then pts
        return ctypes.c_uint64.from_address(self._pointer + 72).value if self._pointer else 0

    def extract(self, batch_id: int) -> Tensor:
        info = _MapInfo()
        if not self._pointer or not gst.gst_buffer_map(self._pointer, ctypes.byref(info), 1):
            return Tensor()
        try:
            if info.size != 72:
                return Tensor()
            return _rgb_view(_Surface.from_address(info.data), batch_id)
        finally:
            gst.gst_buffer_unmap(self._pointer, ctypes.byref(info))


def _rgb_view(surface: _Surface, batch_id: int) -> Tensor:
    import numpy as np

    if not 0 <= batch_id < surface.num_filled:
        return Tensor()
    frame = _Frame.from_address(surface.surface_list + batch_id * _FRAME_SIZE)
    if frame.color_format != _RGB or not frame.data:
        return Tensor()
    if surface.mem_type in (_DEVICE, _SURFACE_ARRAY):
        return Tensor()
    rows = (ctypes.c_uint8 * (frame.pitch * frame.height)).from_address(frame.data)
    flat = np.frombuffer(rows, np.uint8)
    view = np.lib.stride_tricks.as_strided(flat, (frame.height, frame.width, 3), (frame.pitch, 3, 1), writeable=True)
    return Tensor(view)
