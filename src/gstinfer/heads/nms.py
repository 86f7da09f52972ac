"""Non-maximum suppression of upright and rotated boxes. Dirty rows never suppress anybody; they come last.

Only pairs near enough to reach the threshold are ever compared: a sweep along x over boxes shrunk by what the threshold
allows finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.heads.base import Thresholds

__all__ = ["nms", "nms_rotated", "probiou"]

MOST = 30000
"""Candidates of a frame that are looked at, strongest first."""
CHUNK = 1 << 19
"""Pairs compared at a time."""
FEW = 400
"""Boxes up to which OpenCV's one-by-one suppression is the faster one."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


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
    dirty = _dirty(score, xyxy) | (xyxy[:, 2] <= xyxy[:, 0]) | (xyxy[:, 3] <= xyxy[:, 1])
    clean = _strongest(score, dirty)
    if not clean.size:
        return np.flatnonzero(dirty)
    boxes = xyxy[clean].astype(np.float64)
    kept = _one_by_one if len(clean) <= FEW else _by_pairs
    return np.concatenate(
        [clean[kept(boxes, class_id[clean], thresholds)[: thresholds.limit]], np.flatnonzero(dirty)]
    )


def _by_pairs(boxes: NDArray[np.float64], class_id: NDArray[Any], thresholds: Thresholds) -> NDArray[np.int64]:
    """Indices kept of boxes sorted by score: all overlapping pairs first, who falls after."""
    size = boxes[:, 2:] - boxes[:, :2]
    centre = boxes[:, :2] + size / 2
    # An IoU above t leaves the centres of an axis nearer than (1 - t) times the mean of the sides.
    half = size * ((1 - thresholds.iou) / 2) + 1e-9
    sweep = _Sweep(_apart(centre, half, class_id, thresholds), half)
    if sweep.total > 4 * CHUNK:
        return _one_by_one(boxes, class_id, thresholds)
    hits = [(i[hit], j[hit]) for i, j in sweep for hit in [_iou(boxes, size, i, j) > thresholds.iou]]
    return _greedy(len(boxes), *(np.concatenate(side) for side in zip(*hits))) if hits else np.arange(len(boxes))


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
    boxes = obb[clean]
    # A Bhattacharyya distance of b leaves the centres of an axis nearer than sqrt(4 b (variance + variance)).
    b = -np.log(max(1 - (1 - thresholds.iou) ** 2, 1e-9))
    half = 2 * np.sqrt(1.001 * b * np.stack(_covariance(boxes)[:2], 1)) + 1e-3
    fallen = np.zeros(len(clean), bool)
    for i, j in _Sweep(_apart(boxes[:, :2].astype(np.float64), half, class_id[clean], thresholds), half):
        # Rows are sorted by score, so the greater index is the weaker box.
        fallen[np.maximum(i, j)[probiou(boxes[i], boxes[j]) >= thresholds.iou]] = True
    return np.concatenate([clean[~fallen][: thresholds.limit], np.flatnonzero(dirty)])


