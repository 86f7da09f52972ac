"""How well two sets of results agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import obb_corners
from gstinfer.results import Classifications, Detections, Mask, Result, SegmentationMap

__all__ = ["Agreement", "Limits", "overlaps", "pairs"]

LEAST = 0.5
"""Overlap from which two boxes count as one object."""


@dataclass(frozen=True)
class Limits:
    """What counts as agreement.

    Attributes:
        matched: Least share of the objects that both sides have, 0..1.
        iou: Least mean overlap of matched objects.
        score: Greatest mean difference of their scores.
    """

    matched: float
    iou: float
    score: float


def overlaps(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Intersection over union ``[N,M]`` of boxes ``[N,4]`` and ``[M,4]``."""
    first, second = np.asarray(first, np.float64)[:, None], np.asarray(second, np.float64)[None]
    shared = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2])
    inner = np.maximum(shared, 0).prod(-1)
    whole = (first[..., 2:] - first[..., :2]).prod(-1) + (second[..., 2:] - second[..., :2]).prod(-1) - inner
    return np.divide(inner, whole, out=np.zeros_like(inner), where=whole > 0)


def pairs(iou: NDArray[np.float64], same: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Rows and columns that belong together: the assignment of the greatest sum of overlaps of at least one half."""
    from scipy.optimize import linear_sum_assignment

    worth = np.where(same & (iou >= LEAST), iou, 0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    return [(int(r), int(c)) for r, c in zip(rows, columns) if worth[r, c] > 0]


@dataclass
class Agreement:
    """Sums over frames; ``add`` takes one frame's two results.

    A class of a whole frame counts as one object whose overlap is 1 where both sides name the same; a class map as one whose
    overlap is the share of equal pixels.

    Attributes:
        least: The confidence threshold. Both sides may give objects below it: such a one is looked at only where the other side
            has the same object above, since which side of the threshold a score falls on says nothing about its size.
        frames: Frames compared.
        ours: Objects of ours above the threshold.
        theirs: Objects of the reference above it.
        alone: Objects above it that the other side lacks altogether.
        one_side: Matched objects that are below it on one side.
        iou: Overlap of each matched pair: of boxes; of rotated ones, the rotated boxes'.
        score: Difference of its scores.
        other_class: Objects that both sides see in one place under different classes.
        mask: Overlap of each matched pair's masks.
        points: Distance in pixels of each matched pair's keypoints that both are sure of.
    """

    least: float = 0.0
    frames: int = 0
    ours: int = 0
    theirs: int = 0
    alone: int = 0
    one_side: int = 0
    iou: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    other_class: int = 0
    mask: list[float] = field(default_factory=list)
    points: list[float] = field(default_factory=list)

    @property
    def matched(self) -> float:
        """Objects that both sides have, of all that one has; 1 where there are none."""
        return len(self.iou) / (len(self.iou) + self.alone) if self.iou or self.alone else 1.0

    @property
    def both(self) -> float:
        """Objects that both sides have above the threshold, of all that one has there."""
        return 1 - (self.alone + self.one_side) / ((len(self.iou) + self.alone) or 1)

    @property
    def mean_iou(self) -> float:
        return float(np.mean(self.iou)) if self.iou else 1.0

    @property
    def mean_score(self) -> float:
        return float(np.mean(self.score)) if self.score else 0.0

    def within(self, limits: Limits) -> bool:
        """Whether all is as near as is asked for."""
        return self.matched >= limits.matched and self.mean_iou >= limits.iou and self.mean_score <= limits.score

    def add(self, ours: Sequence[Result], theirs: Sequence[Result], size: tuple[int, int] | None = None) -> None:
        """One frame. Kinds of results that only one side has count as objects that the other lacks.

        Args:
            ours: Of the pipeline.
            theirs: Of the reference.
            size: (width, height) of the frame, which keypoints are clipped to: some libraries do.
        """
        self.frames += 1
        mine, other = _of(ours, Detections), _of(theirs, Detections)
        if mine is not None or other is not None:
            self._objects(mine or Detections.empty(), other or Detections.empty(), size)
        mine, other = _of(ours, Classifications), _of(theirs, Classifications)
        if mine is not None or other is not None:
            self._classes(mine, other)
        mine, other = _of(ours, SegmentationMap), _of(theirs, SegmentationMap)
        if mine is not None or other is not None:
            self._count(mine is not None, other is not None)
            if mine is None or other is None:
                self.alone += 1
            else:
                self.iou.append(_equal_share(mine.class_map, other.class_map))
                self.score.append(0.0)

    def _objects(self, ours: Detections, theirs: Detections, size: tuple[int, int] | None) -> None:
        # A score that a buffer or a library carries in float32 may lie a step under the threshold it reached.
        high = ours.confidence >= self.least - 1e-6
        other = theirs.confidence >= self.least - 1e-6
        self._count(int(high.sum()), int(other.sum()))
        iou = overlaps(ours.xyxy, theirs.xyxy)
        if ours.obb is not None and theirs.obb is not None:
            # Hulls that are cut at the frame's edge may agree where the objects do not.
            for i, j in np.argwhere(iou > 0):
                iou[i, j] = _rotated(ours.obb[i], theirs.obb[j])
        found = [(i, j) for i, j in pairs(iou, ours.class_id[:, None] == theirs.class_id[None]) if high[i] or other[j]]
        rows = np.setdiff1d(np.flatnonzero(high), [i for i, _ in found])
        columns = np.setdiff1d(np.flatnonzero(other), [j for _, j in found])
        self.alone += len(rows) + len(columns)
        self.one_side += sum(high[i] != other[j] for i, j in found)
        rest = iou[np.ix_(rows, columns)]
        if rest.size:
            self.other_class += len(pairs(rest, np.ones(rest.shape, bool)))
        for i, j in found:
            self.iou.append(float(iou[i, j]))
            self.score.append(abs(float(ours.confidence[i]) - float(theirs.confidence[j])))
            if ours.mask is not None and theirs.mask is not None:
                self.mask.append(_masks(ours.mask[i], theirs.mask[j]))
            if ours.keypoints is not None and theirs.keypoints is not None:
                self.points += _distances(ours.keypoints[i], theirs.keypoints[j], size)

    def _count(self, ours: int, theirs: int) -> None:
        self.ours, self.theirs = self.ours + ours, self.theirs + theirs

    def _classes(self, ours: Classifications | None, theirs: Classifications | None) -> None:
        mine, other = (found is not None and len(found) > 0 for found in (ours, theirs))
        self._count(mine, other)
        if ours is None or theirs is None or not mine or not other:
            self.alone += mine or other
            return
        if ours.class_id[0] != theirs.class_id[0]:
            self.alone += 2
            self.other_class += 1
            return
        self.iou.append(1.0)
        self.score.append(abs(float(ours.confidence[0]) - float(theirs.confidence[0])))

    def as_dict(self) -> dict[str, Any]:
        """The figures for a report."""
        figures: dict[str, Any] = {
            "frames": self.frames,
            "objects": self.ours,
            "reference_objects": self.theirs,
            "matched": round(self.matched, 5),
            "above_threshold_on_both_sides": round(self.both, 5),
            "mean_iou": round(self.mean_iou, 5),
            "least_iou": round(min(self.iou, default=1.0), 5),
            "mean_score_difference": round(self.mean_score, 6),
            "greatest_score_difference": round(max(self.score, default=0.0), 6),
            "other_class": self.other_class,
        }
        if self.mask:
            figures["mean_mask_iou"] = round(float(np.mean(self.mask)), 5)
        if self.points:
            figures["mean_keypoint_distance"] = round(float(np.mean(self.points)), 4)
        return figures


def _of(results: Sequence[Result], kind: type[Any]) -> Any:
    """The result of a kind, or None."""
    return next((r for r in results if isinstance(r, kind)), None)


def _rotated(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Intersection over union of two rotated boxes.

    The corners of one are cut along each side of the other (Sutherland and Hodgman); OpenCV's intersection of convex
    polygons errs where two are nearly the same.
    """
    shared, other = (obb_corners(box)[0].astype(np.float64) for box in (first, second))
    other = other if _area(other) > 0 else other[::-1]
    whole = abs(_area(shared)) + _area(other)
    for start, end in zip(other, np.roll(other, -1, 0)):
        side = end - start
        inside = side[0] * (shared[:, 1] - start[1]) - side[1] * (shared[:, 0] - start[0])
        kept = []
        for here, next_, d, e in zip(shared, np.roll(shared, -1, 0), inside, np.roll(inside, -1)):
            if d >= 0:
                kept.append(here)
            if d * e < 0:
                kept.append(here + (next_ - here) * (d / (d - e)))
        shared = np.array(kept).reshape(-1, 2)
    inner = abs(_area(shared))
    return inner / (whole - inner) if whole > inner else 0.0


def _area(polygon: NDArray[np.float64]) -> float:
    """Negative where the corners go round the other way."""
    x, y = polygon.T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def _masks(first: Mask, second: Mask) -> float:
    (h1, w1), (h2, w2) = first.bitmap.shape, second.bitmap.shape
    left, top = min(first.x, second.x), min(first.y, second.y)
    shape = max(first.y + h1, second.y + h2) - top, max(first.x + w1, second.x + w2) - left
    whole = np.zeros((2, *shape), bool)
    for canvas, mask, (h, w) in zip(whole, (first, second), ((h1, w1), (h2, w2))):
        canvas[mask.y - top : mask.y - top + h, mask.x - left : mask.x - left + w] = mask.bitmap
    union = int(whole.any(0).sum())
    return int(whole.all(0).sum()) / union if union else 1.0


def _distances(first: NDArray[Any], second: NDArray[Any], size: tuple[int, int] | None) -> list[float]:
    sure = (first[:, 2] >= LEAST) & (second[:, 2] >= LEAST)
    places = [points[sure, :2] if size is None else np.clip(points[sure, :2], 0, size) for points in (first, second)]
    away = np.hypot(*(places[0] - places[1]).T)
    return [float(d) for d in away]


def _equal_share(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Share of equal pixels, the finer map looked at through the coarser one's cells."""
    height, width = (min(a, b) for a, b in zip(first.shape, second.shape))

    def seen(classes: NDArray[Any]) -> NDArray[Any]:
        rows = ((np.arange(height) + 0.5) * classes.shape[0] / height).astype(int)
        columns = ((np.arange(width) + 0.5) * classes.shape[1] / width).astype(int)
        part: NDArray[Any] = classes[rows[:, None], columns]
        return part

    return float((seen(first) == seen(second)).mean())
