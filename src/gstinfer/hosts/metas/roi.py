"""``GstVideoRegionOfInterestMeta``: objects for elements that are not ours, and one whole-frame region as a witness.

The witness says where the picture that was analysed lies in the picture that the buffer holds now: scalers scale it,
crops remove it. All our object regions name it as their parent, which is how they are told from others.
"""

from __future__ import annotations

import ctypes as C
import functools
import struct
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gstinfer.hosts.gstbuffer import function, library
from gstinfer.results import Detections

__all__ = ["FRAME_ID", "Region", "mark_frame", "read", "witness", "write"]

FRAME_ID = 0x67737469
"""Id of our whole-frame region ("gsti") and parent of our object regions."""

_gst = library("libgstreamer-1.0.so.0")
_video = library("libgstvideo-1.0.so.0")
_glib = library("libglib-2.0.so.0")


class Region(C.Structure):
    """``GstVideoRegionOfInterestMeta``."""

    _fields_ = (
        ("meta_flags", C.c_int),
        ("info", C.c_void_p),
        ("roi_type", C.c_uint32),
        ("id", C.c_int),
        ("parent_id", C.c_int),
        ("x", C.c_uint),
        ("y", C.c_uint),
        ("w", C.c_uint),
        ("h", C.c_uint),
        ("params", C.c_void_p),
    )

    @property
    def label(self) -> str:
        """The region's type as text."""
        return (_quark_text(self.roi_type) or b"").decode("utf-8", "replace")


_quark = function(_glib, "g_quark_from_string", C.c_uint32, C.c_char_p)
_quark_text = function(_glib, "g_quark_to_string", C.c_char_p, C.c_uint32)
# Called late: asked before GStreamer is initialised, the type would lack its tags for good.
_api = functools.cache(function(_video, "gst_video_region_of_interest_meta_api_get_type", C.c_size_t))
_param = function(_video, "gst_video_region_of_interest_meta_get_param", C.c_void_p, C.POINTER(Region), C.c_char_p)
_get = function(_video, "gst_buffer_get_video_region_of_interest_meta_id", C.c_void_p, C.c_void_p, C.c_int)
_iterate = function(_gst, "gst_buffer_iterate_meta_filtered", C.c_void_p, C.c_void_p, C.POINTER(C.c_void_p), C.c_size_t)
_remove = function(_gst, "gst_buffer_remove_meta", C.c_int, C.c_void_p, C.c_void_p)
# What is called for each object that is changed in place gets ctypes objects and small integers, and gives handles, none
# of which is converted: with ``argtypes`` that takes longer than the calls themselves. The structure's two are variadic,
# and go by quark, as looking up four names for each object costs as much.


class _Handle(C.c_void_p):
    """A pointer that is not made into a number."""


_add = _video["gst_buffer_add_video_region_of_interest_meta_id"]
_add.restype = C.POINTER(Region)
_add_param = _video["gst_video_region_of_interest_meta_add_param"]
_add_param.restype = None
_structure_new = _gst["gst_structure_new_id"]
_structure_new.restype = _Handle
_structure_set = _gst["gst_structure_id_set"]
_structure_set.restype = None
_buffer_new = function(_gst, "gst_buffer_new", C.c_void_p)
_unref = function(_gst, "gst_mini_object_unref", None, C.c_void_p)
_copy_into = function(_gst, "gst_buffer_copy_into", C.c_int, C.c_void_p, C.c_void_p, C.c_int, C.c_size_t, C.c_ssize_t)
_value = function(_gst, "gst_structure_get_value", C.c_void_p, C.c_void_p, C.c_char_p)
_COPY_META = 1 << 2
_PLACE = struct.Struct("=Iii4I")
"""Type, id, parent's id, x, y, width and height, as they follow one another in ``Region``."""
_DETECTION = b"detection"
_NAME, _CONFIDENCE, _LABEL_ID, _TRACKER_ID = (
    C.c_uint32(_quark(name)) for name in (_DETECTION, b"confidence", b"label_id", b"tracker_id")
)
# GTypes of gdouble, gint and gint64.
_DOUBLE, _INT, _INT64 = C.c_size_t(15 << 2), C.c_size_t(6 << 2), C.c_size_t(10 << 2)
_END = C.c_void_p()
_FRAME_TYPE = _quark(b"gstinfer-frame")


def mark_frame(buffer: Any, width: int, height: int, x: int = 0, y: int = 0) -> None:
    """Puts the witness on a writable buffer, or makes the one there fit the frame.

    Args:
        buffer: A ``Gst.Buffer`` or its address.
        width: Of the picture that was analysed.
        height: Of that picture.
        x: Where it lies in the buffer's frame.
        y: Where it lies there.
    """
    pointer = hash(buffer)
    found = _get(pointer, FRAME_ID)
    if not found:
        region = _add(C.c_void_p(pointer), _FRAME_TYPE, x, y, width, height).contents
        region.id, region.parent_id = FRAME_ID, -1
    else:
        region = Region.from_address(found)
        region.x, region.y, region.w, region.h = x, y, width, height


