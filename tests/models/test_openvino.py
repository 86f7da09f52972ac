"""OpenVinoRuntime: the library's own format and ONNX files, metadata, targets, bad files."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx_networks import METADATA, constant, oracle, sized

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.image import Device
from gstinfer.models.onnx import OnnxRuntime
from gstinfer.models.openvino import OpenVinoRuntime

WHITE = np.full((64, 64, 3), 255, np.uint8)


@pytest.fixture
def openvino():
    return pytest.importorskip("openvino")


@pytest.fixture
def converted(openvino, tmp_path):
    """Converts an ONNX file into OpenVINO's own format."""

    def convert(path, target="model.xml"):
        openvino.save_model(openvino.Core().read_model(str(path)), str(tmp_path / target), compress_to_fp16=False)
        path.unlink()
        return tmp_path / target

    return convert


def test_info_and_run(converted, tmp_path):
    runtime = OpenVinoRuntime(converted(oracle(tmp_path / "o.onnx")))
    (picture,), (output,) = runtime.info.inputs, runtime.info.outputs
    assert (picture.name, picture.shape, picture.dtype) == ("images", (None, 3, 64, 64), "float32")
    assert (output.name, output.shape) == ("output0", (None, 1, 6))
    assert dict(runtime.info.metadata) == METADATA
    pixels = np.zeros((2, 3, 64, 64), np.float32)
    pixels[1, 0] = 1
    assert runtime.run({"images": pixels})["output0"][:, 0, 2].tolist() == [20, 52]
    pixels[0, 0] = 0.5
    assert runtime.run({"images": pixels})["output0"][:, 0, 2].tolist() == [36, 52]


def test_every_spelling_names_the_file(converted, tmp_path):
    folder = tmp_path / "o_openvino_model"
    folder.mkdir()
    path = converted(oracle(tmp_path / "o.onnx"), "o_openvino_model/o.xml")
    onnx = oracle(tmp_path / "p.onnx")
    for spec in (str(path), f"openvino:{path}", f"openvino:{folder}", f"openvino:{onnx}"):
        (result,) = as_model(spec).predict(WHITE)
        assert result.xyxy.tolist() == [[4, 4, 52, 52]] and result.label == ["blue"]


def test_ultralytics_metadata_beside_the_file(converted, tmp_path):
    pytest.importorskip("yaml")
    path = converted(oracle(tmp_path / "o.onnx", metadata=None))
    assert OpenVinoRuntime(path).info.metadata == {}
    (tmp_path / "metadata.yaml").write_text(
        "task: detect\nimgsz:\n- 64\n- 64\nend2end: true\nnames:\n  0: a\n  1: b\n  2: c\n  3: d\n"
    )
    assert as_model(str(path)).predict(WHITE)[0].label == ["d"]
    (tmp_path / "metadata.yaml").write_text("task: [")
    with pytest.raises(ModelLoadError, match=r"metadata\.yaml cannot be read") as caught:
        as_model(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32"])
def test_types_of_the_input(converted, tmp_path, dtype):
    full = 1.0 if dtype == "float16" else 255.0
    model = as_model(str(converted(oracle(tmp_path / "o.onnx", dtype=dtype, full=full))))
    assert model.model.preprocessing.dtype == dtype
    assert model.predict(WHITE)[0].xyxy[0].tolist() == pytest.approx([4, 4, 52, 52], abs=0.05)


def test_a_second_input_is_fed(converted, tmp_path):
    runtime = OpenVinoRuntime(converted(sized(tmp_path / "s.onnx")))
    feeds = {"images": np.zeros((1, 3, 64, 64), np.float32), "orig_target_sizes": np.array([[200, 100]], np.int64)}
    assert runtime.run(feeds)["boxes"].tolist() == [[[50, 25, 150, 75]]]


def test_numbers_are_those_of_onnx_runtime(openvino, assets):
    """A trained network in float32: both libraries within rounding of each other."""
    path = assets / "models/nanodet_coco_416.onnx"
    picture = np.random.default_rng(0).normal(size=(1, 3, 416, 416)).astype(np.float32)
    one, other = OnnxRuntime(path), OpenVinoRuntime(path)
    name = one.info.inputs[0].name
    want, got = one.run({name: picture}), other.run({other.info.inputs[0].name: picture})
    assert sorted(want) == sorted(got)
    for key, value in want.items():
        assert np.abs(value - got[key]).max() <= 1e-3 * max(1.0, np.abs(value).max())


def test_threads_and_precision_reach_the_library(openvino, tmp_path, monkeypatch):
    seen = []
    compile_model = openvino.Core.compile_model

    def recorded(self, network, target, settings):
        seen.append((target, dict(settings)))
        return compile_model(self, network, target, settings)

    monkeypatch.setattr(openvino.Core, "compile_model", recorded)
    path = oracle(tmp_path / "o.onnx")
    as_model(f"openvino:{path}", threads=1)
    as_model(f"openvino:{path}", precision="fastest", target="AUTO")
    (first, settings), (second, others) = seen
    assert first == "CPU" and settings["INFERENCE_NUM_THREADS"] == 1 and settings["INFERENCE_PRECISION_HINT"] == "f32"
    with pytest.raises(ConfigError, match="threads=2 means nothing for target=AUTO"):
        as_model(f"openvino:{path}", threads=2, target="AUTO")
    assert second == "AUTO" and "INFERENCE_PRECISION_HINT" not in others and "INFERENCE_NUM_THREADS" not in others


def test_a_target_that_is_not_there_is_never_replaced(openvino, tmp_path):
    if any(name.startswith("NPU") for name in openvino.Core().available_devices):
        pytest.skip("there is an NPU here")
    with pytest.raises(ConfigError, match=r"target=NPU was asked for, but OpenVINO .* sees only .*CPU"):
        as_model(f"openvino:{oracle(tmp_path / 'o.onnx')}", target="NPU")


def test_a_cuda_device_is_refused(openvino, tmp_path):
    with pytest.raises(ConfigError, match="does not run on device=cuda:0"):
        OpenVinoRuntime(oracle(tmp_path / "o.onnx"), Device("cuda", 0))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bad.xml", None, "does not exist"),
        ("bad.xml", b"", r"is empty \(0 bytes\)"),
        ("bad.xml", b"<net", "cannot be loaded by OpenVINO"),
        ("bad.xml", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_bad_files_in_one_line(openvino, tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        as_model(str(path))
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_weights_that_are_missing_or_cut(converted, tmp_path):
    path = converted(oracle(tmp_path / "o.onnx"))
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:4])
    with pytest.raises(ModelLoadError, match=r"model\.xml cannot be loaded"):
        OpenVinoRuntime(path)
    weights.unlink()
    with pytest.raises(ModelLoadError, match=r"the \.bin of its weights must lie beside it") as caught:
        OpenVinoRuntime(path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model(openvino, tmp_path):
    with pytest.raises(ModelLoadError, match=r"holds no \.xml files, expected one"):
        OpenVinoRuntime(tmp_path)


def test_labels_that_do_not_fit(openvino, tmp_path):
    path = constant(tmp_path / "o.onnx", np.zeros((1, 4), np.float32))
    with pytest.raises(ConfigError, match="3 labels do not fit"):
        as_model(f"openvino:{path}", head="classify", labels="a,b,c")


def test_without_openvino_the_pip_line_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[openvino\]'"):
        as_model(f"openvino:{oracle(tmp_path / 'o.onnx')}")


def test_no_path():
    with pytest.raises(ConfigError, match="no OpenVINO file"):
        as_model("openvino:")
