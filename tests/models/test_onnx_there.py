"""Outputs of ONNX Runtime decoded where they were computed; here that is the CPU, with torch's tensors."""

from __future__ import annotations

import numpy as np
import pytest
from frames_of import batch
from onnx_networks import constant, oracle

from gstinfer.image import Device, Image
from gstinfer.models import network
from gstinfer.models.onnx import onnx_model

torch = pytest.importorskip("torch", reason="torch is not installed")

GPU = Device("cuda")
YOLO = {"task": "detect", "names": "{0: 'a', 1: 'b', 2: 'c'}"}


def crowded(rng: np.random.Generator, boxes: int = 300) -> np.ndarray:
    """Raw output ``[1,7,boxes]`` of a YOLO with 3 classes: boxes that overlap, in no order."""
    raw = rng.uniform(0, 0.2, (1, 7, boxes)).astype(np.float32)
    raw[:, :2] = rng.uniform(10, 54, (1, 2, boxes))
    raw[:, 2:4] = rng.uniform(4, 20, (1, 2, boxes))
    raw[0, rng.integers(4, 7, boxes), np.arange(boxes)] = rng.permutation(np.linspace(0.05, 0.99, boxes))
    return raw


def noting(asked: list, name: str, method):
    def noted(feeds, *more):
        asked.append((name, len(feeds["images"])))
        return method(feeds, *more)

    return noted


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Makes a loaded model take frames of a GPU, whose memory is the host's here; notes how its runtime was asked."""

    def move(model):
        prepare = network.prepare

        def prepared(images, spec, out=None):
            pixels, transforms = prepare([Image.from_array(np.asarray(image.planes[0])) for image in images], spec)
            if out is None:
                return torch.from_numpy(np.array(pixels)), transforms
            out[: len(images)] = torch.from_numpy(pixels)
            return out, transforms

        monkeypatch.setattr(network, "prepare", prepared)
        monkeypatch.setattr(network, "_blank", lambda spec, device, rows: torch.zeros(spec.input_shape(rows)))
        model.device, runtime, asked = GPU, model.parts[2], []
        for name in ("run", "run_there"):
            monkeypatch.setattr(runtime, name, noting(asked, name, getattr(runtime, name)))
        return asked

    return move


@pytest.mark.parametrize("end2end", [False, True])
@pytest.mark.parametrize("options", [{}, {"confidence_threshold": 0.4, "iou_threshold": 0.2}])
def test_what_is_found_is_what_the_host_finds(tmp_path, on_a_gpu, end2end, options):
    path = tmp_path / "n.onnx"
    if end2end:
        oracle(path)
    else:
        constant(path, crowded(np.random.default_rng(1)), YOLO)
    count = 3 if end2end else 1
    model = onnx_model(str(path), **options)
    model.load(Device())
    want = model.predict(batch(count, Device()))
    asked = on_a_gpu(model)
    found = model.predict(batch(count, GPU))
    assert {name for name, _ in asked} == {"run_there"} and len(found) == count
    assert any(len(one) for one in want)
    for ours, theirs in zip(found, want, strict=True):
        assert np.array_equal(ours.class_id, theirs.class_id)
        assert np.allclose(ours.xyxy, theirs.xyxy, atol=1e-3) and np.allclose(ours.confidence, theirs.confidence, atol=1e-6)


def test_batches_of_any_size_share_the_memory_of_the_largest(tmp_path, on_a_gpu):
    path = oracle(tmp_path / "o.onnx")
    model = onnx_model(str(path))
    model.load(Device())
    asked = on_a_gpu(model)
    for count in (1, 5, 2, 3):
        assert len(model.predict(batch(count, GPU))) == count
    # A batch is filled up to a size that seldom changes.
    assert asked == [("run_there", 1), ("run_there", 8), ("run_there", 8), ("run_there", 8)]
    assert {name: tuple(held.shape) for name, held in model.parts[2]._held.items()} == {"output0": (8, 1, 6)}
    runtime = model.parts[2]
    model.close()
    assert not runtime._held


def test_other_heads_get_their_outputs_on_the_host(tmp_path, on_a_gpu):
    scores = np.linspace(0, 1, 10, dtype=np.float32)[None]
    path = constant(tmp_path / "c.onnx", scores, {"task": "classify"})
    model = onnx_model(str(path))
    model.load(Device())
    asked = on_a_gpu(model)
    assert model.predict(batch(1, GPU))[0].class_id[0] == 9
    assert {name for name, _ in asked} == {"run"}


def test_a_file_whose_sizes_were_made_free_says_nothing_of_its_outputs(tmp_path, on_a_gpu):
    path = oracle(tmp_path / "o.onnx", batch=1)
    model = onnx_model(str(path), any_size=True)
    model.load(Device())
    asked = on_a_gpu(model)
    assert len(model.predict(batch(1, GPU))) == 1 and {name for name, _ in asked} == {"run"}
