"""Suppression against a plain loop, and what dirty rows do to it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gstinfer.heads import Thresholds
from gstinfer.heads.nms import nms, nms_rotated, probiou


def crowd(objects, copies, classes, seed=0):
    """Boxes in clumps: (xyxy, score, class_id)."""
    random = np.random.default_rng(seed)
    centre = random.uniform(0, 600, (objects, 1, 2)) + random.normal(0, 3, (objects, copies, 2))
    size = random.uniform(20, 60, (objects, 1, 2)) + random.normal(0, 3, (objects, copies, 2))
    xyxy = np.concatenate([centre - size / 2, centre + size / 2], -1).reshape(-1, 4).astype(np.float32)
    score = random.uniform(0.3, 0.9, len(xyxy)).astype(np.float32)
    return xyxy, score, random.integers(0, classes, len(xyxy))


def iou(a, b):
    shared = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def by_loop(xyxy, score, class_id, thresholds):
    boxes, kept = xyxy.astype(np.float64), []
    for i in np.argsort(-score, kind="stable"):
        rivals = [k for k in kept if thresholds.class_agnostic or class_id[k] == class_id[i]]
        if all(iou(boxes[i], boxes[k]) <= thresholds.iou for k in rivals):
            kept.append(int(i))
    return kept[: thresholds.limit]


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("objects", [3, 60])
def test_equals_a_plain_loop(objects, overlap, agnostic):
    boxes = crowd(objects, 10, 3, seed=objects)
    thresholds = Thresholds(iou=overlap, class_agnostic=agnostic, limit=1000)
    assert nms(*boxes, thresholds).tolist() == by_loop(*boxes, thresholds)


def test_a_crowd_with_too_many_pairs_gives_the_same(monkeypatch):
    boxes, thresholds = crowd(60, 10, 2), Thresholds(iou=0.5, limit=1000)
    expected = nms(*boxes, thresholds).tolist()
    monkeypatch.setattr(module_of(), "CHUNK", 1)
    assert nms(*boxes, thresholds).tolist() == expected == by_loop(*boxes, thresholds)


def module_of():
    import sys

    return sys.modules["gstinfer.heads.nms"]


def test_equal_scores_keep_their_order():
    xyxy = np.array([[0, 0, 10, 10], [50, 0, 60, 10], [0, 0, 10, 10.5]], np.float32)
    same = np.full(3, 0.5, np.float32)
    assert nms(xyxy, same, np.zeros(3, int), Thresholds(iou=0.5)).tolist() == [0, 1]


def test_the_limit_keeps_the_strongest():
    xyxy = np.array([[100.0 * i, 0, 100 * i + 10, 10] for i in range(10)], np.float32)
    score = np.linspace(0.1, 0.9, 10).astype(np.float32)
    assert nms(xyxy, score, np.zeros(10, int), Thresholds(limit=3)).tolist() == [9, 8, 7]


def test_dirty_rows_suppress_nobody_and_are_handed_on():
    good = [10, 10, 50, 50]
    xyxy = np.array([good, good, [10, 10, np.nan, 50], [50, 50, 10, 10], good, [10, 10, np.inf, 50]], np.float32)
    score = np.array([0.5, np.inf, 0.9, 0.9, 7.0, 0.9], np.float32)
    assert nms(xyxy, score, np.zeros(6, int), Thresholds()).tolist() == [0, 1, 2, 3, 4, 5]
    assert nms(xyxy[1:2], score[1:2], np.zeros(1, int), Thresholds()).tolist() == [0]
    assert nms(xyxy[:0], score[:0], np.zeros(0, int), Thresholds()).tolist() == []


def rotated(xyxy, seed=1):
    angle = np.random.default_rng(seed).uniform(0, math.pi, len(xyxy))
    return np.column_stack([(xyxy[:, :2] + xyxy[:, 2:]) / 2, xyxy[:, 2:] - xyxy[:, :2], angle]).astype(np.float32)


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("overlap", [0.1, 0.45, 0.7])
def test_rotated_equals_every_pair_compared(overlap, agnostic):
    xyxy, score, class_id = crowd(40, 6, 3, seed=7)
    obb = rotated(xyxy)
    order = np.argsort(-score, kind="stable")
    i, j = np.triu_indices(len(obb), 1)
    first, second = order[i], order[j]
    hit = probiou(obb[first], obb[second]) >= overlap
    if not agnostic:
        hit &= class_id[first] == class_id[second]
    expected = [k for k in order.tolist() if k not in set(second[hit].tolist())]
    thresholds = Thresholds(iou=overlap, class_agnostic=agnostic, limit=1000)
    assert nms_rotated(obb, score, class_id, thresholds).tolist() == expected
    assert 0 < len(expected) < len(obb)


def test_rotation_matters():
    long_ = np.array([[50, 50, 80, 8, 0], [50, 50, 80, 8, math.pi / 2], [50, 50, 80, 8, math.pi]], np.float32)
    score = np.array([0.9, 0.8, 0.7], np.float32)
    assert nms_rotated(long_, score, np.zeros(3, int), Thresholds(iou=0.5)).tolist() == [0, 1]
    np.testing.assert_allclose(probiou(long_[:1], long_[2:]), 1, atol=1e-3)
    assert probiou(long_[:1], long_[1:2])[0] < 0.5


def test_rotated_dirty_rows_come_last():
    obb = np.array([[50, 50, 20, 20, 0], [50, 50, 20, 20, np.nan], [50, 50, -3, 20, 0]], np.float32)
    score = np.array([0.5, 0.9, 0.9], np.float32)
    assert nms_rotated(obb, score, np.zeros(3, int), Thresholds()).tolist() == [0, 1, 2]
