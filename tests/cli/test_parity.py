"""gstinfer parity: a real pipeline and a plain loop over the same frames."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gst
onnx = pytest.importorskip("onnx")

VIDEO = "test:ball?width=160&height=120&frames=12"


def network(path: Path) -> Path:
    """A detector of 64x64 whose boxes and scores follow the colours of the picture: ``[1,84,6]``, two classes."""
    from onnx import TensorProto, helper

    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 0], rows[0, :, 1] = (32, 32, 20, 20, 0.3, 0), (20, 24, 12, 16, 0, 0.6)
    spread = np.zeros((1, 6, 84), np.float32)
    spread[0, :, 0], spread[0, :, 1] = (9, 0, 5, 5, 2, 0), (0, 9, 0, 5, 0, 1)
    constants = {"rows": rows, "spread": spread, "axes": np.array([1, 2, 3], np.int64), "shape": np.array([1, 1, 1], np.int64)}
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=1),
        helper.make_node("Reshape", ["mean", "shape"], ["flat"]),
        helper.make_node("Mul", ["spread", "flat"], ["moved"]),
        helper.make_node("Add", ["rows", "moved"], ["output0"]),
    ]
    picture = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 64, 64])
    output = helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 6, 84])
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items() if name != "axes"]
    graph = helper.make_graph(nodes, "detector", [picture], [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for key, value in {"task": "detect", "names": "{0: 'a', 1: 'b'}", "stride": "32"}.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


@pytest.fixture
def detector(folder: Path) -> str:
    return network(folder / "detector.onnx").name


def report(done) -> dict:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_same_pixels_give_the_same_objects(gstinfer, detector):
    done = gstinfer("parity", detector, VIDEO, "--preprocess", "exact", "--reference", "onnxruntime", "--json")
    found = report(done)
    assert done.returncode == 0 and found["passed"]
    assert found["frames"] == 12 and found["objects"] == found["reference_objects"] == 24
    assert found["matched"] == 1 and found["mean_iou"] >= 0.999 and found["mean_score_difference"] <= 0.001
    assert "same pixels" in found["comparison"] and found["reference"]
    assert [step["step"] for step in found["steps"]] == ["candidates", "head", "network", "resize", "element"]
    assert found["part_at"] == [] and found["steps"][0]["frames"] == 2


def test_the_fast_way_is_near_the_usual_one(gstinfer, detector):
    done = gstinfer("parity", detector, VIDEO, "--reference", "onnxruntime")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "converted first" in done.stdout and "agreed" in done.stdout
    assert "fast" in done.stdout and "colour" in done.stdout and "12 frames" in done.stdout


def test_below_the_threshold_the_exit_code_says_so(gstinfer, detector):
    """The fast way is near the usual one, but not the same."""
    done = gstinfer("parity", detector, VIDEO, "--reference", "onnxruntime", "--threshold", "score=0,iou=1", "--json")
    assert done.returncode == 1 and report(done)["passed"] is False
    assert report(done)["threshold"] == {"matched": 0.97, "iou": 1.0, "score": 0.0}


def test_a_wrong_head_is_found_at_the_head(folder, detector, clean_env):
    """Boxes that our head moves by five pixels: all steps before agree, the head is named, the exit code is 1."""
    code = f"""
import sys
from gstinfer.heads.yolo import YoloHead
real = YoloHead.decode
def moved(self, *arguments):
    results = real(self, *arguments)
    for result in results:
        result.xyxy = result.xyxy + 5
    return results
YoloHead.decode = moved
sys.argv = ["gstinfer", "parity", "{detector}", "{VIDEO}", "--preprocess", "exact", "--reference", "onnxruntime", "--json"]
from gstinfer.cli.main import main
main()
"""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=clean_env, capture_output=True, text=True, timeout=100
    )
    found = report(done)
    assert done.returncode == 1 and not found["passed"]
    assert found["part_at"] == ["candidates"]
    assert found["mean_iou"] < 0.95


def test_a_model_in_python_is_held_against_itself_on_the_loops_frames(gstinfer):
    done = gstinfer("parity", "models:halves", "test:smpte?width=64&height=48&frames=4", "--json")
    found = report(done)
    assert done.returncode == 0 and found["frames"] == 4 and found["objects"] == 4
    assert "the model itself" in found["reference"] and found["steps"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("models:box", "missing.mp4"), "no such file"),
        (("models:box", VIDEO, "--threshold", "speed=1"), "no threshold 'speed'"),
        (("models:box", VIDEO, "--threshold", "iou=2"), "no number between 0 and 1"),
        (("models:box", VIDEO, "--decoder", "opencv"), "OpenCV cannot read"),
        (("models:box", VIDEO, "--reference", "onnxruntime"), "cannot run models:box"),
        (("models:box", VIDEO, "--reference", "torchvision"), "--reference-model"),
        (("models:box", "rtsp://127.0.0.1/x"), "name a file"),
        (("models:third_fails", VIDEO), "the third frame is bad"),
    ],
)
def test_what_cannot_be_compared_is_said(gstinfer, arguments, words):
    done = gstinfer("parity", *arguments)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


FAMILIES = ("yolo_raw_nc2", "e2e_xyxy", "rtdetr_q6", "dfine", "rfdetr3_swapped", "seg", "pose", "oracle_fp16")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_the_cases_agrees(gstinfer, cases, name):
    video = "test:smpte?width=1280&height=720&frames=2"
    model = str(cases / "models" / f"{name}.onnx")
    found = report(gstinfer("parity", model, video, "--preprocess", "exact", "--reference", "onnxruntime", "--json"))
    assert found["passed"] and found["objects"] >= 2 and found["mean_iou"] >= 0.999
    assert found.get("mean_mask_iou", 1) > 0.99 and found.get("mean_keypoint_distance", 0) < 0.01


def test_a_real_network_on_a_real_video(gstinfer, bikes):
    """On the same pixels all agree; OpenCV's decoder gives the same frames in the same order."""
    done = gstinfer(
        "parity", "nanodet-coco", str(bikes), "--max-frames", "40", "--preprocess", "exact", "--steps", "4", "--json"
    )
    found = report(done)
    assert done.returncode == 0 and found["objects"] >= 10 and found["matched"] == 1 and found["mean_iou"] >= 0.999
    opencv = report(
        gstinfer("parity", "nanodet-coco", str(bikes), "--max-frames", "20", "--decoder", "opencv", "--steps", "2", "--json")
    )
    assert opencv["missing_frames"] == 0 and opencv["frames"] == 20
    decode = next(step for step in opencv["steps"] if step["step"] == "decode")
    # The same picture: a frame too early or too late would differ by far more.
    assert decode["difference"]["mean"] < 3
