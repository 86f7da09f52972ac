"""ONNX Runtime's providers: chosen by name, never replaced; tensors bound by address, in and out; opsets and shapes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_networks import constant, oracle

from gstinfer import ConfigError, ModelLoadError, as_model
from gstinfer.image import Device
from gstinfer.models import onnx as onnx_module
from gstinfer.models.onnx import PROVIDERS, OnnxRuntime

GPU = Device("cuda", 1)
CUDA = ("CUDAExecutionProvider", {"device_id": 1, "cudnn_conv_algo_search": "HEURISTIC"})
CPU = ("CPUExecutionProvider", {})


class TensorLike:
    """What ``run`` asks of a torch tensor, over NumPy memory."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.device = type("Where", (), {"type": "cpu", "index": None})

    def contiguous(self):
        return self

    def data_ptr(self):
        return self.array.ctypes.data


class Session:
    """Records what it is made with; runs on the providers it is told to pretend."""

    seen: list = []  # noqa: RUF012
    pretend: list = []  # noqa: RUF012

    def __init__(self, path, options, providers, enable_fallback=True):
        assert not enable_fallback, "it would print, and go on with the CPU"
        Session.seen.append(providers)

    def disable_fallback(self):
        pass

    def get_providers(self):
        return Session.pretend

    def get_inputs(self):
        return []

    get_outputs = get_inputs

    def get_modelmeta(self):
        return type("Meta", (), {"custom_metadata_map": {}})


@pytest.fixture
def library(monkeypatch):
    """An ONNX Runtime that has every provider."""
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: list(PROVIDERS.values()))
    Session.seen.clear()
    Session.pretend = list(PROVIDERS.values())


@pytest.mark.parametrize(
    ("provider", "device", "want"),
    [
        ("auto", Device(), [CPU]),
        ("auto", GPU, [CUDA, CPU]),
        ("cuda", GPU, [CUDA, CPU]),
        ("tensorrt", GPU, [("TensorrtExecutionProvider", {"device_id": 1}), CUDA, CPU]),
        ("openvino", Device(), [("OpenVINOExecutionProvider", {"device_type": "CPU"}), CPU]),
    ],
)
def test_the_provider_asked_for_comes_first(library, tmp_path, provider, device, want):
    OnnxRuntime(oracle(tmp_path / "o.onnx"), device, provider=provider)
    assert Session.seen == [want]


@pytest.mark.parametrize(
    ("provider", "device", "hint"),
    [("cuda", Device(), "device=cuda:0"), ("tensorrt", Device(), "device=cuda:0"), ("openvino", GPU, "device=cpu"),
     ("cpu", GPU, "device=cpu")],
)  # fmt: skip
def test_a_provider_that_does_not_fit_the_device(library, tmp_path, provider, device, hint):
    with pytest.raises(ConfigError, match=f"provider={provider} does not fit device=") as caught:
        OnnxRuntime(oracle(tmp_path / "o.onnx"), device, provider=provider)
    assert hint in caught.value.hint and Session.seen == []


@pytest.mark.parametrize(
    ("provider", "device", "package"),
    [("openvino", Device(), "onnxruntime-openvino"), ("tensorrt", GPU, "onnxruntime-gpu"), ("auto", GPU, "onnxruntime-gpu")],
)
def test_a_provider_that_is_missing_is_an_error(monkeypatch, tmp_path, provider, device, package):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError, match=r"was asked for, but ONNX Runtime .* only CPUExecutionProvider") as caught:
        OnnxRuntime(oracle(tmp_path / "o.onnx"), device, provider=provider)
    assert f"pip install {package}" in caught.value.hint


@pytest.mark.parametrize("provider", ["tensorrt", "cuda"])
def test_a_provider_that_fails_to_start_is_an_error(library, tmp_path, monkeypatch, provider):
    """ONNX Runtime goes on with the CPU then, and its reason goes to stderr alone."""
    Session.pretend = ["CPUExecutionProvider"]
    (tmp_path / "capi").mkdir()
    (tmp_path / f"capi/libonnxruntime_providers_{provider}.so").write_bytes(b"no library")
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(ModelLoadError, match=r"could not use .*ExecutionProvider on cuda:1 for o\.onnx: .*too short"):
        OnnxRuntime(oracle(tmp_path / "o.onnx"), GPU, provider=provider)


def test_a_library_that_the_provider_lacks_is_named(library, tmp_path):
    """The CPU's package has no such provider at all, which the loader says in the same words."""
    Session.pretend = ["CPUExecutionProvider"]
    with pytest.raises(ModelLoadError, match="cannot open shared object") as caught:
        OnnxRuntime(oracle(tmp_path / "o.onnx"), GPU)
    assert "onnxruntime-gpu[cuda,cudnn]" in caught.value.hint


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("", ""),
        ("libcudnn.so.9: cannot open shared object file", "pip install 'onnxruntime-gpu[cuda,cudnn]'"),
        ("libnvinfer.so.10: cannot open shared object file", "pip install tensorrt"),
        ("undefined symbol: x", ""),
    ],
)
def test_the_package_that_brings_a_library(reason, hint):
    assert onnx_module._package(reason) == hint


