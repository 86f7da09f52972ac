"""Agreement of two sets of results."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gstinfer import Classifications, Detections, SegmentationMap
from gstinfer.parity.matching import Agreement, Limits, overlaps


def boxes(*rows, scores=None, classes=None, **columns) -> Detections:
    count = len(rows)
    return Detections(np.array(rows, np.float32).reshape(-1, 4), scores or [0.9] * count, classes or [0] * count, **columns)


def agreement(ours, theirs, least=0.0) -> Agreement:
    found = Agreement(least)
    found.add([ours], [theirs])
    return found


def test_overlaps():
    got = overlaps(np.array([[0, 0, 10, 10]]), np.array([[0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30], [3, 3, 3, 3]]))
    assert np.allclose(got, [[1, 1 / 3, 0, 0]])


def test_the_same_is_the_same():
    found = agreement(boxes([0, 0, 10, 10], [20, 0, 30, 9]), boxes([20, 0, 30, 9], [0, 0, 10, 10]))
    assert found.matched == found.both == found.mean_iou == 1 and found.mean_score == 0 and found.alone == 0
    assert found.within(Limits(1, 1, 0))


def test_what_one_side_lacks_counts_on_either_side():
    assert agreement(boxes([0, 0, 10, 10], [20, 0, 30, 9]), boxes([0, 0, 10, 10])).matched == 0.5
    assert agreement(boxes([0, 0, 10, 10]), boxes([0, 0, 10, 10], [20, 0, 30, 9])).matched == 0.5
    assert agreement(boxes(), boxes([0, 0, 10, 10])).matched == 0
    assert agreement(boxes(), boxes()).matched == 1


def test_each_object_is_matched_once_and_the_whole_overlaps_most():
    """The greedy choice, 0 with 0, would leave the second pair apart."""
    ours, theirs = boxes([0, 0, 10, 10], [2, 0, 12, 10]), boxes([1, 0, 11, 10], [-3, 0, 7, 10])
    assert agreement(ours, theirs).matched == 1
    assert agreement(boxes([0, 0, 10, 10], [0, 0, 10, 10]), boxes([0, 0, 10, 10])).matched == 0.5


def test_another_class_is_no_match_but_is_named():
    found = agreement(boxes([0, 0, 10, 10], classes=[1]), boxes([0, 0, 10, 10], classes=[2]))
    assert found.matched == 0 and found.other_class == 1 and found.alone == 2


def test_which_side_of_the_threshold_a_score_falls_on_is_a_score_difference():
    found = agreement(boxes([0, 0, 10, 10], scores=[0.41]), boxes([0, 0, 10, 10], scores=[0.39]), 0.4)
    assert (found.ours, found.theirs, found.alone, found.one_side) == (1, 0, 0, 1)
    assert found.matched == 1 and found.both == 0 and found.mean_score == pytest.approx(0.02)


def test_below_the_threshold_on_both_sides_nothing_counts():
    found = agreement(boxes([0, 0, 10, 10], scores=[0.39]), boxes([50, 0, 60, 10], scores=[0.38]), 0.4)
    assert found.ours == found.theirs == found.alone == 0 and not found.iou
    lone = agreement(boxes([0, 0, 10, 10], scores=[0.41]), boxes([50, 0, 60, 10], scores=[0.38]), 0.4)
    assert lone.alone == 1 and lone.matched == 0


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_rotated_boxes_are_told_apart_where_their_hulls_are_not(turn):
    """A rectangle written with its sides exchanged is the same; one turned the other way is not, in the same hull."""
    first = np.array([[50, 50, 60, 20, 0.6]], np.float32)
    sides = first[:, [0, 1, 3, 2, 4]] if turn % 2 else first.copy()
    sides[:, 4] += turn * math.pi / 2
    same = agreement(Detections(None, obb=first), Detections(None, obb=sides))
    assert same.mean_iou == pytest.approx(1, abs=1e-5) and same.matched == 1
    mirrored = first * [1, 1, 1, 1, -1]
    assert agreement(Detections(None, obb=first), Detections(None, obb=mirrored)).matched == 0


def test_rotated_overlap_of_a_cross():
    upright, across = np.array([[0, 0, 40, 20, 0.0]], np.float32), np.array([[0, 0, 40, 20, math.pi / 6]], np.float32)
    # The overlap of two strips of width 20 at 30 degrees is a rhombus of height 20 and side 40, cut by the ends.
    points = np.stack(np.meshgrid(np.linspace(-25, 25, 1001), np.linspace(-25, 25, 1001)), -1)
    cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
    turned = points @ np.array([[cos, -sin], [sin, cos]])
    inside = [(np.abs(p[..., 0]) <= 20) & (np.abs(p[..., 1]) <= 10) for p in (points, turned)]
    want = (inside[0] & inside[1]).sum() / (inside[0] | inside[1]).sum()
    assert agreement(Detections(None, obb=upright), Detections(None, obb=across)).iou[0] == pytest.approx(want, abs=0.01)


def test_masks_and_keypoints_of_matched_objects():
    masks = np.zeros((2, 1, 20, 20), bool)
    masks[0, 0, :10, :10], masks[1, 0, :10, :5] = True, True
    points = np.array([[[5, 5, 0.9], [100, 5, 0.9], [3, 3, 0.1]]], np.float32)
    ours = boxes([0, 0, 20, 20], mask=masks[0], keypoints=points)
    theirs = boxes([0, 0, 20, 20], mask=masks[1], keypoints=points + np.array([3, 4, 0], np.float32))
    found = Agreement()
    found.add([ours], [theirs], (20, 20))
    assert found.mask == [0.5]
    # The second point lies outside of the frame on both sides: clipped, it differs in y alone; the third is unsure.
    assert found.points == [pytest.approx(5), pytest.approx(4)]


def test_classes_and_maps_of_whole_frames():
    first, second = Classifications([3, 1], [0.8, 0.1]), Classifications([3, 2], [0.75, 0.2])
    assert agreement(first, second).mean_score == pytest.approx(0.05)
    other = agreement(first, Classifications([1], [0.8]))
    assert other.matched == 0 and other.other_class == 1
    fine, coarse = np.zeros((4, 4), int), np.zeros((2, 2), int)
    fine[:2] = 1
    coarse[0, 0] = 1
    assert agreement(SegmentationMap(fine), SegmentationMap(coarse)).mean_iou == 0.75
