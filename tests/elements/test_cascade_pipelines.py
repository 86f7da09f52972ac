"""Cascades through real pads: elements one behind another, several frames in flight, real networks."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gstinfer.testing import run_pipeline

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.gst
OBJECTS = Path(__file__).with_name("objects_for_tests.py")
BALL = "videotestsrc num-buffers={n} pattern=ball motion=sweep ! video/x-raw,format={f},width=160,height=120,framerate=30/1"


def cascade(second: str, extra: str = "", *, n: int = 30, f: str = "I420", between: str = "", tail: str = "") -> str:
    return (
        f"{BALL.format(n=n, f=f)} ! pyinfer name=first model={OBJECTS}:Finder unique-id=1 {between} "
        f"! pyinfer name=second model={OBJECTS}:{second} process-mode=2 unique-id=2 infer-on-gie-id=1 {extra} {tail} "
        "! fakesink name=sink"
    )


@pytest.mark.parametrize("form", ["RGB", "BGRx", "GRAY8", "NV12", "I420", "YUY2", "I420_10LE"])
@pytest.mark.parametrize("depth", [1, 4])
def test_every_ball_is_classified(form, depth):
    run = run_pipeline(cascade("Tint", f"frames-in-flight={depth}", f=form, between=f"frames-in-flight={depth}"))
    assert run.eos and len(run.results) == 30 and run.warnings == []
    seen = [r.detections for r in run.results if r.detections is not None and len(r.detections)]
    assert len(seen) >= 25
    for found in seen:
        assert len(found) == 1 and found.component_id.tolist() == [1]
        ((word,),) = found.attributes
        assert word.component_id == 2 and word.confidence == pytest.approx(0.9)
    assert run.stats["second"]["inferred"] + run.stats["second"]["objects-too-small"] == len(seen)


@pytest.mark.parametrize("depth", [1, 4])
def test_a_tracked_ball_is_classified_once(depth):
    flight = f"frames-in-flight={depth}"
    run = run_pipeline(cascade("Tint", flight, between=f"{flight} ! pytrack"))
    tracked = [r.detections for r in run.results if r.detections is not None and (r.detections.tracker_id >= 0).any()]
    assert len(tracked) > 20 and all(d.attributes[0] for d in tracked)
    ids = {int(i) for d in tracked for i in d.tracker_id}
    seen = run.stats["second"]
    untracked = sum(int((r.detections.tracker_id < 0).sum()) for r in run.results if r.detections is not None)
    # Each id once, and again where the ball grew while it rolled into the picture.
    assert len(ids) <= seen["inferred"] - untracked + seen["objects-too-small"] <= len(ids) + 6
    assert seen["kept"] > 15


def test_objects_on_objects_reach_messages_with_their_parent(tmp_path):
    target = tmp_path / "out.jsonl"
    run = run_pipeline(cascade("Inner", n=12, tail=f"! pyoverlay ! pypublish url=file:{target}"))
    assert run.eos and run.error is None
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(lines) == 12
    whole = [line["objects"] for line in lines if len(line["objects"]) == 2]
    assert len(whole) >= 8
    for parent, child in whole:
        assert "parent" not in parent and child["parent"] == 0
        (x1, y1, x2, y2), (a1, b1, a2, b2) = parent["bbox"], child["bbox"]
        assert x1 < a1 < a2 <= x2 and y1 < b1 < b2 <= y2
        assert child["label"] == "inner" and "mask" in child and len(child["keypoints"]) == 1


def test_a_seek_forgets_and_a_flush_releases():
    def again(pipeline, number):
        if number == 10:
            from gi.repository import Gst

            flags = Gst.SeekFlags.FLUSH | Gst.SeekFlags.KEY_UNIT
            # A flush from the streaming thread would wait for itself.
            threading.Thread(target=pipeline.seek_simple, args=(Gst.Format.TIME, flags, 0), daemon=True).start()

    run = run_pipeline(cascade("Tint", "frames-in-flight=3", n=60, between="! pytrack"), on_buffer=again)
    assert run.eos and run.error is None and 0 in run.pts[1:]


@pytest.mark.parametrize("policy", ["pass", "drop"])
def test_on_error(policy):
    run = run_pipeline(cascade("Map", f"on-error={policy}", n=12))
    assert run.eos and run.stats["second"]["errors"] > 0
    assert any("segmentation map" in warning for warning in run.warnings)
    empty = sum(r.detections is None or not len(r.detections) for r in run.results)
    assert len(run.results) - empty == (run.stats["second"]["errors"] if policy == "pass" else 0)


def test_an_error_carries_the_users_traceback():
    run = run_pipeline(cascade("NoSuchClass"))
    assert "has no 'NoSuchClass'" in run.error
    run = run_pipeline(cascade("Map"))
    assert "segmentation map of an object" in run.error and "Traceback" in run.debug


def test_an_onnx_classifier_gets_the_objects(tmp_path):
    pytest.importorskip("onnx")
    from task_networks import classifier

    path = classifier(tmp_path / "cls.onnx")
    run = run_pipeline(
        f"videotestsrc num-buffers=3 pattern=red ! video/x-raw,format=I420,width=160,height=120 ! "
        f"pyinfer model={OBJECTS}:Corners unique-id=1 ! pyinfer name=second model={path}  "
        "process-mode=2 unique-id=2 ! fakesink name=sink"
    )
    assert run.error is None
    for result in run.results:
        assert [a[0].label for a in result.detections.attributes] == ["r", "r"]
    assert run.stats["second"]["batch-fill"] == 2


def test_faces_of_people(assets, bikes):
    """People by NanoDet, their faces by CenterFace, on a real video."""
    run = run_pipeline(
        f"filesrc location={bikes} ! decodebin ! videoconvert ! video/x-raw,format=I420 ! identity eos-after=45 "
        "! pyinfer model=nanodet-coco unique-id=1 ! pyinfer name=faces "
        f"model={assets}/models/centerface.onnx head=centerface input-size=256 process-mode=2 unique-id=2 "
        "infer-on-gie-id=1 infer-on-class-ids=0 ! fakesink name=sink",
        timeout=120,
    )
    assert run.error is None
    found = [r.detections for r in run.results if r.detections is not None and (r.detections.component_id == 2).any()]
    assert len(found) >= 5
    for objects in found:
        for row in np.flatnonzero(objects.component_id == 2):
            (x1, y1, x2, y2), (a1, b1, a2, b2) = objects.xyxy[objects.parent[row]], objects.xyxy[row]
            assert objects.label[row] == "face" and objects.label[objects.parent[row]] == "person"
            assert x1 <= a1 < a2 <= x2 and y1 <= b1 < b2 <= y2
            # A face is in the upper half of its person, and its landmarks are in it.
            assert (b1 + b2) / 2 < (y1 + y2) / 2
            points = objects.keypoints[row, :, :2]
            assert (points > (a1 - 8, b1 - 8)).all() and (points < (a2 + 8, b2 + 8)).all()
