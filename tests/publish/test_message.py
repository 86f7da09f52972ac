"""Messages: every kind of result in the schema's words, and nothing that JSON or a reader would choke on."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.publish.jsonl import encode
from gstinfer.publish.message import message, utc
from gstinfer.results import (
    Attribute,
    Classifications,
    Detections,
    FrameResults,
    Mask,
    SegmentationMap,
    Text,
)

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((files("gstinfer.publish") / "gstinfer-1.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def frame_of(results: FrameResults, width: int = 640, height: int = 480, **facts) -> Frame:
    image = Image.from_array(np.zeros((height, width, 3), np.uint8))
    return Frame(image, results=results, **facts)


def checked(results: FrameResults, **facts) -> dict:
    """The message as a reader gets it, after it passed the schema."""
    out = json.loads(encode(message(frame_of(results, **facts))))
    VALIDATOR.validate(out)
    return out


def detected(*boxes, **columns) -> FrameResults:
    return FrameResults("m", True, Detections(np.array(boxes, np.float32), **columns))


def test_schema_is_itself_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_all_facts_of_a_frame():
    out = checked(detected([1, 2, 3, 4]), stream_id="cam", source="a.mp4", sequence=7, pts=40_000_000, time=10**18)
    objects = out.pop("objects")
    assert out == {
        "schema": "gstinfer/1",
        "stream_id": "cam",
        "source": "a.mp4",
        "sequence": 7,
        "pts": 40_000_000,
        "time": "2001-09-09T01:46:40.000000Z",
        "width": 640,
        "height": 480,
        "model": "m",
        "inferred": True,
    }
    assert objects == [
        {"bbox": [1, 2, 3, 4], "confidence": 1, "class_id": 0, "label": "0", "tracker_id": None}
    ]


@pytest.mark.parametrize("pts", [None, 2**64 - 1])
def test_no_time_is_null(pts):
    out = checked(FrameResults(inferred=True), pts=pts, time=pts)
    assert out["pts"] is None and out["time"] is None


def test_time_keeps_microseconds():
    assert utc(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"


def test_boxes_are_clipped_and_plain_decimals():
    out = checked(detected([-5, 0.1, 700, 479.9], confidence=[0.1]))
    assert out["objects"][0]["bbox"] == [0, 0.1, 640, 479.9]
    assert out["objects"][0]["confidence"] == 0.1


def test_labels_and_ids():
    boxes = [[0, 0, 9, 9]] * 3
    out = checked(detected(*boxes, class_id=[2, 5, 7], label=["car", "", "7"], tracker_id=[4, -1, 2**40]))
    assert [(o["label"], o["class_id"], o["tracker_id"]) for o in out["objects"]] == [
        ("car", 2, 4),
        ("5", 5, None),
        ("7", 7, 2**40),
    ]


def test_skipped_frames_have_no_objects():
    out = checked(FrameResults("m", False, Detections(np.array([[0, 0, 9, 9]], np.float32))))
    assert out["inferred"] is False and "objects" not in out


def test_nothing_found_is_an_empty_list():
    assert checked(FrameResults("m", True))["objects"] == []
    assert checked(FrameResults("m", True, Detections.empty()))["objects"] == []


def test_no_inference_at_all_is_not_inferred():
    out = checked(FrameResults())
    assert out["inferred"] is False and out["model"] is None and "objects" not in out


def test_objects_of_a_foreign_element_count_as_inferred():
    out = checked(FrameResults(detections=Detections(np.array([[0, 0, 9, 9]], np.float32))))
    assert out["inferred"] is True and len(out["objects"]) == 1


def test_a_classifier_alone_gives_no_objects():
    results = FrameResults("m", True, classifications=[Classifications([3, 1], [0.9, 0.1], ["cat", "dog"])])
    out = checked(results)
    assert "objects" not in out
    assert out["classifications"] == [
        {"label": "cat", "class_id": 3, "confidence": 0.9},
        {"label": "dog", "class_id": 1, "confidence": 0.1},
    ]
    assert "objects" not in checked(FrameResults("m", True, segmentation=SegmentationMap(np.zeros((2, 2)))))


def test_nothing_non_finite_is_published():
    nan, inf = np.nan, np.inf
    out = checked(detected([0, 0, nan, 9], [0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 9, inf], confidence=[1, nan, 0.5, 1]))
    assert [o["confidence"] for o in out["objects"]] == [0.5]


def test_a_confidence_that_nobody_gave_is_null():
    assert checked(detected([0, 0, 9, 9], confidence=[-0.1]))["objects"][0]["confidence"] is None


def test_rotated_boxes_have_angle_corners_and_upright_hull():
    obb = np.array([[100, 100, 40, 20, np.pi / 2], [nan_row := np.nan, 1, 1, 1, 0]], np.float32)
    assert np.isnan(nan_row)
    out = checked(FrameResults("m", True, Detections(None, obb=obb)))
    (item,) = out["objects"]
    assert item["bbox"] == pytest.approx([90, 80, 110, 120], abs=0.01)
    assert item["angle"] == pytest.approx(np.pi / 2, abs=1e-5)
    assert sorted(map(tuple, np.round(item["corners"]).tolist())) == [(90, 80), (90, 120), (110, 80), (110, 120)]


def test_keypoints_keep_their_order_where_some_are_absent():
    points = np.array([[[1, 2, 0.9], [5, 5, -1], [np.nan, 1, 1]], [[0, 0, -1]] * 3], np.float32)
    first, second = checked(detected([0, 0, 9, 9], [0, 0, 9, 9], keypoints=points))["objects"]
    assert first["keypoints"] == [[1, 2, 0.9], [0, 0, 0], [0, 0, 0]]
    assert "keypoints" not in second


def test_mask_is_a_run_length_code_of_the_whole_frame():
    bitmap = np.array([[True, False], [True, True]])
    masks = [Mask(1, 0, bitmap), Mask(0, 0, np.zeros((0, 0), bool))]
    first, second = checked(detected([0, 0, 3, 2], [0, 0, 3, 2], mask=masks), width=3, height=2)["objects"]
    assert first["mask"] == {"size": [2, 3], "counts": [2, 2, 1, 1]}
    assert "mask" not in second


def test_mask_from_the_first_pixel_begins_with_no_zeros():
    mask = Mask(-1, -1, np.ones((9, 9), bool))
    (item,) = checked(detected([0, 0, 3, 2], mask=[mask]), width=3, height=2)["objects"]
    assert item["mask"]["counts"] == [0, 6]


def test_attributes():
    attributes = [(Attribute("red", 1, 0.75), Attribute("", 9, float("nan"))), ()]
    first, second = checked(detected([0, 0, 9, 9], [0, 0, 9, 9], attributes=attributes))["objects"]
    assert first["attributes"] == [
        {"label": "red", "class_id": 1, "confidence": 0.75},
        {"label": "9", "class_id": 9, "confidence": None},
    ]
    assert "attributes" not in second


def test_texts_with_foreign_data():
    data = {"n": np.int64(3), "bad": float("inf"), "list": (1, np.array([1.5, np.nan])), 4: {1}}
    results = FrameResults("m", True, texts=[Text("hello", data=data, start=0, tokens=3), Text("bye")])
    out = checked(results)
    assert out["texts"] == [
        {"text": "hello", "data": {"n": 3, "bad": None, "list": [1, [1.5, None]], "4": [1]}, "start": 0, "tokens": 3},
        {"text": "bye"},
    ]


def test_a_text_tells_of_its_object_and_why_it_does_not_fit():
    results = FrameResults("m", True, texts=[Text("It is red.", invalid="not JSON", tracker_id=3), Text("x", tracker_id=0)])
    assert checked(results)["texts"] == [
        {"text": "It is red.", "invalid": "not JSON", "tracker_id": 3},
        {"text": "x", "tracker_id": 0},
    ]


def test_a_file_name_that_is_no_utf8_still_makes_json():
    assert checked(FrameResults(), source="caf\udce9.mp4")["source"] == "caf\udce9.mp4"


def test_the_parent_of_an_object_is_its_place_among_those_published():
    boxes = [[np.nan, 0, 4, 4], [0, 0, 40, 40], [10, 10, 20, 20], [1, 1, 2, 2]]
    found = Detections(boxes, parent=[-1, -1, 1, 0])
    frame = Frame(Image.from_array(np.zeros((48, 64, 3), np.uint8)), results=FrameResults("m", True, found))
    assert [item.get("parent") for item in message(frame)["objects"]] == [None, 0, None]
