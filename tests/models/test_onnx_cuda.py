"""What the providers for NVIDIA GPUs need around them: their libraries, and batches of steady size."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
from onnx_networks import oracle

from gstinfer.frames import FrameBatch
from gstinfer.image import Device, Image
from gstinfer.models.onnx import onnx_model
from gstinfer.models.onnx_cuda import SteadyBatch, load_libraries
from gstinfer.preprocess import cpu, cuda

GPU = Device("cuda")


def packages(tmp_path, monkeypatch, *files):
    """NVIDIA's namespace package over two folders, holding these files."""
    folders = [tmp_path / "one/nvidia", tmp_path / "two/nvidia"]
    for number, name in enumerate(files):
        path = folders[number % 2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no library")
    spec = importlib.machinery.ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(folder) for folder in folders]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)


@pytest.mark.parametrize(
    "files",
    [
        ("cu13/lib/libcublas.so.13", "cu13/lib/libcublasLt.so.13", "cudnn/lib/libcudnn.so.9", "cu13/lib/libcudart.so.13"),
        ("cublas/lib/libcublas.so.12", "cublas/lib/libcublasLt.so.12", "cudnn/lib/libcudnn.so.9",
         "cuda_runtime/lib/libcudart.so.12"),
    ],
)  # fmt: skip
def test_libraries_of_packages_are_loaded_those_first_that_others_need(tmp_path, monkeypatch, files):
    packages(tmp_path, monkeypatch, *files, "cudnn/lib/libcudnn_graph.so.9", "cublas/include/cublas.h")
    opened = []

    def load(name, mode=0):
        if "/" not in name:
            raise OSError("not loaded")
        opened.append(name.split("/nvidia/")[1])

    monkeypatch.setattr(ctypes, "CDLL", load)
    load_libraries()
    assert opened == [files[3], files[1], files[0], files[2]]


def test_what_is_loaded_already_stays(tmp_path, monkeypatch):
    packages(tmp_path, monkeypatch, "cu13/lib/libcublas.so.13")
    opened = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode=0: opened.append(name))
    load_libraries()
    assert opened == ["libcublas.so.13"]


def test_a_library_that_does_not_load_stops_nothing(tmp_path, monkeypatch):
    packages(tmp_path, monkeypatch, "cu13/lib/libcublas.so.13")
    tried, opens = [], ctypes.CDLL

    def load(name, *mode):
        tried.append(name)
        return opens(name, *mode)

    monkeypatch.setattr(ctypes, "CDLL", load)
    load_libraries()
    assert tried == ["libcublas.so.13", str(tmp_path / "one/nvidia/cu13/lib/libcublas.so.13")]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    load_libraries()
    assert len(tried) == 2


def test_a_batch_size_rises_at_once_and_falls_late():
    steady = SteadyBatch(patience=5)
    assert [steady.rows(n) for n in (1, 3, 4, 2, 1, 3, 7, 5)] == [1, 4, 4, 4, 4, 4, 8, 8]
    # Five batches in a row with room in a smaller size; one that needs the size begins the count anew.
    assert [steady.rows(n) for n in (1, 2, 1)] == [8, 8, 8]
    assert steady.rows(8) == 8
    assert [steady.rows(n) for n in (1, 3, 1, 1, 1, 1)] == [8, 8, 8, 8, 4, 4]
    assert steady.rows(100) == 100


def seen_sizes(model):
    """The batch sizes that reach the network."""
    runtime, sizes = model._runtime, []
    run = runtime.run

    def noted(feeds):
        sizes.append(len(feeds["images"]))
        return run(feeds)

    runtime.run = noted
    return sizes


def pictures(count):
    """Pictures whose box is 4 x 20 grey levels wider than that of the one before."""
    return [np.full((64, 64, 3), 20 * n, np.uint8) for n in range(count)]


def right(results):
    return [round(float(r.xyxy[0, 2] - 20) / 32 * 255) for r in results] == [20 * n for n in range(len(results))]


def test_the_cuda_provider_gets_few_batch_sizes(tmp_path, monkeypatch):
    model = onnx_model(str(oracle(tmp_path / "o.onnx")))
    model.load(Device())
    sizes = seen_sizes(model)
    for device in (Device(), GPU):
        model.device = device
        for count in (1, 3, 2, 5, 4):
            assert right(model.predict(FrameBatch.of(pictures(count))))
    assert sizes == [1, 3, 2, 5, 4, 1, 4, 4, 8, 8]


def test_what_a_function_reads_has_no_blank_rows(tmp_path):
    (tmp_path / "read.py").write_text("def read(outputs, transforms):\n    return [()] * len(outputs['output0'])\n")
    model = onnx_model(str(oracle(tmp_path / "o.onnx")), head=f"{tmp_path}/read.py:read")
    model.load(Device())
    model.device, sizes = GPU, seen_sizes(model)
    assert model.predict(FrameBatch.of(pictures(3))) == [()] * 3
    assert sizes == [3]


def test_pictures_on_a_gpu_fill_up_a_fixed_batch(tmp_path, monkeypatch):
    """torch's part is played by NumPy."""

    class Tensor(np.ndarray):
        def cpu(self):
            return self

        def numpy(self):
            return np.asarray(self)

    made = []

    def zeros(shape, dtype, device):
        made.append((shape, device))
        return np.zeros(shape, dtype).view(Tensor)

    def prepare(images, spec, transforms, out):
        out = zeros(spec.input_shape(len(images)), spec.dtype, "new") if out is None else out
        cpu.prepare([Image(i.format, i.planes, i.width, i.height) for i in images], spec, transforms, out)
        return out

    monkeypatch.setattr(cuda, "gpu_torch", lambda: SimpleNamespace(zeros=zeros, float32=np.float32))
    monkeypatch.setattr(cuda, "prepare", prepare)
    model = onnx_model(str(oracle(tmp_path / "o.onnx", batch=4)))
    model.load(Device())
    for count in (3, 4):
        images = [Image("RGB", (p,), 64, 64, device=GPU) for p in pictures(count)]
        assert right(model.predict(FrameBatch.of(images)))
    assert made == [((4, 3, 64, 64), "cuda:0"), ((4, 3, 64, 64), "new")]
