"""Which box belongs to which track: overlaps of whole batches of frames in one step, and the best assignment."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign", "overlaps"]

Int = NDArray[np.intp]
Float = NDArray[np.float64]

CHUNK = 250_000
"""Most pairs looked at in one go, which bounds the memory of crowded batches."""


def overlaps(tracks: Float, boxes: Float, frame: Int, start: Int, count: Int) -> tuple[Int, Int, Float]:
    """Pairs of a track and a box of the same frame that touch.

    Args:
        tracks: ``[T,4]`` (x1,y1,x2,y2).
        boxes: ``[D,4]``, frame by frame.
        frame: ``[T]`` frame of each track.
        start: ``[B]`` first row of each frame's boxes.
        count: ``[B]`` number of each frame's boxes.

    Returns:
        Rows of ``tracks``, rows of ``boxes``, and their intersection over union, above 0.
    """
    left, top, right, bottom = np.ascontiguousarray(tracks.T)
    box_left, box_top, box_right, box_bottom = np.ascontiguousarray(boxes.T)
    candidates = count[frame]
    total = np.cumsum(candidates)
    if not total.size or not total[-1]:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    parts = []
    low = 0
    while low < len(tracks):
        before = total[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(total, before + CHUNK, "right")))
        per = candidates[low:high]
        i = np.repeat(np.arange(low, high), per)
        j = np.arange(len(i)) + np.repeat(start[frame[low:high]] - (total[low:high] - per - before), per)
        near = np.flatnonzero((left[i] < box_right[j]) & (box_left[j] < right[i]))
        i, j = i[near], j[near]
        near = np.flatnonzero((top[i] < box_bottom[j]) & (box_top[j] < bottom[i]))
        parts.append((i[near], j[near]))
        low = high
    i, j = (np.concatenate(rows) for rows in zip(*parts)) if len(parts) > 1 else parts[0]
    width = np.minimum(right[i], box_right[j]) - np.maximum(left[i], box_left[j])
    height = np.minimum(bottom[i], box_bottom[j]) - np.maximum(top[i], box_top[j])
    shared = width * height
    area, box_area = (right - left) * (bottom - top), (box_right - box_left) * (box_bottom - box_top)
    return i, j, shared / (area[i] + box_area[j] - shared)


def assign(i: Int, j: Int, score: Float, least: float, frame: Int) -> tuple[Int, Int]:
    """One-to-one pairs with the greatest sum of ``score - least``; pairs at or below ``least`` never match.

    Args:
        i: ``[P]`` rows of tracks.
        j: ``[P]`` rows of boxes.
        score: ``[P]``, the more the better.
        least: Gate.
        frame: ``[T]`` frame of each track.
    """
    good = np.flatnonzero(score > least)
    i, j, score = i[good], j[good], score[good]
    if not len(i):
        return i, j
    # A pair whose track and box have no other candidate belongs to every best assignment.
    alone = (np.bincount(i)[i] == 1) & (np.bincount(j)[j] == 1)
    if alone.all():
        return i, j
    found = [(i[alone], j[alone])]
    i, j, score = i[~alone], j[~alone], score[~alone] - least
    order = np.argsort(frame[i], kind="stable")
    i, j, score = i[order], j[order], score[order]
    for group in _runs(frame[i]):
        found.append(_best(i[group], j[group], score[group]))
    rows, columns = (np.concatenate(part) for part in zip(*found))
    return rows, columns


def _runs(values: Any) -> list[slice]:
    """Slices of equal neighbours."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [slice(a, b) for a, b in pairwise(edges)]


def _best(i: Int, j: Int, gain: Float) -> tuple[Int, Int]:
    from scipy.optimize import linear_sum_assignment

    rows, row = np.unique(i, return_inverse=True)
    columns, column = np.unique(j, return_inverse=True)
    gains = np.zeros((len(rows), len(columns)))
    gains[row, column] = gain
    r, c = linear_sum_assignment(gains, maximize=True)
    real = gains[r, c] > 0
    return rows[r[real]], columns[c[real]]
