"""Every task through the whole line: inference, tracker, overlay and messages keep what the model said."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from gstinfer.testing import Run, run_pipeline

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.gst
WIDE = "videotestsrc num-buffers={n} pattern={pattern} ! video/x-raw,format={form},width={w},height={h},framerate=30/1"


def line(
    tmp_path: Path, model, extra: str = "", *, pattern="black", form="I420", w=1280, h=720, n=4
) -> tuple[Run, list[dict], list[np.ndarray]]:
    """pyinfer ! pytrack ! pyoverlay ! pypublish: what is carried, published and drawn (RGB)."""
    target = tmp_path / "out.jsonl"
    run = run_pipeline(
        f"{WIDE.format(n=n, pattern=pattern, form=form, w=w, h=h)} ! pyinfer name=infer model={model} {extra} ! pytrack "
        f"! pyoverlay ! pypublish url=file:{target} ! videoconvert ! video/x-raw,format=RGB ! fakesink name=sink",
        keep_data=True,
    )
    assert run.error is None, run.error
    assert run.eos and run.warnings == [] and len(run.results) == n
    stride = (3 * w + 3) // 4 * 4
    pictures = [np.frombuffer(d, np.uint8).reshape(h, stride)[:, : 3 * w].reshape(h, w, 3) for d in run.data]
    return run, [json.loads(text) for text in target.read_text().splitlines()], pictures


def decoded(mask: dict) -> np.ndarray:
    """COCO's uncompressed run-length code as bool ``[h,w]``."""
    flat = np.concatenate([np.full(c, i % 2, bool) for i, c in enumerate(mask["counts"])])
    return flat.reshape(mask["size"][::-1]).T


def test_detection(tmp_path, cases):
    run, messages, pictures = line(tmp_path, cases / "models/yolo_raw_nc2.onnx", "confidence-threshold=0.5")
    for result, message in zip(run.results, messages):
        assert sorted(result.detections.class_id.tolist()) == [0, 1]
        assert len(message["objects"]) == 2 and all(o["tracker_id"] for o in message["objects"])
        assert {o["tracker_id"] for o in message["objects"]} == {o["tracker_id"] for o in messages[0]["objects"]}
    assert pictures[0].any()


def test_instance_segmentation(tmp_path, cases):
    run, messages, pictures = line(tmp_path, cases / "models/seg.onnx")
    for result, message in zip(run.results, messages):
        found = result.detections
        assert found.tracker_id.tolist() == [1] and found.class_id.tolist() == [1]
        mask = found.mask[0].to_frame(1280, 720)
        assert mask[300:420, 460:600].all() and not mask[:, 700:].any()
        (item,) = message["objects"]
        assert item["bbox"] == pytest.approx([440, 260, 840, 460], abs=0.6)
        assert (decoded(item["mask"]) == mask).all()
    # Translucent on the object, nothing beside it but the frame and the words.
    assert pictures[0][360, 540].max() > 30 and pictures[0][360, 540].max() < 200
    assert not pictures[0][360, 720:820].any()


def test_pose(tmp_path, cases):
    run, messages, pictures = line(tmp_path, cases / "models/pose.onnx")
    for result, message in zip(run.results, messages):
        found = result.detections
        assert found.tracker_id.tolist() == [1] and found.keypoints.shape == (1, 17, 3)
        assert found.keypoints[0, :2].ravel() == pytest.approx([440, 260, 0.9, 840, 460, 0.9], abs=0.6)
        (item,) = message["objects"]
        assert len(item["keypoints"]) == 17
        assert item["keypoints"][1] == pytest.approx([840, 460, 0.9], abs=0.6)
        assert all(point[2] < 0.3 for point in item["keypoints"][2:])
    # The points with a low score are left out: inside of the box there is the bone between the two good ones alone.
    assert pictures[0][255:265, 436:444].any()
    ys, xs = np.nonzero(pictures[0][270:450, 450:830].any(2))
    assert len(xs) > 300 and (abs(ys + 270 - 260 - (xs + 450 - 440) / 2) < 10).all()


def test_rotated_boxes(tmp_path):
    pytest.importorskip("onnx")
    from task_networks import rotated

    run, messages, pictures = line(tmp_path, rotated(tmp_path / "obb.onnx"), w=640, h=640)
    for result, message in zip(run.results, messages):
        found = result.detections
        # Of two that lie on each other the stronger stays, the one across them too: suppression knows of the angle.
        assert found.obb.shape == (2, 5)
        order = np.argsort(-found.confidence)
        assert found.confidence[order] == pytest.approx([0.9, 0.7], abs=1e-3)
        assert found.obb[order[0]] == pytest.approx([320, 320, 320, 80, 0.5], abs=0.6)
        corners = [[160 * math.cos(0.5) + 40 * math.sin(0.5), 160 * math.sin(0.5) + 40 * math.cos(0.5)]][0]
        hull = [320 - corners[0], 320 - corners[1], 320 + corners[0], 320 + corners[1]]
        assert found.xyxy[order[0]] == pytest.approx(hull, abs=1)
        assert sorted(found.tracker_id.tolist()) == [1, 2]
        item = max(message["objects"], key=lambda o: o["confidence"])
        assert item["angle"] == pytest.approx(0.5, abs=1e-3) and item["label"] == "plane"
        assert np.mean(item["corners"], 0) == pytest.approx([320, 320], abs=0.1)
        assert item["bbox"] == pytest.approx(hull, abs=1)
    # A polygon: something at its corners, nothing at those of the hull.
    picture = pictures[0]
    for x, y in max(messages[0]["objects"], key=lambda o: o["confidence"])["corners"]:
        assert picture[round(y) - 4 : round(y) + 5, round(x) - 4 : round(x) + 5].any()
    x2, y1 = round(hull[2]), round(hull[1])
    assert not picture[y1 + 2 : y1 + 40, x2 - 40 : x2 - 2].any()


def test_classification(tmp_path):
    pytest.importorskip("onnx")
    from task_networks import classifier

    run, messages, pictures = line(tmp_path, classifier(tmp_path / "cls.onnx"), pattern="green", form="RGB", w=320, h=240)
    for result, message in zip(run.results, messages):
        (classes,) = result.classifications
        assert classes.label[0] == "g" and classes.confidence[0] > 0.9
        assert message["classifications"][0]["label"] == "g"
        assert "objects" not in message and message["inferred"] is True
        assert result.detections is None
    assert (pictures[0] != (0, 255, 0)).any()


def test_semantic_segmentation(tmp_path):
    pytest.importorskip("onnx")
    from task_networks import semantic

    run, messages, pictures = line(tmp_path, semantic(tmp_path / "sem.onnx"), pattern="blue", form="RGB", w=320, h=240)
    for result, message in zip(run.results, messages):
        assert result.segmentation.label == ["r", "g", "b"]
        assert (result.segmentation.class_map == 2).mean() > 0.95
        assert "objects" not in message and message["inferred"] is True
    assert (pictures[0] != (0, 0, 255)).any()


def test_raw_tensors(tmp_path, cases):
    run, messages, pictures = line(tmp_path, cases / "models/yolo_raw_nc2.onnx", "head=raw")
    for result, message in zip(run.results, messages):
        (tensors,) = result.tensors
        assert {name: array.shape for name, array in tensors.outputs.items()} == {"output0": (6, 84)}
        assert tensors.component_id == 15 and result.detections is None
        assert "objects" not in message and message["inferred"] is True
    assert not pictures[0].any()
