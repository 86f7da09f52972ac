"""Files with known right answers, straight through ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.heads import Thresholds, choose

from .support import described, run_case, session

R02 = Thresholds(confidence=0.5, iou=0.45)
BOX = [440, 260, 840, 460]


def decide(path, **properties):
    return choose(described(session(path)), **properties)


@pytest.mark.parametrize("classes", [1, 2, 80])
@pytest.mark.parametrize("transposed", [False, True])
def test_raw_candidates_of_any_class_count_and_orientation(cases, classes, transposed):
    path = cases / "models" / f"yolo_raw{'T' if transposed else ''}_nc{classes}.onnx"
    properties = {"head": "yolo", "layout": "channels-last"} if transposed else {}
    decision = decide(path, **properties)
    assert decision.head.name == "yolo"
    found = run_case(path, decision.head, thresholds=R02)
    expected = {1: [(0, 0.8)], 2: [(1, 0.8), (0, 0.6)]}.get(classes)
    if expected is not None:
        assert list(found.class_id) == [c for c, _ in expected]
        np.testing.assert_allclose(found.confidence, [s for _, s in expected], atol=1e-5)
    assert len(found) in (1, 2)
    np.testing.assert_allclose(found.xyxy, [BOX] * len(found), atol=0.6)


@pytest.mark.parametrize("name", ["yolo_rawT_nc2", "yolo_rawT_nc80", "yolo_raw_nc80_nometa", "yolov5_obj_nc2"])
def test_ambiguous_files_are_refused_with_candidates_and_the_property(cases, name):
    with pytest.raises(ConfigError, match=r"may be read as head=yolo .*set head="):
        decide(cases / "models" / f"{name}.onnx")


def test_agnostic_suppression_keeps_the_stronger_class(cases):
    path = cases / "models" / "yolo_raw_nc2.onnx"
    head = decide(path).head
    assert len(run_case(path, head, thresholds=R02)) == 2
    found = run_case(path, head, thresholds=replace(R02, class_agnostic=True))
    assert list(found.class_id) == [1] and found.confidence[0] == pytest.approx(0.8)


def test_two_readings_of_six_columns_follow_the_metadata(cases):
    corners = cases / "models" / "e2e_xyxy.onnx"
    decision = decide(corners)
    assert decision.head.name == "yolo-e2e"
    np.testing.assert_allclose(run_case(corners, decision.head).xyxy, [[480, 80, 800, 640]], atol=0.6)
    centres = cases / "models" / "rtdetr_q6.onnx"
    decision = decide(centres)
    assert decision.head.name == "detr"
    found = run_case(centres, decision.head)
    np.testing.assert_allclose(found.xyxy, [[480, 180, 800, 540]], atol=0.6)
    assert list(found.class_id) == [1]


@pytest.mark.parametrize("name", ["rfdetr3", "rfdetr3_swapped"])
def test_boxes_and_logits_of_equal_width_are_matched_by_name(cases, name):
    path = cases / "models" / f"{name}.onnx"
    decision = decide(path)
    assert decision.head.name == "detr"
    found = run_case(path, decision.head)
    assert list(found.class_id) == [2]
    assert found.confidence[0] == pytest.approx(0.9526, abs=1e-3)
    np.testing.assert_allclose(found.xyxy, [[480, 180, 800, 540]], atol=0.6)


def test_a_second_input_of_sizes_is_fed(cases):
    path = cases / "models" / "dfine.onnx"
    found = run_case(path, decide(path).head)
    assert list(found.class_id) == [1] and found.confidence[0] == pytest.approx(0.9, abs=1e-3)
    np.testing.assert_allclose(found.xyxy, [[480, 180, 800, 540]], atol=0.6)


def test_a_mask_covers_only_its_side_of_the_box(cases):
    path = cases / "models" / "seg.onnx"
    decision = decide(path)
    assert decision.head.name == "yolo-seg"
    found = run_case(path, decision.head)
    assert list(found.class_id) == [1] and found.confidence[0] == pytest.approx(0.8)
    np.testing.assert_allclose(found.xyxy, [BOX], atol=0.6)
    mask = found.mask[0].to_frame(1280, 720)
    ys, xs = np.nonzero(mask)
    cell = 80  # one prototype cell of 4 input pixels is 80 frame pixels
    assert xs.min() == 440 and abs(xs.max() + 1 - 640) <= cell
    assert ys.min() == 260 and ys.max() == 459


def test_keypoints_land_in_the_frame(cases):
    path = cases / "models" / "pose.onnx"
    decision = decide(path)
    assert decision.head.name == "yolo-pose"
    found = run_case(path, decision.head)
    np.testing.assert_allclose(found.xyxy, [BOX], atol=0.6)
    assert found.keypoints.shape == (1, 17, 3)
    np.testing.assert_allclose(found.keypoints[0, :2], [[440, 260, 0.9], [840, 460, 0.9]], atol=0.6)
    np.testing.assert_allclose(found.keypoints[0, :2, 2], 0.9, atol=1e-4)
    assert (found.keypoints[0, 2:, 2] < 0.5).all()


def test_objectness_times_class(cases):
    path = cases / "models" / "yolov5_obj_nc2.onnx"
    found = run_case(path, decide(path, head="yolov5").head)
    assert list(found.class_id) == [1] and found.confidence[0] == pytest.approx(0.72, abs=1e-4)


@pytest.mark.parametrize("name", ["oracle_b1", "oracle_dyn", "oracle_fp16"])
def test_the_colour_oracle_is_end_to_end(cases, name):
    path = cases / "models" / f"{name}.onnx"
    decision = decide(path)
    assert decision.head.name == "yolo-e2e"
    found = run_case(path, decision.head, frame=(64, 64))
    np.testing.assert_allclose(found.xyxy, [[4, 4, 20, 20]], atol=0.1)
