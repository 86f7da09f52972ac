"""Dirty outputs: what is dropped, under which reason, and what is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gstinfer import Attribute, Classifications, Detections, SegmentationMap, Text
from gstinfer.sanitize import Complaints, Dropped, clip_batch, sanitize

GOOD = (1, 2, 30, 40)


@pytest.mark.parametrize(
    ("box", "confidence", "class_id", "reason"),
    [
        ((np.nan, 0, 5, 5), 0.5, 0, "non-finite"),
        ((0, 0, np.inf, 5), 0.5, 0, "non-finite"),
        (GOOD, np.nan, 0, "non-finite"),
        (GOOD, 1.5, 0, "confidence"),
        (GOOD, -0.1, 0, "confidence"),
        (GOOD, 0.5, -1, "class"),
        ((5, 5, 5, 9), 0.5, 0, "empty"),
        ((9, 5, 5, 9), 0.5, 0, "empty"),
        ((0, 0, 0, 0), 0.0, 0, "empty"),
        ((-50, 0, -1, 9), 0.5, 0, "outside"),
        ((0, 90, 9, 99), 0.5, 0, "outside"),
    ],
)
def test_each_dirt_is_dropped_under_its_reason(box, confidence, class_id, reason):
    dropped = Dropped()
    found = sanitize(Detections([GOOD, box, GOOD], [0.9, confidence, 0.8], [1, class_id, 2]), 100, 80, dropped)
    assert dropped == {reason: 1}
    assert found.confidence.tolist() == pytest.approx([0.9, 0.8]) and found.class_id.tolist() == [1, 2]


def test_clean_rows_are_clipped_and_nothing_is_counted():
    dropped = Dropped()
    found = sanitize(Detections([(-5, -5, 200, 30), GOOD], [1.0005, 0.5], [0, 12345]), 100, 80, dropped)
    assert found.xyxy.tolist() == [[0, 0, 100, 30], list(GOOD)]
    assert found.confidence.tolist() == [1, 0.5]
    assert found.class_id.tolist() == [0, 12345], "an unknown class keeps its number"
    assert not dropped


def test_a_rotated_box_with_a_bad_angle_goes():
    dropped = Dropped()
    obb = [[10, 10, 4, 4, 0], [10, 10, 4, 4, np.nan]]
    assert len(sanitize(Detections([GOOD, GOOD], obb=obb), 100, 80, dropped)) == 1
    assert dropped == {"non-finite": 1}


def test_bad_keypoints_and_attributes_do_not_take_their_object_along():
    dropped = Dropped()
    points = np.array([[[1, 2, 0.5], [np.nan, 2, 0.5]]], np.float32)
    marks = [(Attribute("red", 0, 0.5), Attribute("old", 1, float("nan")))]
    found = sanitize(Detections([GOOD], keypoints=points, attributes=marks), 100, 80, dropped)
    assert found.keypoints.tolist() == [[[1, 2, 0.5], [0, 0, -1]]]
    assert [a.label for a in found.attributes[0]] == ["red"]
    assert dropped == {"keypoint": 1, "attribute": 1}


def test_classifications():
    dropped = Dropped()
    found = sanitize(
        Classifications([1, 2, -3, 4], [0.5, np.nan, 0.5, 7.0], label=["a", "b", "c", "d"]), 100, 80, dropped
    )
    assert found.class_id.tolist() == [1] and found.label == ["a"]
    assert dropped == {"non-finite": 1, "class": 1, "confidence": 1}


def test_complaints_are_said_once_and_only_about_mistakes():
    said = []
    complaints = Complaints(said.append)
    complaints.look("net", Dropped({"outside": 3, "empty": 1}))
    assert said == []
    for _ in range(2):
        complaints.look("net", Dropped({"non-finite": 2, "unnamed": 1}))
    complaints.look("other", Dropped({"non-finite": 1}))
    assert [str(error).split(" (")[0] for error in said] == [
        "net gave numbers that are not finite",
        "net gave a class beyond the last of the labels; its number is shown in place of a name",
        "other gave numbers that are not finite",
    ]
    assert "objects-non-finite" in said[0].hint


def test_other_kinds_pass():
    scores = np.array([[np.nan, 0.5], [np.inf, -np.inf]], np.float32)
    found = sanitize(SegmentationMap(np.zeros((2, 2)), confidence=scores), 2, 2, Dropped())
    assert found.confidence.tolist() == [[0, 0.5], [1, 0]]
    text = Text("words")
    assert sanitize(text, 2, 2, Dropped()) is text
    assert len(sanitize(Detections.empty(), 2, 2, Dropped())) == 0


@given(arrays(np.float32, st.tuples(st.integers(0, 6), st.just(6)), elements=st.floats(width=32)))
def test_whatever_comes_only_publishable_rows_leave(rows):
    dropped = Dropped()
    with np.errstate(invalid="ignore"):
        given_ = Detections(rows[:, :4], rows[:, 4], np.nan_to_num(rows[:, 5], posinf=9, neginf=-9).clip(-9, 9))
    found = sanitize(given_, 64, 48, dropped)
    assert len(found) + sum(dropped.values()) == len(rows)
    assert np.isfinite(found.xyxy).all() and np.isfinite(found.confidence).all()
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all() and (found.class_id >= 0).all()
    assert (found.xyxy >= 0).all() and (found.xyxy <= (64, 48, 64, 48)).all()
    assert (found.xyxy[:, 2:] > found.xyxy[:, :2]).all()


@given(
    boxes=arrays(np.float32, (6, 4), elements=st.floats(-30, 130, width=32)),
    scores=arrays(np.float32, 6, elements=st.floats(-0.125, 1.125, width=32)),
    dirt=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
def test_a_batch_clipped_in_one_step_equals_frame_by_frame(boxes, scores, dirt):
    if dirt is not None:
        boxes[2, 1] = dirt
    parts = [Detections(boxes[:4], scores[:4]), Detections.empty(), Detections(boxes[4:], scores[4:])]
    sizes = [(100, 80), (10, 10), (64, 48)]
    for quick, part, size in zip(clip_batch(parts, sizes), parts, sizes):
        dropped = Dropped()
        alone = sanitize(part, *size, dropped)
        if quick is None:
            assert dropped or part.confidence.max() > 1
            continue
        assert not dropped
        np.testing.assert_array_equal(quick.xyxy, alone.xyxy)
        np.testing.assert_array_equal(quick.confidence, alone.confidence)