def _dirty(score: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    return ~np.isfinite(boxes).all(1) | ~np.isfinite(score) | (score > 1.001)


def _strongest(score: NDArray[np.float32], dirty: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Clean rows, strongest first, equal scores in order of appearance."""
    clean = np.flatnonzero(~dirty)
    return clean[np.argsort(-score[clean], kind="stable")][:MOST]


def _apart(
    centre: NDArray[np.float64], half: NDArray[np.float64], class_id: NDArray[Any], thresholds: Thresholds
) -> NDArray[np.float64]:
    """Centres with each class on an island of its own along x, unless classes suppress each other."""
    if thresholds.class_agnostic:
        return centre
    reach = 2 * (np.abs(centre[:, 0]) + half[:, 0]).max() + 1
    return np.stack([centre[:, 0] + class_id * reach, centre[:, 1]], 1)


class _Sweep:
    """Pairs of boxes (centre and half size, ``[N,2]``) that touch, in chunks.

    Attributes:
        total: Pairs that touch along x.
    """

    def __init__(self, centre: NDArray[np.float64], half: NDArray[np.float64]) -> None:
        low, high = centre[:, 0] - half[:, 0], centre[:, 0] + half[:, 0]
        self.order = np.argsort(low, kind="stable")
        self.y, self.half = centre[self.order, 1], half[self.order, 1]
        starts = np.arange(len(low))
        self.count = np.searchsorted(low[self.order], high[self.order], "right") - starts - 1
        self.total = int(self.count.sum())

    def __iter__(self) -> Iterator[Pairs]:
        rows = np.flatnonzero(self.count).astype(np.int32)
        ends = np.cumsum(self.count[rows])
        start = 0
        while start < len(rows):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + CHUNK, "right")))
            some, count = rows[start:stop], self.count[rows[start:stop]]
            skipped = (some + 1 - (np.cumsum(count) - count)).astype(np.int32)
            second = np.arange(count.sum(), dtype=np.int32) + np.repeat(skipped, count)
            apart = np.abs(np.repeat(self.y[some], count) - self.y[second])
            touch = np.flatnonzero(apart <= np.repeat(self.half[some], count) + self.half[second])
            first = np.repeat(some, count)[touch]
            yield self.order[first], self.order[second[touch]]
            start = stop


def _iou(boxes: NDArray[np.float64], size: NDArray[np.float64], i: NDArray[Any], j: NDArray[Any]) -> NDArray[Any]:
    first, second = boxes[i], boxes[j]
    shared = np.minimum(first[:, 2:], second[:, 2:]) - np.maximum(first[:, :2], second[:, :2])
    shared = np.maximum(shared, 0).prod(1)
    area = size.prod(1)
    result: NDArray[Any] = shared / (area[i] + area[j] - shared)
    return result


def _greedy(count: int, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices kept of ``count`` boxes, strongest first, with every overlapping pair given.

    Round by round: who has no stronger rival left stays, its rivals fall, and with them their own claims.
    """
    strong, weak = np.minimum(i, j), np.maximum(i, j)
    fallen = np.zeros(count, bool)
    while len(strong):
        stays = np.ones(count, bool)
        stays[weak] = False
        fallen[weak[stays[strong]]] = True
        open_ = ~(fallen[strong] | fallen[weak])
        strong, weak = strong[open_], weak[open_]
    return np.flatnonzero(~fallen)


def _one_by_one(boxes: NDArray[np.float64], class_id: NDArray[Any], thresholds: Thresholds) -> NDArray[np.int64]:
    """The same in OpenCV: faster for few boxes, and needs no list of pairs where a crowd's would fill the memory."""
    import cv2

    rectangles = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)
    if not thresholds.class_agnostic:
        rectangles[:, 0] += class_id * (2 * np.abs(boxes).max() + 1)
    # Falling scores by rank keep the order of equal ones, and a score of zero is not left out.
    rank = np.linspace(1, 0.5, len(boxes), dtype=np.float32)
    kept = cv2.dnn.NMSBoxes(rectangles, rank, 0.0, float(thresholds.iou))  # type: ignore[arg-type]
    return np.asarray(kept, np.int64).reshape(-1)


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
    result: NDArray[np.float64] = 1 - np.sqrt(1 - np.exp(-distance) + eps)
    return result


def _covariance(obb: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Entries (xx, yy, xy) of the covariance of uniform rotated boxes."""
    w, h = obb[:, 2].astype(np.float64) ** 2 / 12, obb[:, 3].astype(np.float64) ** 2 / 12
    cos, sin = np.cos(obb[:, 4].astype(np.float64)), np.sin(obb[:, 4].astype(np.float64))
    return w * cos**2 + h * sin**2, w * sin**2 + h * cos**2, (w - h) * cos * sin
