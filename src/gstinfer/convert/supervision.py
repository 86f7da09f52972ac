"""``supervision``'s Detections, KeyPoints and Classifications, and anything with their columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gstinfer.convert.arrays import to_numpy
from gstinfer.results import Classifications, Detections, Result

__all__ = ["convert", "matches"]

CORNERS = "xyxyxyxy"
NAMES = "class_name"
KNOWN = (CORNERS, NAMES, "xyxy", "source_shape", "source_image")
"""Keys of ``data`` that become columns of ours, or say nothing about single objects."""


def matches(item: Any) -> bool:
    """Whether it has the columns of one."""
    if hasattr(item, "xyxy") or hasattr(item, "xy"):
        return hasattr(item, "class_id") and not isinstance(item, Detections)
    return hasattr(item, "class_id") and hasattr(item, "confidence") and not isinstance(item, Classifications)


def convert(item: Any) -> Result | None:
    """Our kind of the result."""
    data = dict(getattr(item, "data", None) or {})
    if not hasattr(item, "xyxy") and not hasattr(item, "xy"):
        classes = to_numpy(item.class_id).ravel()
        given = np.ones(len(classes)) if item.confidence is None else to_numpy(item.confidence)
        scores = given.astype(np.float32)
        best = np.argsort(-scores, kind="stable")
        return Classifications(classes[best], scores[best])
    columns: dict[str, Any] = {"class_id": _column(item, "class_id"), "tracker_id": _column(item, "tracker_id")}
    if hasattr(item, "xyxy"):
        xyxy = to_numpy(item.xyxy).reshape(-1, 4)
        columns["confidence"] = _column(item, "confidence")
        mask = getattr(item, "mask", None)
        columns["mask"] = None if mask is None else to_numpy(np.asarray(mask)).astype(bool)
        if CORNERS in data and len(xyxy):
            columns["obb"] = _rotated(to_numpy(data[CORNERS]).reshape(-1, 4, 2))
    else:
        points = to_numpy(item.xy).astype(np.float32)
        said = getattr(item, "keypoint_confidence", None)
        said = getattr(item, "confidence", None) if said is None else said
        scores = np.ones(points.shape[:2], np.float32) if said is None else to_numpy(said).astype(np.float32)
        columns["keypoints"] = np.concatenate([points, scores.reshape(*points.shape[:2], 1)], -1)
        columns["confidence"] = _column(item, "detection_confidence")
        xyxy = to_numpy(data["xyxy"]) if "xyxy" in data else np.concatenate([points.min(1), points.max(1)], 1)
    if NAMES in data:
        columns["label"] = [str(name) for name in data[NAMES]]
    rest = {key: value for key, value in data.items() if key not in KNOWN and len(value) == len(xyxy)}
    return Detections(xyxy, data=rest, **columns)


def _column(item: Any, name: str) -> Any:
    value = getattr(item, name, None)
    return None if value is None else to_numpy(value).reshape(-1)


def _rotated(corners: Any) -> Any:
    """Rotated boxes ``[N,5]`` from corners ``[N,4,2]`` in order around them."""
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    angle = np.arctan2(along[:, 1], along[:, 0])
    sides = np.linalg.norm(along, axis=1), np.linalg.norm(across, axis=1)
    return np.stack([*corners.mean(1).T, *sides, angle], 1).astype(np.float32)
