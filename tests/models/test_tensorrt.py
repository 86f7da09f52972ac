"""TensorRtRuntime, on stand-ins for TensorRT and torch: what it asks of them, what it refuses and in which words."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import tensorrt_standin as standin

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.errors import PredictError
from gstinfer.frames import FrameBatch
from gstinfer.image import Device
from gstinfer.models.tensorrt import TensorRtRuntime, sides, split_header, tensorrt_model

GPU = Device("cuda", 0)
METADATA = {"task": "detect", "end2end": True, "imgsz": [64, 64], "names": {"0": "black", "1": "b", "2": "c", "3": "blue"}}


@pytest.fixture(autouse=True)
def libraries(monkeypatch):
    """The two stand-ins in place of the libraries."""
    found = standin.tensorrt(), standin.torch()
    monkeypatch.setitem(sys.modules, "tensorrt", found[0])
    monkeypatch.setitem(sys.modules, "torch", found[1])
    return found


def saved(folder, content: bytes, metadata=None):
    path = folder / "net.engine"
    header = b""
    if metadata is not None:
        text = json.dumps(metadata).encode()
        header = len(text).to_bytes(4, "little") + text
    path.write_bytes(header + content)
    return path


def test_dims_are_read_one_by_one():
    with pytest.raises(AssertionError, match="iterated over"):
        tuple(standin.Dims([1, 2]))
    assert sides(standin.Dims([1, -1, 640])) == (1, -1, 640)


def test_tensors_are_bound_by_name(tmp_path):
    """The output comes first in the engine; modes tell which is which."""
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    (picture,), (output,) = runtime.info.inputs, runtime.info.outputs
    assert (picture.name, picture.shape, picture.dtype) == ("images", (None, 3, 64, 64), "float32")
    assert (output.name, output.shape) == ("output0", (None, 1, 6))
    pixels = np.zeros((2, 3, 64, 64), np.float32)
    pixels[1, 0] = 1
    found = runtime.run({"images": pixels})["output0"]
    assert found.shape == (2, 1, 6) and found[:, 0, 2].tolist() == [20, 52]


def test_shapes_change_from_run_to_run(tmp_path):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    for rows in (1, 3, 2):
        assert runtime.run({"images": np.ones((rows, 3, 64, 64), np.float32)})["output0"].shape == (rows, 1, 6)


def test_it_runs_on_the_callers_stream_and_device(tmp_path, libraries):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    before = libraries[1].cuda.entered
    runtime.run({"images": np.zeros((1, 3, 64, 64), np.float32)})
    assert runtime._context.streams == [standin.STREAM]
    assert libraries[1].cuda.entered == before + 1


def test_pictures_on_the_gpu_are_read_where_they_lie(tmp_path, libraries):
    pixels = libraries[1].as_tensor(np.ones((1, 3, 64, 64), np.float32), device="cuda:0")
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    assert runtime.run({"images": pixels})["output0"][0, 0, 2] == 52
    assert runtime._context.addresses["images"] == pixels.data_ptr()


def test_batches_above_the_profile_are_run_in_parts(tmp_path):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine(most=2)), GPU)
    pixels = np.zeros((5, 3, 64, 64), np.float32)
    pixels[::2, 0] = 1
    assert runtime.run({"images": pixels})["output0"][:, 0, 2].tolist() == [52, 20, 52, 20, 52]
    assert runtime._context.rows == [2, 2, 1]


def test_a_size_outside_the_profile_is_said(tmp_path):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    with pytest.raises(PredictError, match=r"does not take images \[1, 3, 32, 32\], only \[1, 3, 64, 64\] to \[4, 3, 64, 64\]"):
        runtime.run({"images": np.zeros((1, 3, 32, 32), np.float32)})


def test_a_run_that_fails_is_an_error(tmp_path):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)
    runtime._context.fails = True
    with pytest.raises(PredictError, match=r"TensorRT failed on net\.engine"):
        runtime.run({"images": np.zeros((1, 3, 64, 64), np.float32)})


def test_an_output_of_unknown_size_is_refused(tmp_path):
    runtime = TensorRtRuntime(saved(tmp_path, standin.engine(depends=True, shape=[-1, -1, 6])), GPU)
    with pytest.raises(PredictError, match="depends on the picture"):
        runtime.run({"images": np.zeros((1, 3, 64, 64), np.float32)})


def test_ultralytics_header_is_read(tmp_path):
    path = saved(tmp_path, standin.engine(), METADATA)
    model = tensorrt_model(str(path))
    model.load(GPU)
    white = np.full((64, 64, 3), 255, np.uint8)
    (result,) = model.predict(FrameBatch.of([white]))
    assert result.xyxy.tolist() == [[4, 4, 52, 52]]
    assert model.labels == ("black", "b", "c", "blue")


def test_a_header_is_told_from_an_engine():
    body = b"ptrt" + bytes(60)
    assert split_header(body) == ({}, body)
    text = json.dumps(METADATA).encode()
    metadata, rest = split_header(len(text).to_bytes(4, "little") + text + body)
    assert rest == body and metadata["task"] == "detect" and metadata["names"] == str({0: "black", 1: "b", 2: "c", 3: "blue"})


def test_half_precision_and_a_fixed_batch(tmp_path):
    path = saved(tmp_path, standin.engine(batch=2, dtype="HALF"), METADATA)
    model = tensorrt_model(str(path))
    model.load(GPU)
    assert model.max_batch == 2 and model.preprocessing.dtype == "float16"
    (result,) = model.predict(FrameBatch.of([np.full((64, 64, 3), 255, np.uint8)]))
    assert result.xyxy.tolist() == [[4, 4, 52, 52]]


@pytest.mark.parametrize(
    "message",
    [
        "The engine plan file is not compatible with this version of TensorRT, expecting library version 10.9.0 got 8.6.1",
        "The engine plan file is generated on an incompatible device, expecting compute 9.0 got compute 8.6",
    ],
)
def test_an_engine_of_another_tensorrt_or_gpu_is_refused_with_the_reason(tmp_path, message):
    path = saved(tmp_path, standin.engine(refused=True, log=[("ERROR", message)]))
    with pytest.raises(ModelLoadError) as caught:
        TensorRtRuntime(path, GPU)
    text = str(caught.value)
    assert message in text and "TensorRT 10.9.0" in text and "build it again here" in text and "\n" not in text


def test_an_engine_of_another_model_of_gpu_runs_only_on_request(tmp_path):
    warning = "Using an engine plan file across different models of devices is not recommended"
    path = saved(tmp_path, standin.engine(log=[("WARNING", warning)]), METADATA)
    with pytest.raises(ModelLoadError, match=r"built on another model of GPU.*other-gpu=true"):
        tensorrt_model(str(path)).load(GPU)
    tensorrt_model(str(path), other_gpu=True).load(GPU)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", r"is empty \(0 bytes\)"),
        (b"not an engine", r"cannot be loaded by TensorRT 10\.9\.0: .*magic tag"),
    ],
)
def test_bad_files_in_one_line(tmp_path, content, words):
    path = tmp_path / "bad.engine"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=words) as caught:
        TensorRtRuntime(path, GPU)
    assert "bad.engine" in str(caught.value) and "\n" not in str(caught.value)


def test_a_type_without_numbers_here(tmp_path):
    with pytest.raises(ModelLoadError, match="output0 has a type"):
        TensorRtRuntime(saved(tmp_path, standin.engine(dtype="FLOAT").replace(b'"FLOAT"', b'"FP8"', 1)), GPU)


def test_the_cpu_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not run on device=cpu"):
        TensorRtRuntime(saved(tmp_path, standin.engine()), Device())


def test_threads_mean_nothing(tmp_path):
    with pytest.raises(ConfigError, match="threads=2 means nothing"):
        tensorrt_model(str(saved(tmp_path, standin.engine())), threads=2).load(GPU)


def test_without_tensorrt_the_pip_line_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[tensorrt\]'"):
        TensorRtRuntime(saved(tmp_path, standin.engine()), GPU)


def test_no_path():
    with pytest.raises(ConfigError, match="no TensorRT engine"):
        tensorrt_model("")