def witness(buffer: Any) -> tuple[int, int, int, int] | None:
    """The whole-frame region (x, y, width, height) as it is now, None where an element removed it.

    Args:
        buffer: A ``Gst.Buffer`` or its address.
    """
    found = _get(hash(buffer), FRAME_ID)
    if not found:
        return None
    region = Region.from_address(found)
    return region.x, region.y, region.w, region.h


def read(buffer: Any) -> Iterator[Region]:
    """Every region of interest on a buffer, ours and others'; valid while the buffer is."""
    pointer, state, api = hash(buffer), C.c_void_p(), _api()
    while True:
        found = _iterate(pointer, state, api)
        if not found:
            return
        yield Region.from_address(found)


def write(buffer: Any, detections: Detections | None, width: int, height: int) -> None:
    """Puts one region per object on a writable buffer in place of those of ours that are there.

    A region has the label as its type, row + 1 as its id, and a ``detection`` parameter with ``confidence`` (double),
    ``label_id`` (int) and ``tracker_id`` (int64, -1 where untracked).
    """
    pointer = hash(buffer)
    ours = [r for r in read(buffer) if r.parent_id == FRAME_ID]
    count = 0 if detections is None else len(detections)
    # What is there already is changed in place, which costs less than making it anew.
    for surplus in ours[count:]:
        _remove(pointer, C.addressof(surplus))
    if detections is None or not count:
        return
    named = detections.named(None)
    labels = named.label or []
    boxes = named.xyxy.round().clip(0, (width, height, width, height)).astype(int)
    boxes[:, 2:] = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    quarks = {t: _quark(t.encode("utf-8", "replace").replace(b"\0", b"") or b"object") for t in set(labels)}
    tracks = [-1] * count if named.tracker_id is None else named.tracker_id.tolist()
    rows = zip(range(1, count + 1), labels, boxes.tolist(), named.confidence.tolist(), named.class_id.tolist(), tracks)
    double, integer, wide = C.c_double(), C.c_int(), C.c_int64()
    values = (_CONFIDENCE, _DOUBLE, double, _LABEL_ID, _INT, integer, _TRACKER_ID, _INT64, wide, _END)
    for region, (number, label, box, double.value, integer.value, wide.value) in zip(ours, rows):
        region.roi_type, region.id = quarks[label], number
        region.x, region.y, region.w, region.h = box
        parameter = _param(region, _DETECTION)
        if parameter:
            _structure_set(_Handle(parameter), *values)
        else:
            _add_param(C.byref(region), _structure_new(_NAME, *values))
    if count > len(ours):
        with _turn:
            template = _template(count - len(ours))
            for place, (number, label, box, confidence, class_id, track) in zip(template.places, rows):
                _PLACE.pack_into(place.region, 0, quarks[label], number, FRAME_ID, *box)
                place.confidence.value, place.label_id.value, place.tracker_id.value = confidence, class_id, track
            _copy_into(pointer, template.buffer, _COPY_META, 0, -1)


class _Place(NamedTuple):
    """Where the numbers of one region of a template lie."""

    region: Any
    confidence: C.c_double
    label_id: C.c_int
    tracker_id: C.c_int64


class _Template:
    """A buffer with regions, which a frame's are copied from in one call; to make them one by one takes twice as long."""

    def __init__(self, count: int) -> None:
        self.buffer = _buffer_new()
        handle = C.c_void_p(self.buffer)
        self.places = [self._region(handle) for _ in range(count)]

    def _region(self, handle: C.c_void_p) -> _Place:
        region = _add(handle, _FRAME_TYPE, 0, 0, 0, 0).contents
        values = (*(_CONFIDENCE, _DOUBLE, C.c_double()), *(_LABEL_ID, _INT, C.c_int()), *(_TRACKER_ID, _INT64, C.c_int64()))
        _add_param(C.byref(region), _structure_new(_NAME, *values, _END))
        parameter, first = _param(region, _DETECTION), C.addressof(region) + Region.roi_type.offset
        # The union in a GValue comes behind its type.
        confidence, label_id, tracker_id = (
            _value(parameter, name) + C.sizeof(C.c_size_t) for name in (b"confidence", b"label_id", b"tracker_id")
        )
        return _Place(
            (C.c_char * _PLACE.size).from_address(first),
            C.c_double.from_address(confidence),
            C.c_int.from_address(label_id),
            C.c_int64.from_address(tracker_id),
        )

    def __del__(self, unref: Any = _unref) -> None:
        unref(self.buffer)


_template = functools.lru_cache(maxsize=64)(_Template)
_turn = threading.Lock()
"""Held while a template is filled and copied."""
