"""GstAnalytics (GStreamer 1.24 and later): objects, tracks, classes and class maps for elements that are not ours.

Probed by its symbols, never by a version: oriented objects came later than objects. Keypoints and texts have no meta
here yet and travel in the carrier alone.
"""

from __future__ import annotations

import ctypes as C
import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gstinfer.errors import HostError
from gstinfer.hosts.gstbuffer import function, library
from gstinfer.results import Classifications, Detections, FrameResults, SegmentationMap

__all__ = ["available", "length", "write"]

_log = logging.getLogger(__name__)
_NONE = (1 << 64) - 1
_RELATE_TO, _N_TO_N = 1 << 3, 1 << 4
_SEMANTIC = 0
_GRAY8, _GRAY16_LE = 25, 27


class _Mtd(C.Structure):
    """``GstAnalyticsMtd``: a handle of one entry."""

    _fields_ = (("id", C.c_uint), ("meta", C.c_void_p))


class _InitParams(C.Structure):
    _fields_ = (("initial_relation_order", C.c_size_t), ("initial_buf_size", C.c_size_t))


class _Functions:
    """The functions of the library that this GStreamer has.

    Raises:
        HostError: The library or what every version has is missing.
    """

    def __init__(self) -> None:
        lib, gst, glib, video = (
            library(f"lib{name}.so.0") for name in ("gstanalytics-1.0", "gstreamer-1.0", "glib-2.0", "gstvideo-1.0")
        )
        p, mtd, ok, i, f, u = C.c_void_p, C.POINTER(_Mtd), C.c_int, C.c_int, C.c_float, C.c_uint
        prefix = "gst_analytics_relation_meta_"
        try:
            self.get = function(lib, "gst_buffer_get_analytics_relation_meta", p, p)
            self.add = function(lib, "gst_buffer_add_analytics_relation_meta_full", p, p, C.POINTER(_InitParams))
            self.length = function(lib, "gst_analytics_relation_get_length", C.c_size_t, p)
            self.object = function(lib, prefix + "add_od_mtd", ok, p, u, i, i, i, i, f, mtd)
            self.track = function(lib, prefix + "add_tracking_mtd", ok, p, C.c_uint64, C.c_uint64, mtd)
            self.classes = function(lib, prefix + "add_cls_mtd", ok, p, C.c_size_t, C.POINTER(f), C.POINTER(u), mtd)
            self.relate = function(lib, prefix + "set_relation", ok, p, i, u, u)
        except AttributeError as error:
            raise HostError(f"this GstAnalytics is too old: {error}") from error
        self.oriented = self._optional(lib, prefix + "add_oriented_od_mtd", ok, p, u, i, i, i, i, f, f, mtd)
        self.segmentation = self._optional(
            lib, prefix + "add_segmentation_mtd", ok, p, p, i, C.c_size_t, C.POINTER(u), i, i, u, u, mtd
        )
        self.remove_meta = function(gst, "gst_buffer_remove_meta", ok, p, p)
        self.quark = function(glib, "g_quark_from_string", u, C.c_char_p)
        self.new_buffer = function(gst, "gst_buffer_new_allocate", p, p, C.c_size_t, p)
        self.fill = function(gst, "gst_buffer_fill", C.c_size_t, p, C.c_size_t, C.c_char_p, C.c_size_t)
        self.add_video_meta = function(video, "gst_buffer_add_video_meta", p, p, i, i, u, u)

    @staticmethod
    def _optional(lib: C.CDLL, name: str, *types: Any) -> Callable[..., int] | None:
        try:
            return function(lib, name, *types)
        except AttributeError:
            return None


@functools.cache
def _functions() -> _Functions | None:
    try:
        return _Functions()
    except HostError as error:
        _log.debug("no GstAnalytics: %s", error)
        return None


def available() -> bool:
    """Whether this GStreamer has GstAnalytics."""
    return _functions() is not None


def length(buffer: Any) -> int:
    """How many entries the GstAnalytics meta of a buffer has, ours and others'."""
    c = _functions()
    meta = c.get(hash(buffer)) if c is not None else None
    return int(c.length(meta)) if c is not None and meta else 0


