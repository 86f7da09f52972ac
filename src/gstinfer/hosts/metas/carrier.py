"""Our own meta, the record that travels with a buffer: a ``GstCustomMeta`` that holds the codec's bytes.

It has no tags and no transform function, so every element copies it as it is, encoders and payloaders too. The size
that its numbers refer to is inside; reading scales to the size that the frame has now.
"""

from __future__ import annotations

import ctypes as C
import logging
from typing import Any

from gstinfer.errors import HostError
from gstinfer.hosts.gstbuffer import function, is_writable, library, video_meta
from gstinfer.hosts.metas import codec, roi
from gstinfer.hosts.metas.scale import scaled
from gstinfer.results import FrameResults

__all__ = ["note", "read", "set_note", "write"]

_log = logging.getLogger(__name__)
_NAME, _FIELD = b"GstInferResults", b"results"
_TYPE_UINT = 7 << 2

_gst = library("libgstreamer-1.0.so.0")
_gobject = library("libgobject-2.0.so.0")
_glib = library("libglib-2.0.so.0")


class _Value(C.Structure):
    """``GValue``."""

    _fields_ = (("type", C.c_size_t), ("data", C.c_uint64 * 2))


_register = function(
    _gst, "gst_meta_register_custom", C.c_void_p, C.c_char_p, C.POINTER(C.c_char_p), C.c_void_p, C.c_void_p, C.c_void_p
)
_registered = function(_gst, "gst_meta_get_info", C.c_void_p, C.c_char_p)
_add = function(_gst, "gst_buffer_add_custom_meta", C.c_void_p, C.c_void_p, C.c_char_p)
_get = function(_gst, "gst_buffer_get_custom_meta", C.c_void_p, C.c_void_p, C.c_char_p)
_structure = function(_gst, "gst_custom_meta_get_structure", C.c_void_p, C.c_void_p)
_take_value = function(_gst, "gst_structure_take_value", None, C.c_void_p, C.c_char_p, C.POINTER(_Value))
_get_value = function(_gst, "gst_structure_get_value", C.c_void_p, C.c_void_p, C.c_char_p)
_get_uint = function(_gst, "gst_structure_get_uint", C.c_int, C.c_void_p, C.c_char_p, C.POINTER(C.c_uint))
_value_init = function(_gobject, "g_value_init", C.c_void_p, C.POINTER(_Value), C.c_size_t)
_set_uint = function(_gobject, "g_value_set_uint", None, C.POINTER(_Value), C.c_uint)
_take_boxed = function(_gobject, "g_value_take_boxed", None, C.POINTER(_Value), C.c_void_p)
_get_boxed = function(_gobject, "g_value_get_boxed", C.c_void_p, C.c_void_p)
_bytes_type = function(_gobject, "g_bytes_get_type", C.c_size_t)()
_bytes_new = function(_glib, "g_bytes_new", C.c_void_p, C.c_char_p, C.c_size_t)
_bytes_data = function(_glib, "g_bytes_get_data", C.c_void_p, C.c_void_p, C.POINTER(C.c_size_t))


def _ensure_registered() -> None:
    # Registering twice is an assertion failure in GStreamer, so its own table is asked.
    if not _registered(_NAME) and not _register(_NAME, (C.c_char_p * 1)(None), None, None, None):
        raise HostError("the meta for results cannot be registered", hint="call Gst.init() first")


def write(buffer: Any, results: FrameResults, width: int, height: int, pixel_aspect: float = 1.0) -> None:
    """Puts results on a buffer in place of those that are there.

    Args:
        buffer: A writable ``Gst.Buffer``.
        results: In pixels of the buffer's frame.
        width: Of that frame.
        height: Of that frame.
        pixel_aspect: Width of its pixels by their height.

    Raises:
        HostError: The buffer is not writable, or something in the results cannot be written; the buffer is unchanged.
    """
    raw = codec.encode(results, width, height, pixel_aspect)
    if not is_writable(buffer):
        raise HostError(
            "results cannot be written: the buffer is not writable, somebody else holds it too",
            hint="the element must not run in passthrough mode",
        )
    pointer = hash(buffer)
    _ensure_registered()
    meta = _get(pointer, _NAME) or _add(pointer, _NAME)
    value = _Value()
    _value_init(value, _bytes_type)
    _take_boxed(value, _bytes_new(raw, len(raw)))
    _take_value(_structure(meta), _FIELD, value)
    roi.mark_frame(buffer, width, height)


