"""Model outputs are dirty: what cannot be published is dropped and counted by reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from gstinfer.results import Classifications, Detections, Result, SegmentationMap, Text

__all__ = ["Dropped", "sanitize"]


class Dropped(Counter):  # type: ignore[type-arg]
    """Counts of dropped rows by reason: non-finite, empty, outside, class, confidence."""


def sanitize(result: Result, width: int, height: int, dropped: Dropped) -> Result:
    """A result with finite numbers only, boxes clipped to the frame and dirty rows dropped.

    Args:
        result: In frame pixels.
        width: Of the frame.
        height: Of the frame.
        dropped: Counters that are added to.
    """
    if isinstance(result, Detections):
        return _detections(result, width, height, dropped)
    if isinstance(result, Classifications):
        good = np.isfinite(result.confidence) & (result.class_id >= 0)
        if good.all():
            return result
        dropped["non-finite"] += int((~good).sum())
        label = None if result.label is None else [t for t, g in zip(result.label, good) if g]
        return replace(result, class_id=result.class_id[good], confidence=result.confidence[good], label=label)
    if isinstance(result, SegmentationMap) and result.confidence is not None:
        return replace(result, confidence=np.nan_to_num(result.confidence, posinf=1, neginf=0))
    if isinstance(result, Text):
        return result
    return result


def _detections(result: Detections, width: int, height: int, dropped: Dropped) -> Detections:
    if not len(result):
        return result
    finite = np.isfinite(result.xyxy).all(1) & np.isfinite(result.confidence)
    if result.obb is not None:
        finite &= np.isfinite(result.obb).all(1)
    with np.errstate(invalid="ignore"):
        box = np.clip(result.xyxy, 0, np.array([width, height, width, height], np.float32))
        # A confidence may exceed 1 by rounding; more than that is no probability.
        confidence = (result.confidence >= 0) & (result.confidence <= 1.001)
        reversed_ = (result.xyxy[:, 2] <= result.xyxy[:, 0]) | (result.xyxy[:, 3] <= result.xyxy[:, 1])
        outside = (box[:, 2] <= box[:, 0]) | (box[:, 3] <= box[:, 1])
    named = result.class_id >= 0
    keep = np.ones(len(result), bool)
    for reason, good in (
        ("non-finite", finite),
        ("confidence", confidence),
        ("class", named),
        ("empty", ~reversed_),
        ("outside", ~outside),
    ):
        bad = keep & ~good
        if bad.any():
            dropped[reason] += int(bad.sum())
            keep &= good
    clean = result if keep.all() else result[keep]
    xyxy, confidence_ = box[keep], np.minimum(clean.confidence, 1).astype(np.float32)
    keypoints = clean.keypoints
    if keypoints is not None and not np.isfinite(keypoints).all():
        bad_points = ~np.isfinite(keypoints).all(-1)
        dropped["keypoint"] += int(bad_points.sum())
        keypoints = np.where(bad_points[..., None], np.array([0, 0, -1], np.float32), keypoints)
    return replace(clean, xyxy=xyxy, confidence=confidence_, keypoints=keypoints)