def test_a_failure_of_the_gpu_is_no_fault_of_the_file(library, tmp_path, monkeypatch):
    place = "/onnxruntime_src/cuda_call.cc:154 bool CudaCall(const char*) [with ERRTYPE = cudaError; bool THRW = true] "

    def fails(*_, **__):
        raise RuntimeError(f"{2 * place}CUDA failure 2: out of memory ; GPU=1 ; hostname=here ; expr=cudaMalloc(&p, n); ")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fails)
    with pytest.raises(ModelLoadError) as caught:
        OnnxRuntime(oracle(tmp_path / "o.onnx"), GPU)
    assert caught.value.message.endswith(f"ONNX Runtime {onnxruntime.__version__}: CUDA failure 2: out of memory")
    assert "nvidia-smi" in caught.value.hint


@pytest.mark.parametrize(("mixed", "device", "said"), [(True, GPU, True), (False, GPU, False), (True, Device(), False)])
def test_a_process_in_which_the_provider_cannot_raise(library, tmp_path, monkeypatch, caplog, mixed, device, said):
    monkeypatch.setattr("gstinfer.models.onnx.mixed", lambda: mixed)
    OnnxRuntime(oracle(tmp_path / "o.onnx"), device)
    assert ("import gstinfer before" in caplog.text) is said


def test_the_option_reaches_the_runtime(tmp_path):
    path = oracle(tmp_path / "o.onnx")
    assert as_model(str(path), provider="cpu").predict(np.zeros((64, 64, 3), np.uint8))[0].class_id.tolist() == [0]
    with pytest.raises(ConfigError, match="provider=tensorrt does not fit device=cpu"):
        as_model(str(path), provider="tensorrt")
    with pytest.raises(ConfigError, match="provider='gpu' is not known"):
        as_model(str(path), provider="gpu")


def test_outputs_are_written_where_they_are_wanted(tmp_path):
    runtime = OnnxRuntime(oracle(tmp_path / "o.onnx"))
    pixels = np.ones((2, 3, 64, 64), np.float32)
    out = TensorLike(np.zeros((2, 1, 6), np.float32))
    assert runtime.run({"images": TensorLike(pixels)}, {"output0": out})["output0"] is out
    assert out.array[:, 0, 2].tolist() == [52, 52]
    pixels[:] = 0
    runtime.run({"images": pixels}, {"output0": out})
    assert out.array[:, 0, 2].tolist() == [20, 20]


def test_an_array_that_is_not_contiguous_is_copied(tmp_path):
    pixels = np.zeros((2, 64, 64, 3), np.float32).transpose(0, 3, 1, 2)
    out = TensorLike(np.zeros((2, 1, 6), np.float32))
    OnnxRuntime(oracle(tmp_path / "o.onnx")).run({"images": pixels}, {"output0": out})
    assert out.array[:, 0, 2].tolist() == [20, 20]


def changed(path, **fields):
    model = onnx.load(path)
    for name, value in fields.items():
        if name == "opset":
            model.opset_import[0].version = value
        elif name == "operator":
            model.graph.node[0].op_type = value
        else:
            setattr(model, name, value)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"opset": 99}, "guarantees.* support for models stamped with official released onnx opset|[Oo]pset 99"),
        ({"ir_version": 99}, "IR version"),
        ({"operator": "NoSuchOperator"}, "NoSuchOperator"),
    ],
)
def test_a_file_of_another_opset_or_version(tmp_path, fields, words):
    with pytest.raises(ModelLoadError, match=words) as caught:
        as_model(str(changed(oracle(tmp_path / "o.onnx"), **fields)))
    assert "o.onnx cannot be loaded by ONNX Runtime" in str(caught.value) and "\n" not in str(caught.value)
    assert "onnxruntime_src" not in str(caught.value)


def test_an_input_that_is_no_picture(tmp_path):
    node = helper.make_node("Identity", ["words"], ["output0"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("words", "output0")]
    graph = helper.make_graph([node], "test", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "o.onnx")
    with pytest.raises(ConfigError, match=r"takes words \[1,16\], expected pictures"):
        as_model(str(tmp_path / "o.onnx"), head="classify")


def test_labels_that_do_not_fit(tmp_path):
    path = constant(tmp_path / "o.onnx", np.zeros((1, 4), np.float32))
    with pytest.raises(ConfigError, match="3 labels do not fit"):
        as_model(str(path), head="classify", labels="a,b,c")


def test_a_file_that_holds_other_bytes(tmp_path):
    (tmp_path / "o.onnx").write_bytes(np.random.default_rng(0).bytes(4096))
    with pytest.raises(ModelLoadError, match="cannot be loaded by ONNX Runtime") as caught:
        as_model(str(tmp_path / "o.onnx"))
    assert "\n" not in str(caught.value)