def read(
    buffer: Any, size: tuple[int, int] | None = None, pixel_aspect: float | None = None
) -> FrameResults | None:
    """The results on a buffer, in pixels of the frame that it holds now.

    Where the frame was cropped, turned or letterboxed since, boxes, points and masks are left out, with one warning, and
    ``inferred`` is None.

    Args:
        buffer: A ``Gst.Buffer``.
        size: (width, height) of its frame where the caller knows the caps; else its ``GstVideoMeta`` says it.
        pixel_aspect: Width of its pixels by their height, None where the caller does not know the caps.

    Returns:
        None where the buffer carries none.

    Raises:
        HostError: The record is damaged or of another version.
    """
    _ensure_registered()
    meta = _get(hash(buffer), _NAME)
    if not meta:
        return None
    value = _get_value(_structure(meta), _FIELD)
    content = _get_boxed(value) if value else None
    if not content:
        return None
    length = C.c_size_t()
    data = _bytes_data(content, length)
    results, written, aspect = codec.decode(C.string_at(data, length.value))
    if results.detections is None and results.segmentation is None:
        return results
    where = roi.witness(buffer)
    now = size or _size_of(buffer) or (where[2:] if where else written)
    doubt = _doubt(written, now, where)
    if not doubt and pixel_aspect is not None:
        shape, shape_now = written[0] * aspect / written[1], now[0] * pixel_aspect / now[1]
        if abs(shape_now - shape) > shape * 2 / min(now):
            doubt = "its picture was squeezed or given borders"
    if doubt:
        _warn(doubt, written, now)
        # Not "nothing was found": of this picture nothing is known.
        results.detections = results.segmentation = results.inferred = None
    elif now != written and results.detections is not None:
        results.detections = scaled(results.detections, written, now)
    return results


def note(buffer: Any, name: bytes) -> int:
    """What ``set_note`` noted on this buffer or the one it was copied from; 0 without a note."""
    meta, number = _get(hash(buffer), _NAME), C.c_uint(0)
    if meta:
        _get_uint(_structure(meta), name, number)
    return number.value


def set_note(buffer: Any, name: bytes, number: int) -> None:
    """Notes a number beside the record that is on a writable buffer."""
    value = _Value()
    _value_init(value, _TYPE_UINT)
    _set_uint(value, number)
    _take_value(_structure(_get(hash(buffer), _NAME)), name, value)


def _size_of(buffer: Any) -> tuple[int, int] | None:
    meta = video_meta(buffer)
    return None if meta is None else (meta.width, meta.height)


def _doubt(written: tuple[int, int], now: tuple[int, int], where: tuple[int, int, int, int] | None) -> str:
    """Why boxes cannot be trusted, empty when they can. Scalers round, so a pixel more or less is no reason."""
    if where is None:
        return "it was cropped, or passed an element that drops regions of interest"
    x, y, width, height = where
    if x or y or abs(width - now[0]) > 1 or abs(height - now[1]) > 1:
        return f"it was cropped or turned: what was analysed lies at {x},{y} in {width}x{height}"
    return ""


_warned: set[tuple[str, tuple[int, int], tuple[int, int]]] = set()


def _warn(reason: str, written: tuple[int, int], now: tuple[int, int]) -> None:
    key = (reason, written, now)
    if key not in _warned:
        _warned.add(key)
        _log.warning(
            "results of a %dx%d frame are read on a frame of %dx%d without their boxes: %s; "
            "put crops, flips and borders before the inference element",
            *written,
            *now,
            reason,
        )
