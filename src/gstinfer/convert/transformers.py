"""What ``transformers``' pipelines and post-processing give for one picture: lists of dicts, segments, poses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gstinfer.convert.arrays import name_ids, to_numpy
from gstinfer.errors import ResultError
from gstinfer.results import Classifications, Detections, Mask, Result

__all__ = ["convert", "matches"]


def matches(item: Any) -> bool:
    """Whether it is a list of labelled dicts, or a dict of segments."""
    if isinstance(item, Mapping):
        return "segmentation" in item and "segments_info" in item
    return isinstance(item, list) and all(isinstance(row, Mapping) and "label" in row for row in item)


def convert(item: Any) -> Result | None:
    """Objects, or classes of the whole picture."""
    if isinstance(item, Mapping):
        return _segments(to_numpy(item["segmentation"]), item["segments_info"])
    if not item:
        return None
    names = [str(row["label"]) for row in item]
    scores = np.array([1.0 if row.get("score") is None else row["score"] for row in item], np.float32)
    classes = name_ids(names)
    if "box" in item[0]:
        boxes = [[row["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")] for row in item]
        return Detections(np.array(boxes, np.float32), scores, classes, label=names)
    if "mask" in item[0]:
        return _masked([np.asarray(row["mask"]) > 0 for row in item], scores, classes, names)
    return Classifications(classes, scores, names)


def _segments(areas: Any, segments: Any) -> Detections:
    """Objects of an instance or panoptic segmentation: ``[H,W]`` of segment ids, or of -1 where there is none."""
    if areas.ndim != 2:
        raise ResultError(f"a segmentation must have shape [H,W], got {list(areas.shape)}")
    return _masked(
        [areas == segment["id"] for segment in segments],
        np.array([segment.get("score", 1.0) for segment in segments], np.float32),
        np.array([segment["label_id"] for segment in segments], np.int32),
        None,
    )


def _masked(whole: Any, scores: Any, classes: Any, names: Any) -> Detections:
    """Objects whose boxes are what their masks cover; those that cover nothing are left out."""
    masks = [Mask.from_frame(mask) for mask in whole]
    kept = [number for number, mask in enumerate(masks) if mask.bitmap.size]
    boxes = [
        [m.x, m.y, m.x + m.bitmap.shape[1], m.y + m.bitmap.shape[0]] for m in (masks[number] for number in kept)
    ]
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        scores[kept],
        classes[kept],
        label=None if names is None else [names[number] for number in kept],
        mask=[masks[number] for number in kept],
    )
