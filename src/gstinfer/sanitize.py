"""Model outputs are dirty: what cannot be published is dropped and counted by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ResultError
from gstinfer.results import Classifications, Detections, Result, SegmentationMap

__all__ = ["Complaints", "Dropped", "clip_batch", "sanitize"]


class Dropped(Counter[str]):
    """Counts of what was dropped, by reason.

    ``non-finite``, ``confidence`` (no probability), ``class`` (negative), ``empty`` (no area, or corners the wrong way),
    ``outside`` (of the frame), ``keypoint`` and ``attribute`` (one of a kept object). ``unnamed`` counts objects that were
    kept: their class is beyond the last label.
    """


_COMPLAINTS = {
    "non-finite": "numbers that are not finite (NaN or infinity); such objects are left out",
    "confidence": "a confidence outside 0 to 1; such objects are left out",
    "class": "a negative class; such objects are left out",
    "keypoint": "keypoints that are not finite; they count as not seen",
    "attribute": "an attribute whose confidence is not finite; it is left out",
    "unnamed": "a class beyond the last of the labels; its number is shown in place of a name",
}
"""What only a mistake explains; boxes outside of the frame and without area are everyday."""


class Complaints:
    """Says what is wrong with the results of a model, each kind once.

    Args:
        tell: Gets the error, on the thread that looks.
    """

    def __init__(self, tell: Callable[[ResultError], None]) -> None:
        self._tell = tell
        self._told: set[tuple[str, str]] = set()

    def look(self, model: str, dropped: Dropped) -> None:
        """Tells what a model's counts show that was not told before."""
        for reason, said in _COMPLAINTS.items() if dropped else ():
            if dropped[reason] and (model, reason) not in self._told:
                self._told.add((model, reason))
                self._tell(ResultError(f"{model} gave {said}", hint=f"stats counts them as objects-{reason}"))


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
        return _classifications(result, dropped)
    if isinstance(result, SegmentationMap) and result.confidence is not None:
        return replace(result, confidence=np.nan_to_num(result.confidence, nan=0, posinf=1, neginf=0))
    return result


def clip_batch(results: list[Detections], sizes: list[tuple[int, int]]) -> list[Detections | None]:
    """Plain boxes of a whole batch clipped in one step, as ``sanitize`` would; None for a frame with rows to drop.

    Args:
        results: One per frame, without rotated boxes, keypoints and attributes.
        sizes: (width, height) of each frame.
    """
    counts = [len(result) for result in results]
    if not any(counts):
        return list(results)
    xyxy, confidence, class_id = (
        np.concatenate([getattr(result, name) for result in results]) if len(results) > 1 else getattr(results[0], name)
        for name in ("xyxy", "confidence", "class_id")
    )
    limits = np.array([size * 2 for size in sizes], np.float32)
    box = np.clip(xyxy, 0, np.repeat(limits, counts, axis=0) if len(sizes) > 1 else limits)
    # Whatever is not a number compares as false. Clipping keeps the order of corners, so it need not be looked at before.
    with np.errstate(invalid="ignore"):
        upright, finite = box[:, 2:] > box[:, :2], np.isfinite(xyxy)
        if upright.all() and finite.all() and confidence.min() >= 0 and confidence.max() <= 1 and class_id.min() >= 0:
            return _split(results, box, counts)
        good = upright.all(1) & finite.all(1) & (confidence >= 0) & (confidence <= 1) & (class_id >= 0)
    dirty = set(np.searchsorted(np.cumsum(counts), np.flatnonzero(~good), "right").tolist())
    return [None if k in dirty else result for k, result in enumerate(_split(results, box, counts))]


def _split(results: list[Detections], box: NDArray[np.float32], counts: list[int]) -> list[Detections | None]:
    """The results with other boxes."""
    if len(results) == 1:
        return [results[0].with_columns(xyxy=box)]
    ends = accumulate(counts)
    return [result.with_columns(xyxy=box[end - count : end]) for result, count, end in zip(results, counts, ends)]


def _keep(tests: tuple[tuple[str, NDArray[np.bool_]], ...], dropped: Dropped) -> NDArray[np.bool_]:
    """Rows that pass all tests; each of the others is counted once, under the first that it fails."""
    keep = np.ones(len(tests[0][1]), np.bool_)
    for reason, good in tests:
        bad = keep & ~good
        if bad.any():
            dropped[reason] += int(bad.sum())
            keep = keep & good
    return keep


def _probable(confidence: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether numbers may be probabilities; one may exceed 1 by rounding, but not by more."""
    with np.errstate(invalid="ignore"):
        probable: NDArray[np.bool_] = (confidence >= 0) & (confidence <= 1.001)
    return probable


def _classifications(result: Classifications, dropped: Dropped) -> Classifications:
    confidence = result.confidence
    tests = (
        ("non-finite", np.isfinite(confidence)),
        ("confidence", _probable(confidence)),
        ("class", result.class_id >= 0),
    )
    keep = _keep(tests, dropped)
    label = None if result.label is None else [text for text, good in zip(result.label, keep) if good]
    return replace(
        result, class_id=result.class_id[keep], confidence=np.minimum(confidence[keep], 1), label=label
    )


def _detections(result: Detections, width: int, height: int, dropped: Dropped) -> Detections:
    if not len(result):
        return result
    finite: NDArray[np.bool_] = np.isfinite(result.xyxy).all(1) & np.isfinite(result.confidence)
    if result.obb is not None:
        finite = finite & np.isfinite(result.obb).all(1)
    with np.errstate(invalid="ignore"):
        box = np.clip(result.xyxy, 0, np.array([width, height, width, height], np.float32))
        ordered = (result.xyxy[:, 2] > result.xyxy[:, 0]) & (result.xyxy[:, 3] > result.xyxy[:, 1])
        inside = (box[:, 2] > box[:, 0]) & (box[:, 3] > box[:, 1])
    tests = (
        ("non-finite", finite),
        ("confidence", _probable(result.confidence)),
        ("class", result.class_id >= 0),
        ("empty", ordered),
        ("outside", inside),
    )
    keep = _keep(tests, dropped)
    clean = result if keep.all() else result[keep]
    keypoints = clean.keypoints
    if keypoints is not None and not np.isfinite(keypoints).all():
        bad_points: NDArray[np.bool_] = np.logical_not(np.isfinite(keypoints).all(-1))
        dropped["keypoint"] += int(bad_points.sum())
        keypoints = np.where(bad_points[..., None], np.array([0, 0, -1], np.float32), keypoints)
    attributes = clean.attributes
    if attributes is not None:
        attributes = [tuple(a for a in row if np.isfinite(a.confidence)) for row in attributes]
        lost = sum(map(len, clean.attributes or [])) - sum(map(len, attributes))
        if lost:
            dropped["attribute"] += lost
    return clean.with_columns(
        xyxy=box if clean is result else box[keep],
        confidence=np.minimum(clean.confidence, 1),
        keypoints=keypoints,
        attributes=attributes,
    )
