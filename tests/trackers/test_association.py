"""The batch-wise assignment against a plain one, pair by pair and frame by frame."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gstinfer.trackers import association
from gstinfer.trackers.association import assign, overlaps


def iou(a: np.ndarray, b: np.ndarray) -> float:
    w, h = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = max(0.0, w) * max(0.0, h)
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def scene(seed: int, frames: int, count: int, spread: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-spread, spread, (count * 2, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 60, low.shape)], 1)
    return boxes[:count], boxes[count:], rng.integers(0, frames, count), np.sort(rng.integers(0, frames, count))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12), st.sampled_from([20.0, 100.0]), st.booleans())
def test_overlaps_are_those_of_all_pairs(seed: int, frames: int, count: int, spread: float, small_chunks: bool) -> None:
    tracks, boxes, frame, box_frame = scene(seed, frames, count, spread)
    before, association.CHUNK = association.CHUNK, 3 if small_chunks else association.CHUNK
    try:
        i, j, found = overlaps(tracks, boxes, frame, box_frame)
    finally:
        association.CHUNK = before
    expected = {
        (a, b): iou(tracks[a], boxes[b])
        for a, b in itertools.product(range(count), range(count))
        if frame[a] == box_frame[b] and iou(tracks[a], boxes[b]) > 0
    }
    got = dict(zip(zip(i.tolist(), j.tolist()), found.tolist()))
    assert len(got) == len(i) and got.keys() == expected.keys()
    assert all(abs(got[pair] - expected[pair]) < 1e-9 for pair in got)


def test_a_track_far_outside_of_all_boxes_meets_none() -> None:
    far = np.array([[1e9, 0, 1e9 + 5, 5], [-1e9, 0, 5 - 1e9, 5], [0, 0, 5, 5]])
    boxes = np.array([[0, 0, 5, 5], [0, 0, 5, 5]], float)
    i, j, found = overlaps(far, boxes, np.array([0, 1, 1]), np.array([0, 1]))
    assert (i.tolist(), j.tolist(), found.tolist()) == ([2], [1], [1.0])


def best(pairs: dict[tuple[int, int], float]) -> float:
    """The greatest sum over all one-to-one choices, by trying them."""
    if not pairs:
        return 0.0
    first = min(i for i, _ in pairs)
    rest = {p: s for p, s in pairs.items() if p[0] != first}
    options = [s + best({p: v for p, v in rest.items() if p[1] != j}) for (i, j), s in pairs.items() if i == first]
    return max([best(rest), *options])


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.floats(0, 1), max_size=14),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.floats(0, 0.6),
)
def test_assignment_is_the_best_one(pairs: dict[tuple[int, int], float], frame: list[int], least: float) -> None:
    # Boxes of another frame have numbers of their own.
    scores = {(i, j + 10 * frame[i]): s for (i, j), s in pairs.items()}
    i, j = (np.array([p[k] for p in scores], np.intp) for k in (0, 1))
    a, b = assign(i, j, np.array(list(scores.values())), least, np.array(frame))
    chosen = list(zip(a.tolist(), b.tolist()))
    assert len(set(a.tolist())) == len(a) and len(set(b.tolist())) == len(b)
    assert all(scores[p] > least for p in chosen)
    allowed = {p: s - least for p, s in scores.items() if s > least}
    assert abs(sum(scores[p] - least for p in chosen) - best(allowed)) < 1e-9
