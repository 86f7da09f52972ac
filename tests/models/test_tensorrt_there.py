"""Outputs of TensorRT decoded where they were computed: here the CPU, with tensors of torch and a stand-in for TensorRT."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import tensorrt_standin as standin
from frames_of import batch

from gstinfer.image import Device, Image
from gstinfer.models import network
from gstinfer.models import tensorrt as runtimes
from gstinfer.models.tensorrt import TensorRtRuntime, tensorrt_model

torch = pytest.importorskip("torch", reason="torch is not installed")

GPU = Device("cuda", 0)
METADATA = {"task": "detect", "end2end": "true", "imgsz": "[64, 64]", "names": "{0: 'black', 1: 'b', 2: 'c', 3: 'blue'}"}


class Library:
    """torch, whose GPU is the CPU."""

    cuda = SimpleNamespace(
        device=lambda place: nullcontext(), current_stream=lambda place: SimpleNamespace(cuda_stream=standin.STREAM)
    )

    def __getattr__(self, name):
        return (lambda text: torch.device("cpu")) if name == "device" else getattr(torch, name)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Loads an engine as a model; ``model.asked`` tells how its runtime was asked, and for how many rows."""
    monkeypatch.setitem(sys.modules, "tensorrt", standin.tensorrt())
    monkeypatch.setattr(runtimes, "torch_library", lambda device: Library())
    prepare = network.prepare

    def prepared(images, spec, out=None):
        if not images[0].device.is_cuda:
            return prepare(images, spec, out=out)
        pixels, transforms = prepare([Image.from_array(np.asarray(image.planes[0])) for image in images], spec)
        return torch.from_numpy(np.array(pixels)), transforms

    monkeypatch.setattr(network, "prepare", prepared)
    asked = []

    def noting(name):
        method = getattr(TensorRtRuntime, name)

        def noted(runtime, feeds):
            asked.append((name, len(feeds["images"])))
            return method(runtime, feeds)

        return noted

    for name in ("run", "run_there"):
        monkeypatch.setattr(TensorRtRuntime, name, noting(name))

    def load(content, metadata=METADATA, **options):
        path = tmp_path / "net.engine"
        path.write_bytes(content)
        monkeypatch.setattr(runtimes, "split_header", lambda content: (metadata, content))
        model = tensorrt_model(str(path), **options)
        model.load(GPU)
        asked.clear()
        model.asked = asked
        return model

    return load


@pytest.mark.parametrize("dtype", ["FLOAT", "HALF"])
def test_what_is_found_is_what_the_host_finds(load, dtype):
    model = load(standin.engine(dtype=dtype))
    want = model.predict(batch(3, Device()))
    found = model.predict(batch(3, GPU))
    assert model.asked == [("run", 3), ("run_there", 3)] and len(found) == 3
    for ours, theirs in zip(found, want, strict=True):
        assert len(ours) == 1 and np.array_equal(ours.class_id, theirs.class_id)
        assert np.allclose(ours.xyxy, theirs.xyxy, atol=1e-2) and np.allclose(ours.confidence, theirs.confidence)


def test_more_than_the_engine_takes_at_once_comes_to_the_host_in_parts(load):
    model = load(standin.engine(most=2))
    assert len(model.predict(batch(3, GPU))) == 3
    assert model.asked == [("run", 3)]


def test_other_heads_get_their_outputs_on_the_host(load):
    model = load(standin.engine(shape=[-1, 6]), {"task": "classify", "imgsz": "[64, 64]"})
    # The greatest of the six numbers.
    assert model.predict(batch(1, GPU))[0].class_id[0] in (2, 3)
    assert model.asked == [("run", 1)]
