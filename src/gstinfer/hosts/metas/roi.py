"""``GstVideoRegionOfInterestMeta``: objects for elements that are not ours, and one whole-frame region as a witness.

The witness says where the picture that was analysed lies in the picture that the buffer holds now: scalers scale it,
crops remove it. All our object regions name it as their parent, which is how they are told from others.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Iterator
from typing import Any

import numpy as np

from gstinfer.hosts.gstbuffer import function, library
from gstinfer.results import Detections

__all__ = ["FRAME_ID", "Region", "mark_frame", "read", "witness", "write"]

FRAME_ID = 0x67737469
"""Id of our whole-frame region ("gsti") and parent of our object regions."""

_gst = library("libgstreamer-1.0.so.0")
_video = library("libgstvideo-1.0.so.0")
_glib = library("libglib-2.0.so.0")

# GTypes of gint, gint64 and gdouble.
_INT, _INT64, _DOUBLE = 6 << 2, 10 << 2, 15 << 2


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
_api = function(_video, "gst_video_region_of_interest_meta_api_get_type", C.c_size_t)()
_add = function(
    _video, "gst_buffer_add_video_region_of_interest_meta_id", C.c_void_p, C.c_void_p, C.c_uint32, *[C.c_uint] * 4
)
_add_param = function(_video, "gst_video_region_of_interest_meta_add_param", None, C.c_void_p, C.c_void_p)
_get = function(_video, "gst_buffer_get_video_region_of_interest_meta_id", C.c_void_p, C.c_void_p, C.c_int)
_iterate = function(
    _gst, "gst_buffer_iterate_meta_filtered", C.c_void_p, C.c_void_p, C.POINTER(C.c_void_p), C.c_size_t
)
_remove = function(_gst, "gst_buffer_remove_meta", C.c_int, C.c_void_p, C.c_void_p)
# Variadic; the types of our one use are fixed here.
_structure_new = function(
    _gst, "gst_structure_new", C.c_void_p, C.c_char_p,
    C.c_char_p, C.c_size_t, C.c_double,
    C.c_char_p, C.c_size_t, C.c_int,
    C.c_char_p, C.c_size_t, C.c_int64,
    C.c_void_p,
)  # fmt: skip
_FRAME_TYPE = _quark(b"gstinfer-frame")


def mark_frame(buffer: Any, width: int, height: int) -> None:
    """Puts the witness on a writable buffer, or makes the one there fit the frame."""
    pointer = hash(buffer)
    found = _get(pointer, FRAME_ID)
    if not found:
        region = Region.from_address(_add(pointer, _FRAME_TYPE, 0, 0, width, height))
        region.id, region.parent_id = FRAME_ID, -1
    else:
        region = Region.from_address(found)
        region.x, region.y, region.w, region.h = 0, 0, width, height


def witness(buffer: Any) -> tuple[int, int, int, int] | None:
    """The whole-frame region (x, y, width, height) as it is now, None where an element removed it."""
    found = _get(hash(buffer), FRAME_ID)
    if not found:
        return None
    region = Region.from_address(found)
    return region.x, region.y, region.w, region.h


def read(buffer: Any) -> Iterator[Region]:
    """Every region of interest on a buffer, ours and others'; valid while the buffer is."""
    pointer, state = hash(buffer), C.c_void_p()
    while True:
        found = _iterate(pointer, state, _api)
        if not found:
            return
        yield Region.from_address(found)


def write(buffer: Any, detections: Detections | None, width: int, height: int) -> None:
    """Puts one region per object on a writable buffer in place of those of ours that are there.

    A region has the label as its type, row + 1 as its id, and a ``detection`` parameter with ``confidence`` (double),
    ``label_id`` (int) and ``tracker_id`` (int64, -1 where untracked).
    """
    pointer = hash(buffer)
    for old in [C.addressof(r) for r in read(buffer) if r.parent_id == FRAME_ID]:
        _remove(pointer, old)
    if detections is None or not len(detections):
        return
    named = detections.named(None)
    labels = named.label or []
    boxes = named.xyxy.round().clip(0, (width, height, width, height)).astype(int)
    boxes[:, 2:] = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    quarks = {t: _quark(t.encode("utf-8", "replace").replace(b"\0", b"") or b"object") for t in set(labels)}
    tracks = [-1] * len(named) if named.tracker_id is None else named.tracker_id.tolist()
    rows = zip(labels, boxes.tolist(), named.confidence.tolist(), named.class_id.tolist(), tracks)
    for number, (label, box, confidence, class_id, track) in enumerate(rows, 1):
        meta = _add(pointer, quarks[label], *box)
        region = Region.from_address(meta)
        region.id, region.parent_id = number, FRAME_ID
        _add_param(
            meta,
            _structure_new(
                b"detection",
                b"confidence", _DOUBLE, confidence,
                b"label_id", _INT, class_id,
                b"tracker_id", _INT64, track,
                None,
            ),
        )  # fmt: skip
