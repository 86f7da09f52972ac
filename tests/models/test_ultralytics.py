"""UltralyticsModel: what it asks of the package, what it never fetches, and the patch for TensorRT's shapes."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest
import tensorrt_standin as standin

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.models import ultralytics as module
from gstinfer.models.ultralytics import DimsTuple, patch_tensorrt, ultralytics_model


class Boxes:
    def __init__(self, rows):
        rows = np.asarray(rows, np.float32).reshape(-1, 6)
        self.xyxy, self.conf, self.cls, self.id = rows[:, :4], rows[:, 4], rows[:, 5], None


class Yolo:
    """Stands in for ``ultralytics.YOLO``: one box per picture, over its brightest channel in BGR order."""

    made: list = []  # noqa: RUF012

    def __init__(self, path, task=None, verbose=True):
        self.path, self.task, self.names = path, task or "detect", {0: "blue", 1: "green", 2: "red"}
        self.calls, self.place = [], None
        Yolo.made.append(self)

    def to(self, place):
        self.place = place

    def predict(self, pictures, **settings):
        self.calls.append(settings)
        return [
            types.SimpleNamespace(
                boxes=Boxes([0, 0, 4, 4, 0.9, int(p.mean((0, 1)).argmax())]),
                probs=None, names=self.names, orig_shape=p.shape[:2], masks=None, keypoints=None, obb=None,
            )
            for p in pictures
        ]  # fmt: skip


@pytest.fixture
def package(monkeypatch):
    """The stand-in in place of the package."""
    found = types.ModuleType("ultralytics")
    found.YOLO = Yolo
    Yolo.made.clear()
    monkeypatch.setitem(sys.modules, "ultralytics", found)
    for name in ("YOLO_OFFLINE", "YOLO_AUTOINSTALL", "YOLO_VERBOSE"):
        # Set, then deleted: so that what the model sets is taken back after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return found


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "net.pt"
    path.write_bytes(b"weights")
    return path


def test_pictures_go_in_as_bgr_and_results_come_back(package, weights):
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    results = as_model(f"ultralytics:{weights}").predict([red, red[..., ::-1].copy()])
    assert [r.label for r in results] == [["red"], ["blue"]]
    assert results[0].xyxy.tolist() == [[0, 0, 4, 4]] and Yolo.made[0].place == "cpu"


def test_options_reach_the_package(package, weights):
    model = as_model(
        f"ultralytics:{weights}", confidence_threshold=0.1, iou_threshold=0.3, class_agnostic=True, max_detections=7,
        input_size="320x192", task="pose", half=True,
    )  # fmt: skip
    call = Yolo.made[0].calls[-1]
    assert Yolo.made[0].task == "pose"
    assert {k: call[k] for k in ("conf", "iou", "agnostic_nms", "max_det", "imgsz", "half", "device")} == {
        "conf": 0.1, "iou": 0.3, "agnostic_nms": True, "max_det": 7, "imgsz": (192, 320), "half": True, "device": "cpu",
    }  # fmt: skip
    model.model.confidence_threshold = 0.6
    model.predict(np.zeros((8, 8, 3), np.uint8))
    assert Yolo.made[0].calls[-1]["conf"] == 0.6


def test_labels_may_be_given(package, weights):
    model = as_model(f"ultralytics:{weights}")
    assert dict(model.model.labels) == {0: "blue", 1: "green", 2: "red"}
    model.model.labels = "x,y,z"
    assert model.model.labels == ("x", "y", "z")


def test_nothing_is_fetched_unless_it_is_asked_for(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=r"yolo26n\.pt does not exist.*nothing is fetched unless download=true"):
        as_model("ultralytics:yolo26n.pt")
    assert Yolo.made == []
    as_model("ultralytics:yolo26n.yaml")
    assert os.environ["YOLO_OFFLINE"] == "true" and os.environ["YOLO_AUTOINSTALL"] == "false"
    assert os.environ["YOLO_VERBOSE"] == "false"


@pytest.mark.parametrize(("path", "options"), [("yolo26n.pt", {"download": True}), ("https://host/yolo26n.pt", {})])
def test_a_remote_model_is_fetched_by_the_package(package, path, options):
    as_model(f"ultralytics:{path}", **options)
    assert Yolo.made[0].path == path
    assert "YOLO_OFFLINE" not in os.environ and os.environ["YOLO_AUTOINSTALL"] == "false"


def test_a_file_the_package_refuses_is_one_line(package, weights, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no\nsuch   thing")

    monkeypatch.setattr(package, "YOLO", broken)
    with pytest.raises(ModelLoadError, match=r"net\.pt cannot be loaded by Ultralytics: RuntimeError: no such thing"):
        as_model(f"ultralytics:{weights}")


def test_an_empty_file_is_refused_before_the_package_sees_it(package, tmp_path):
    (tmp_path / "net.pt").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="is empty"):
        as_model(f"ultralytics:{tmp_path / 'net.pt'}")
    assert Yolo.made == []


def test_without_the_package_the_pip_line_is_said(weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "ultralytics", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[ultralytics\]'"):
        as_model(f"ultralytics:{weights}")


def test_no_path():
    with pytest.raises(ConfigError, match="no Ultralytics model"):
        ultralytics_model("")


def test_describe(package, weights):
    model = as_model(f"ultralytics:{weights}", max_detections=9)
    rows = {what: (value, why) for what, value, why in model.model.describe()}
    assert rows["max-detections"] == ("9", "set") and rows["task"] == ("detect", "the file")
    model.model.close()
    assert model.model.describe() == []


# What iterating over TensorRT's shapes does.


def test_the_patched_tuple_reads_dims_one_by_one():
    assert DimsTuple(standin.Dims([1, 3, 640, 640])) == (1, 3, 640, 640)
    assert type(DimsTuple(standin.Dims([1]))) is tuple


def test_the_patched_tuple_is_tuple_for_all_else():
    assert DimsTuple() == () and DimsTuple([1, 2]) == (1, 2) and DimsTuple(x for x in "ab") == ("a", "b")
    assert isinstance((1,), DimsTuple) and not isinstance([1], DimsTuple) and isinstance((1,), (list, DimsTuple))
    assert issubclass(tuple, DimsTuple) and not issubclass(list, DimsTuple)

    class Dims:
        """Of another package: iterated over as ever."""

        def __iter__(self):
            return iter("xyz")

    assert DimsTuple(Dims()) == ("x", "y", "z")


@pytest.fixture
def backend(monkeypatch):
    """A module with code like Ultralytics' backend, under its name."""
    found = types.ModuleType("ultralytics.nn.backends.tensorrt")
    exec("def shape(dims):\n    return tuple(dims)\n", vars(found))
    monkeypatch.setattr(module, "TENSORRT_BACKENDS", ("ultralytics.nn.backends.tensorrt",))
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def test_the_patch_is_scoped_to_the_backend(backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "gi", types.ModuleType("gi"))
    monkeypatch.setitem(sys.modules, "tensorrt", standin.tensorrt())
    with pytest.raises(AssertionError, match="iterated over"):
        backend.shape(standin.Dims([1, 2]))
    patch_tensorrt()
    assert backend.shape(standin.Dims([1, 2])) == (1, 2)
    with pytest.raises(AssertionError, match="iterated over"):
        tuple(standin.Dims([1, 2]))


