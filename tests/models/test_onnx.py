"""OnnxRuntime: what it opens, what it refuses and in which words."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_networks import METADATA, oracle, sized

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.image import Device
from gstinfer.models import onnx as module
from gstinfer.models.files import cores
from gstinfer.models.onnx import OnnxRuntime, onnx_model


def test_info_and_run(tmp_path):
    runtime = OnnxRuntime(oracle(tmp_path / "o.onnx"))
    (picture,), (output,) = runtime.info.inputs, runtime.info.outputs
    assert (picture.name, picture.shape, picture.dtype) == ("images", (None, 3, 64, 64), "float32")
    assert (output.name, output.shape) == ("output0", (None, 1, 6))
    assert dict(runtime.info.metadata) == METADATA
    pixels = np.zeros((2, 3, 64, 64), np.float32)
    pixels[1, 0] = 1
    assert runtime.run({"images": pixels})["output0"][:, 0, 2].tolist() == [20, 52]


def test_the_input_is_read_in_place(tmp_path):
    """The same array changed between two runs changes the answer, and no run writes into it."""
    runtime = OnnxRuntime(oracle(tmp_path / "o.onnx"))
    pixels = np.zeros((1, 3, 64, 64), np.float32)
    answers = []
    for value in (0, 1, 0.5):
        pixels[:, 0] = value
        answers.append(float(runtime.run({"images": pixels})["output0"][0, 0, 2]))
        assert set(np.unique(pixels[:, 0])) == {np.float32(value)}
    assert answers == [20, 52, 36]


class TensorLike:
    """What ``run`` asks of a torch tensor, over NumPy memory."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.device = type("Where", (), {"type": "cpu", "index": None})

    def contiguous(self):
        return self

    def data_ptr(self):
        return self.array.ctypes.data


def test_tensors_are_bound_by_their_address(tmp_path):
    pixels = np.zeros((2, 3, 64, 64), np.float32)
    pixels[1, 0] = 1
    output = OnnxRuntime(oracle(tmp_path / "o.onnx")).run({"images": TensorLike(pixels)})["output0"]
    assert output.shape == (2, 1, 6) and output[:, 0, 2].tolist() == [20, 52]
    sizes = np.array([[200, 100]], np.int64)
    runtime = OnnxRuntime(sized(tmp_path / "s.onnx"))
    found = runtime.run({"images": TensorLike(pixels[:1]), "orig_target_sizes": sizes})
    assert found["boxes"].tolist() == [[[50, 25, 150, 75]]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", r"is empty \(0 bytes\)"),
        (b"not a model at all", "cannot be loaded by ONNX Runtime"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_bad_files_in_one_line(tmp_path, content, words):
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        as_model(str(path))
    assert "FAIL" not in str(caught.value)
    assert "bad.onnx" in str(caught.value) and "\n" not in str(caught.value)
    assert str(path) in caught.value.message and caught.value.message.count(str(path)) == 1


def test_a_truncated_file_is_refused(tmp_path):
    path = oracle(tmp_path / "o.onnx")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ModelLoadError, match=r"o\.onnx cannot be loaded"):
        as_model(str(path))


def test_an_operator_set_of_the_future_is_named(tmp_path):
    path = oracle(tmp_path / "new.onnx")
    model = onnx.load(path)
    model.opset_import[0].version = 99
    onnx.save(model, path)
    with pytest.raises(ModelLoadError, match="ONNX opset 99, which is newer than this release reads") as caught:
        onnx_model(str(path)).load(Device())
    assert "older opset" in caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [[1, 16000], [1, 5, 64, 64], [1, 3, 8, 64, 64]])
def test_an_input_that_is_no_picture_is_said_before_anything_about_outputs(tmp_path, shape):
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("signal", "out")]
    graph = helper.make_graph([helper.make_node("Identity", ["signal"], ["out"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    with pytest.raises(ConfigError, match=r"takes signal \[.*\], expected pictures"):
        onnx_model(str(tmp_path / "a.onnx")).load(Device())


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="is a folder"):
        OnnxRuntime(tmp_path)


def test_weights_in_a_file_that_is_missing(tmp_path):
    path = oracle(tmp_path / "o.onnx")
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=64)
    OnnxRuntime(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelLoadError, match=r"weights\.bin"):
        OnnxRuntime(path)


def test_cuda_is_never_replaced_by_the_cpu(tmp_path, monkeypatch):
    import onnxruntime

    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 2)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError) as caught:
        as_model(str(oracle(tmp_path / "o.onnx")), device="cuda:1")
    text = str(caught.value)
    assert "device=cuda:1" in text and "CPUExecutionProvider" in text and "pip install onnxruntime-gpu" in text


def test_threads_are_set_on_purpose(tmp_path):
    path = oracle(tmp_path / "o.onnx")
    for threads, want in ((0, cores()), (1, 1)):
        options = OnnxRuntime(path, Device(), threads)._session.get_session_options()
        assert (options.intra_op_num_threads, options.inter_op_num_threads) == (want, 1)
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_threads_reach_the_runtime(tmp_path, monkeypatch):
    seen = []

    class Seen(OnnxRuntime):
        def __init__(self, path, device, threads, *rest):
            seen.append(threads)
            super().__init__(path, device, threads, *rest)

    monkeypatch.setattr(module, "OnnxRuntime", Seen)
    as_model(str(oracle(tmp_path / "o.onnx")), threads=1)
    assert seen == [1]


def test_without_onnxruntime_the_pip_line_is_said(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match="pip install onnxruntime"):
        as_model(str(oracle(tmp_path / "o.onnx")))


def test_no_path(tmp_path):
    with pytest.raises(ConfigError, match="no ONNX file"):
        onnx_model("")
    with pytest.raises(ConfigError, match="no ONNX file"):
        as_model("onnx:")


def test_both_spellings_name_the_file(tmp_path):
    path = oracle(tmp_path / "o.onnx")
    for spec in (f"onnx:{path}", str(path)):
        assert as_model(spec).predict(np.zeros((64, 64, 3), np.uint8))[0].class_id.tolist() == [0]
