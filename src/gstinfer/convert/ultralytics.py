"""Ultralytics ``Results``: boxes, masks, keypoints, rotated boxes, class probabilities, class maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gstinfer.convert.arrays import to_numpy
from gstinfer.geometry import ImageTransform, obb_hull
from gstinfer.results import Classifications, Detections, Mask, Result, SegmentationMap

__all__ = ["convert", "matches"]

BEST = 5
"""Classes of a classifier that are kept."""


def matches(item: Any) -> bool:
    """Whether it has the columns of one."""
    return all(hasattr(item, name) for name in ("boxes", "probs", "names", "orig_shape"))


def convert(item: Any) -> Result | None:
    """Our kind of the result; None where it holds nothing that is known."""
    height, width = item.orig_shape[:2]
    names = item.names
    if getattr(item, "semantic_mask", None) is not None:
        return SegmentationMap(to_numpy(item.semantic_mask.data).reshape(height, width))
    if item.probs is not None:
        scores = to_numpy(item.probs.data).astype(np.float32).ravel()
        best = np.argsort(-scores, kind="stable")[:BEST].astype(np.int32)
        return Classifications(best, scores[best], _labels(names, best))
    rotated = getattr(item, "obb", None)
    boxes = item.boxes if rotated is None else rotated
    if boxes is None:
        return None
    classes = to_numpy(boxes.cls).astype(np.int32).reshape(-1)
    columns: dict[str, Any] = {}
    if getattr(boxes, "id", None) is not None:
        columns["tracker_id"] = to_numpy(boxes.id).astype(np.int64)
    if rotated is not None:
        columns["obb"] = to_numpy(rotated.xywhr).astype(np.float32)
    # Of rotated boxes the hull.
    xyxy = to_numpy(boxes.xyxy).astype(np.float32) if rotated is None else obb_hull(columns["obb"])
    if getattr(item, "masks", None) is not None and len(classes):
        masks = to_numpy(item.masks.data).astype(np.float32)
        # Masks are as large as the network's input, letterboxed like it.
        transform = ImageTransform.plan((width, height), (masks.shape[2], masks.shape[1]))
        columns["mask"] = [Mask.from_frame(m, b) for m, b in zip(transform.masks_to_frame(masks), xyxy)]
    if getattr(item, "keypoints", None) is not None and len(classes):
        points = to_numpy(item.keypoints.data).astype(np.float32)
        if points.shape[-1] == 2:
            points = np.concatenate([points, np.ones((*points.shape[:-1], 1), np.float32)], -1)
        columns["keypoints"] = points
    confidence = to_numpy(boxes.conf).astype(np.float32)
    return Detections(xyxy, confidence, classes, label=_labels(names, classes), **columns)


def _labels(names: Any, classes: Any) -> list[str]:
    known = names if isinstance(names, Mapping) else dict(enumerate(names or ()))
    return [str(known.get(int(number), int(number))) for number in classes]