def write(buffer: Any, results: FrameResults, width: int, height: int, ours: int = 0) -> int:
    """Puts results on a writable buffer, in place of those that are there when all of them are ours.

    Args:
        buffer: A ``Gst.Buffer``.
        results: In pixels of its frame.
        width: Of that frame.
        height: Of that frame.
        ours: What the last call for this buffer returned. Entries cannot be taken out one by one, so ours are replaced
            only where there are no others; else the first ones stay, which is said once.

    Returns:
        Number of entries where all are ours, else 0.
    """
    c = _functions()
    assert c is not None
    pointer = hash(buffer)
    meta = c.get(pointer)
    if meta and ours:
        if c.length(meta) != ours:
            _say_shared()
            return 0
        c.remove_meta(pointer, meta)
        meta = None
    foreign = bool(meta)
    if not meta:
        count = _count(results)
        if not count:
            return 0
        meta = c.add(pointer, _InitParams(count, 64 * count))
    if results.detections is not None:
        _write_objects(c, meta, results.detections, width, height)
    for classes in results.classifications:
        _write_classes(c, meta, classes)
    if results.segmentation is not None and c.segmentation is not None:
        _write_class_map(c, meta, results.segmentation, width, height)
    return 0 if foreign else int(c.length(meta))


@functools.cache
def _say_shared() -> None:
    _log.warning(
        "another element writes GstAnalytics on the same buffers: what ours change later stays in gstinfer's own record"
    )


def _count(results: FrameResults) -> int:
    d = results.detections
    count = len(results.classifications) + 2 * (results.segmentation is not None)
    if d is not None:
        count += len(d) * (1 if d.tracker_id is None else 2) + sum(map(bool, d.attributes or ()))
    return count


def _quark(c: _Functions, text: str) -> int:
    return int(c.quark(text.encode("utf-8", "replace").replace(b"\0", b"") or b"object"))


def _write_objects(c: _Functions, meta: int, d: Detections, width: int, height: int) -> None:
    named, entry = d.named(None), _Mtd()
    boxes = named.xyxy.round().clip(0, (width, height, width, height)).astype(int).tolist()
    rotated = named.obb.tolist() if named.obb is not None and c.oriented is not None else None
    tracks = named.tracker_id.tolist() if named.tracker_id is not None else None
    quarks = {label: _quark(c, label) for label in set(named.label or ())}
    for row, ((x1, y1, x2, y2), confidence, label) in enumerate(
        zip(boxes, named.confidence.tolist(), named.label or ())
    ):
        if rotated is not None:
            cx, cy, w, h, angle = rotated[row]
            assert c.oriented is not None
            place = (round(cx - w / 2), round(cy - h / 2), round(w), round(h), math.remainder(angle, math.tau))
            c.oriented(meta, quarks[label], *place, confidence, entry)
        else:
            c.object(meta, quarks[label], x1, y1, max(0, x2 - x1), max(0, y2 - y1), confidence, entry)
        number = entry.id
        if tracks is not None and tracks[row] >= 0:
            c.track(meta, tracks[row], _NONE, entry)
            c.relate(meta, _RELATE_TO, number, entry.id)
        if named.attributes is not None and named.attributes[row]:
            words = named.attributes[row]
            _add_classes(c, meta, [a.label for a in words], [a.confidence for a in words], entry)
            c.relate(meta, _RELATE_TO, number, entry.id)


def _write_classes(c: _Functions, meta: int, classes: Classifications) -> None:
    named = classes.named(None)
    if len(named):
        _add_classes(c, meta, named.label or [], named.confidence.tolist(), _Mtd())


def _add_classes(c: _Functions, meta: int, labels: list[str], confidences: list[float], entry: _Mtd) -> None:
    n = len(labels)
    c.classes(meta, n, (C.c_float * n)(*confidences), (C.c_uint * n)(*(_quark(c, t) for t in labels)), entry)


def _write_class_map(c: _Functions, meta: int, segmentation: SegmentationMap, width: int, height: int) -> None:
    """The map as a grey picture of class + 1, 0 where no class; one class entry names its regions in order."""
    values = np.asarray(segmentation.class_map) + 1
    if not values.size or c.segmentation is None:
        return
    kind, format_ = (np.uint8, _GRAY8) if values.max() <= 255 else (np.uint16, _GRAY16_LE)
    rows, columns = values.shape
    row = columns * np.dtype(kind).itemsize
    picture = np.zeros((rows, row + -row % 4), np.uint8)
    picture[:, :row] = values.astype(kind).view(np.uint8)
    regions = np.unique(values).tolist()
    mask = c.new_buffer(None, picture.size, None)
    c.fill(mask, 0, picture.tobytes(), picture.size)
    c.add_video_meta(mask, 0, format_, columns, rows)
    entry, words = _Mtd(), _Mtd()
    ids = (C.c_uint * len(regions))(*regions)
    c.segmentation(meta, mask, _SEMANTIC, len(regions), ids, 0, 0, width, height, entry)
    names = segmentation.label or []
    labels = [
        "background" if region == 0 else names[region - 1] if region <= len(names) else str(region - 1)
        for region in regions
    ]
    _add_classes(c, meta, labels, [1.0] * len(labels), words)
    c.relate(meta, _N_TO_N, entry.id, words.id)
