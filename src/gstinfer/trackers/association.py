"""Which box belongs to which track: overlaps of whole batches of frames in one step, and the best assignment."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign", "overlaps"]

Int = NDArray[np.intp]
Float = NDArray[np.float64]

CHUNK = 250_000
"""Most pairs looked at in one go, which bounds the memory of crowded batches."""


def overlaps(tracks: Float, boxes: Float, frame: Int, box_frame: Int) -> tuple[Int, Int, Float]:
    """Pairs of a track and a box of the same frame that touch.

    Boxes are sorted by their left side, so that only those within reach of a track are looked at.

    Args:
        tracks: ``[T,4]`` (x1,y1,x2,y2), finite.
        boxes: ``[D,4]``, finite.
        frame: ``[T]`` frame of each track.
        box_frame: ``[D]`` frame of each box.

    Returns:
        Rows of ``tracks``, rows of ``boxes``, and their intersection over union, above 0.
    """
    left, top, right, bottom = np.ascontiguousarray(tracks.T)
    box_left, box_top, box_right, box_bottom = np.ascontiguousarray(boxes.T)
    low, high = box_left.min(initial=np.inf), box_right.max(initial=-np.inf)
    if not len(tracks) or not low < high:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    widest = np.zeros(max(int(frame.max()), int(box_frame.max())) + 1)
    np.maximum.at(widest, box_frame, box_right - box_left)
    # Frames lie side by side on one axis, further apart than any two of their sides.
    span = 2 * (high - low) + 2
    place = box_frame * span + (box_left - low)
    order = np.argsort(place)
    place, base = place[order], frame * span
    first = np.searchsorted(place, base + np.clip(left - low - widest[frame], -1, span / 2))
    reach = np.searchsorted(place, base + np.clip(right - low, -1, span / 2))
    candidates = np.maximum(reach - first, 0)
    total = np.cumsum(candidates)
    parts = [(np.zeros(0, np.intp), np.zeros(0, np.intp))]
    start = 0
    while start < len(tracks):
        before = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, before + CHUNK, "right")))
        per = candidates[start:stop]
        i = np.repeat(np.arange(start, stop), per)
        j = order[np.arange(len(i)) + np.repeat(first[start:stop] - (total[start:stop] - per - before), per)]
        near = (left[i] < box_right[j]) & (top[i] < box_bottom[j]) & (box_top[j] < bottom[i])
        parts.append((i[near], j[near]))
        start = stop
    i, j = (np.concatenate(rows) for rows in zip(*parts))
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
    # Rows and columns of the gains, numbered frame by frame.
    rows, row = np.unique(frame[i] * len(frame) + i, return_inverse=True)
    columns, column = np.unique(frame[i] * (int(j.max()) + 1) + j, return_inverse=True)
    rows, columns = rows % len(frame), columns % (int(j.max()) + 1)
    order = np.argsort(row, kind="stable")
    i, row, column, score = i[order], row[order], column[order], score[order]
    edges = [0, *(np.flatnonzero(np.diff(frame[i])) + 1).tolist(), len(i)]
    for group in (slice(a, b) for a, b in pairwise(edges)):
        r, c = _best(row[group], column[group], score[group])
        found.append((rows[r], columns[c]))
    matched, with_box = (np.concatenate(part) for part in zip(*found))
    return matched, with_box


def _best(row: Int, column: Int, gain: Float) -> tuple[Int, Int]:
    from scipy.optimize import linear_sum_assignment

    first_row, first_column = row.min(), column.min()
    gains = np.zeros((row.max() - first_row + 1, column.max() - first_column + 1))
    gains[row - first_row, column - first_column] = gain
    r, c = linear_sum_assignment(gains, maximize=True)
    real = gains[r, c] > 0
    return r[real] + first_row, c[real] + first_column