def test_the_patch_is_applied_before_an_engine_is_opened(package, backend, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gi", types.ModuleType("gi"))
    monkeypatch.setitem(sys.modules, "tensorrt", standin.tensorrt())
    shapes = []

    class Engine(Yolo):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            shapes.append(backend.shape(standin.Dims([1, 3])))

    package.YOLO = Engine
    (tmp_path / "net.engine").write_bytes(b"engine")
    as_model(f"ultralytics:{tmp_path / 'net.engine'}")
    assert shapes == [(1, 3)] and Yolo.made[0].place is None


def test_without_pygobject_nothing_is_patched(backend, monkeypatch):
    monkeypatch.delitem(sys.modules, "gi", raising=False)
    monkeypatch.setitem(sys.modules, "tensorrt", standin.tensorrt())
    patch_tensorrt()
    assert "tuple" not in vars(backend)


def test_one_letterboxed_tensor_gives_what_the_pictures_give(tmp_path):
    """The way of GPU frames, taken with frames in host memory: same objects as the library's own preprocessing."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("ultralytics")
    from gstinfer.frames import FrameBatch
    from gstinfer.image import Device
    from gstinfer.models.ultralytics import UltralyticsModel
    from gstinfer.results import Detections

    torch.manual_seed(1)
    model = UltralyticsModel("yolo11n.yaml", confidence_threshold=0.0, max_detections=20, input_size=64)
    model.load(Device())
    rng = np.random.default_rng(0)
    batch = FrameBatch.of([rng.integers(0, 255, (64, 64, 3), np.uint8) for _ in range(2)])
    taken = FrameBatch.letterbox
    try:
        FrameBatch.letterbox = lambda self, *a, **k: (torch.from_numpy(taken(self, *a, **k)[0]), taken(self, *a, **k)[1])
        tensors = model._run_tensor(batch)
    finally:
        FrameBatch.letterbox = taken
    from gstinfer.convert import to_result

    for ours, theirs in zip(tensors, model._run(batch.images("bgr"))):
        theirs = to_result(theirs)
        assert isinstance(ours, Detections) and len(ours) == len(theirs)
        np.testing.assert_allclose(ours.xyxy, theirs.xyxy, atol=0.05)
        np.testing.assert_allclose(ours.confidence, theirs.confidence, atol=1e-4)
