"""One message per frame, in the schema ``gstinfer/1``: plain dicts and lists that JSON can hold.

``gstinfer-1.schema.json`` beside this file is the same schema for machines; ``docs/messages.md`` explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np

from gstinfer.frames import Frame
from gstinfer.geometry import clip_boxes, obb_corners
from gstinfer.results import Attribute, Classifications, Detections, Text

__all__ = ["SCHEMA", "message", "utc"]

SCHEMA = "gstinfer/1"

_PIXEL, _SCORE = 3, 6
"""Decimals kept: a thousandth of a pixel, and what a float32 between 0 and 1 can tell apart."""


def message(frame: Frame) -> dict[str, Any]:
    """What is known about a frame, as a ``gstinfer/1`` message.

    ``objects`` is left out where inference was skipped and where only other kinds of results are there; it is empty
    where inference ran and found nothing. Non-finite objects are left out. Copies what it needs.
    """
    results = frame.results
    detections = results.detections
    others = bool(results.classifications or results.texts or results.segmentation or results.tensors)
    inferred = results.inferred if results.inferred is not None else detections is not None or others
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "stream_id": results.stream_id or str(frame.stream_id),
        "source": frame.source or None,
        "sequence": int(frame.sequence),
        "pts": frame.pts if frame.pts is not None and 0 <= frame.pts < 1 << 63 else None,
        "time": utc(frame.time),
        "width": frame.width,
        "height": frame.height,
        "model": results.model or None,
        "inferred": bool(inferred),
    }
    if inferred and detections is not None:
        out["objects"] = _objects(detections, frame.width, frame.height)
    elif inferred and not others:
        out["objects"] = []
    classes = [item for part in results.classifications for item in _classes(part)]
    if classes:
        out["classifications"] = classes
    if results.texts:
        out["texts"] = [_text(text) for text in results.texts]
    return out


def utc(time: int | None) -> str | None:
    """ns since the epoch as ISO-8601 in UTC with microseconds, such as ``2024-05-01T12:00:00.250000Z``."""
    if time is None or not 0 <= time < 1 << 63:
        return None
    seconds, rest = divmod(time, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest // 1000, tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _objects(found: Detections, width: int, height: int) -> list[dict[str, Any]]:
    if not len(found):
        return []
    finite = np.isfinite(found.xyxy).all(1) & np.isfinite(np.asarray(found.confidence))
    if found.obb is not None:
        finite &= np.isfinite(found.obb).all(1)
    if not finite.all():
        found = found[finite]
    boxes = _numbers(clip_boxes(found.xyxy, width, height), _PIXEL)
    ids = [None] * len(found) if found.tracker_id is None else found.tracker_id.tolist()
    classes = np.asarray(found.class_id).tolist()
    scores = np.asarray(found.confidence).tolist()
    labels = found.label or [""] * len(found)
    objects: list[dict[str, Any]] = [
        {
            "bbox": box,
            "confidence": _score(confidence),
            "class_id": class_id,
            "label": label or str(class_id),
            "tracker_id": None if tracker_id is None or tracker_id < 0 else tracker_id,
        }
        for box, confidence, class_id, label, tracker_id in zip(boxes, scores, classes, labels, ids)
    ]
    if found.obb is not None:
        corners = _numbers(obb_corners(found.obb), _PIXEL)
        for item, angle, points in zip(objects, _numbers(found.obb[:, 4], _SCORE), corners):
            item["angle"], item["corners"] = angle, points
    if found.keypoints is not None:
        points = found.keypoints.astype(np.float64)
        absent = ~np.isfinite(points).all(-1) | (points[..., 2] < 0)
        points[absent] = 0
        for item, row, gone in zip(objects, _numbers(points, _PIXEL), absent.all(1).tolist()):
            if not gone:
                item["keypoints"] = row
    if found.mask is not None:
        for item, mask in zip(objects, found.mask):
            if mask.bitmap.size:
                item["mask"] = mask.rle(width, height)
    if found.parent is not None:
        for item, parent in zip(objects, found.parent.tolist()):
            if parent >= 0:
                item["parent"] = parent
    if found.attributes is not None:
        for item, attributes in zip(objects, found.attributes):
            if attributes:
                item["attributes"] = [_class(attribute) for attribute in attributes]
    return objects


def _numbers(values: Any, decimals: int) -> Any:
    # float64 first: a float32 rounded to 0.1 would be printed as 0.10000000149.
    return np.asarray(values, np.float64).round(decimals).tolist()


def _score(value: float) -> float | None:
    """A confidence; None where it is unknown: trackers that go on without a detection write a negative one."""
    return round(value, _SCORE) if math.isfinite(value) and value >= 0 else None


def _class(attribute: Attribute) -> dict[str, Any]:
    label = attribute.label or str(attribute.class_id)
    return {"label": label, "class_id": int(attribute.class_id), "confidence": _score(float(attribute.confidence))}


def _classes(part: Classifications) -> list[dict[str, Any]]:
    return [_class(attribute) for attribute in part.attributes()]


def _text(text: Text) -> dict[str, Any]:
    known = {
        "data": _plain(text.data),
        "start": text.start,
        "end": text.end,
        "prompt_id": text.prompt_id or None,
        "model": text.model or None,
        "tokens": text.tokens,
        "latency": text.latency,
        "finish_reason": text.finish_reason or None,
        "invalid": text.invalid or None,
        "tracker_id": text.tracker_id,
    }
    return {"text": text.text, **{key: value for key, value in known.items() if value is not None}}


def _plain(value: Any) -> Any:
    """A foreign structure as JSON can hold it: NaN and infinity become None, what is unknown becomes its text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item) for item in value]
    return str(value)
