"""Non-maximum suppression of upright and rotated boxes. Dirty rows never suppress anybody; they come last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import obb_hull
from gstinfer.heads.base import Thresholds

__all__ = ["nms", "nms_rotated", "probiou"]

MOST = 30000
"""Candidates of a frame that are looked at, strongest first."""


def nms(
    xyxy: NDArray[np.float32], score: NDArray[np.float32], class_id: NDArray[Any], thresholds: Thresholds
) -> NDArray[np.int64]:
    """Rows to keep, strongest first: greedy, a box falls when it overlaps a kept one by more than ``thresholds.iou``.

    Args:
        xyxy: ``[N,4]``.
        score: ``[N]``.
        class_id: ``[N]``; boxes of different classes leave each other alone unless ``class_agnostic``.
        thresholds: Overlap and limit.

    Returns:
        At most ``limit`` clean rows, then all rows that are not finite, reversed or above 1: sanitising counts those.
    """
    import cv2

    dirty = _dirty(score, xyxy) | (xyxy[:, 2] <= xyxy[:, 0]) | (xyxy[:, 3] <= xyxy[:, 1])
    clean = _strongest(score, dirty)
    if not clean.size:
        return np.flatnonzero(dirty)
    boxes = xyxy[clean].astype(np.float64)
    boxes[:, 2:] -= boxes[:, :2]
    if not thresholds.class_agnostic:
        # Each class on an island of its own: faster and steadier than cv2.dnn.NMSBoxesBatched.
        reach = np.abs(boxes).sum(1).max() + 1
        boxes[:, 0] += class_id[clean] * (2 * reach)
    kept = cv2.dnn.NMSBoxes(boxes, score[clean].astype(np.float32), 0.0, float(thresholds.iou))
    kept = np.asarray(kept, np.int64).reshape(-1)[: thresholds.limit]
    return np.concatenate([clean[kept], np.flatnonzero(dirty)])


def nms_rotated(
    obb: NDArray[np.float32], score: NDArray[np.float32], class_id: NDArray[Any], thresholds: Thresholds
) -> NDArray[np.int64]:
    """Rows of rotated boxes ``[N,5]`` to keep, strongest first.

    A box falls when any stronger one, kept or not, reaches a probabilistic IoU of ``thresholds.iou`` with it: the rule
    and the measure of Ultralytics' rotated boxes. Returns dirty rows last, as ``nms`` does.
    """
    dirty = _dirty(score, obb) | (obb[:, 2] <= 0) | (obb[:, 3] <= 0)
    clean = _strongest(score, dirty)
    if not clean.size:
        return np.flatnonzero(dirty)
    boxes, classes = obb[clean], class_id[clean]
    first, second = _neighbours(obb_hull(boxes))
    if not thresholds.class_agnostic:
        same = classes[first] == classes[second]
        first, second = first[same], second[same]
    close = probiou(boxes[first], boxes[second]) >= thresholds.iou
    fallen = np.zeros(len(clean), bool)
    # Rows are sorted by score, so the greater index is the weaker box.
    fallen[np.maximum(first, second)[close]] = True
    return np.concatenate([clean[~fallen][: thresholds.limit], np.flatnonzero(dirty)])


def _dirty(score: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    return ~np.isfinite(boxes).all(1) | ~np.isfinite(score) | (score > 1.001)


def _strongest(score: NDArray[np.float32], dirty: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Clean rows, strongest first, equal scores in order of appearance."""
    clean = np.flatnonzero(~dirty)
    return clean[np.argsort(-score[clean], kind="stable")][:MOST]


def _neighbours(hull: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs of boxes ``[N,4]`` whose upright hulls touch: a sweep along x, so that far pairs are never made."""
    order = np.argsort(hull[:, 0], kind="stable")
    x1, y1, x2, y2 = hull[order].T
    count = np.searchsorted(x1, x2, "right") - np.arange(len(x1)) - 1
    first = np.repeat(np.arange(len(x1)), count)
    step = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    second = first + 1 + step
    touch = (y1[first] <= y2[second]) & (y1[second] <= y2[first])
    return order[first[touch]], order[second[touch]]


def probiou(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """IoU of rotated boxes ``[N,5]`` taken as Gaussians, pair by pair.

    One minus the Hellinger distance, from "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union for Object
    Detection" (Llerena et al., 2021).
    """
    eps = 1e-7
    a1, b1, c1 = _covariance(first)
    a2, b2, c2 = _covariance(second)
    dx, dy = (first[:, :2] - second[:, :2]).astype(np.float64).T
    a, b, c = a1 + a2, b1 + b2, c1 + c2
    det = a * b - c * c + eps
    near = (a * dy**2 + b * dx**2) / det / 4 - (c * dx * dy) / det / 2
    areas = np.sqrt(np.maximum(a1 * b1 - c1**2, 0) * np.maximum(a2 * b2 - c2**2, 0))
    shape = np.log((a * b - c * c) / (4 * areas + eps) + eps) / 2
    distance = np.clip(near + shape, eps, 100)
    return 1 - np.sqrt(1 - np.exp(-distance) + eps)


def _covariance(obb: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Entries (xx, yy, xy) of the covariance of uniform rotated boxes."""
    w, h = obb[:, 2].astype(np.float64) ** 2 / 12, obb[:, 3].astype(np.float64) ** 2 / 12
    cos, sin = np.cos(obb[:, 4].astype(np.float64)), np.sin(obb[:, 4].astype(np.float64))
    return w * cos**2 + h * sin**2, w * sin**2 + h * cos**2, (w - h) * cos * sin
