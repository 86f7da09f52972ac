"""RfDetrModel on a stand-in of the package: what it asks for, and what it never fetches."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from gstinfer import ConfigError, MissingDependencyError, ModelLoadError, as_model
from gstinfer.errors import UnknownNameError


class Detections:
    """The columns of ``supervision.Detections``."""

    def __init__(self, xyxy, confidence, class_id):
        self.xyxy, self.confidence, self.class_id = xyxy, confidence, class_id
        self.mask = self.tracker_id = None
        self.data = {}


class Base:
    """Finds one object a picture: the class is the brightest channel in RGB order."""

    made: list = []  # noqa: RUF012
    class_names = {0: "red", 1: "green", 2: "blue"}  # noqa: RUF012
    _model_config_class = types.SimpleNamespace(
        model_fields={"pretrain_weights": types.SimpleNamespace(default="rf-detr-base.pth")}
    )

    def __init__(self, **arguments):
        self.arguments, self.thresholds = arguments, []
        Base.made.append(self)

    def predict(self, pictures, threshold):
        self.thresholds.append(threshold)
        found = [
            Detections(np.array([[1, 2, 5, 6]]), np.array([0.9]), np.array([p.mean((0, 1)).argmax()])) for p in pictures
        ]
        return found if len(found) > 1 else found[0]


@pytest.fixture
def package(monkeypatch, tmp_path):
    found = types.ModuleType("rfdetr")
    found.RFDETRBase = Base
    Base.made.clear()
    monkeypatch.setitem(sys.modules, "rfdetr", found)
    monkeypatch.chdir(tmp_path)
    return found


def test_pictures_go_in_as_rgb_one_or_many(package, tmp_path):
    (tmp_path / "rf-detr-base.pth").write_bytes(b"weights")
    model = as_model("rfdetr:base", confidence_threshold=0.3)
    blue = np.zeros((8, 8, 3), np.uint8)
    blue[..., 2] = 255
    for count in (1, 2):
        found = model.predict([blue] * count)
        assert [(f.label, f.xyxy.tolist()) for f in found] == [(["blue"], [[1, 2, 5, 6]])] * count
    made = Base.made[0]
    assert made.thresholds[-1] == 0.3 and made.arguments["device"] == "cpu"
    assert made.arguments["pretrain_weights"] == str(tmp_path / "rf-detr-base.pth")


def test_weights_may_be_named(package, tmp_path):
    (tmp_path / "mine.pth").write_bytes(b"weights")
    as_model("rfdetr:base", weights="mine.pth")
    assert Base.made[0].arguments["pretrain_weights"] == str(tmp_path / "mine.pth")
    with pytest.raises(ModelLoadError, match=r"other\.pth does not exist"):
        as_model("rfdetr:base", weights="other.pth")


def test_nothing_is_fetched_unless_it_is_asked_for(package):
    with pytest.raises(ModelLoadError, match=r"rf-detr-base\.pth of rfdetr:base are not in .*download=true"):
        as_model("rfdetr:base")
    assert Base.made == []
    as_model("rfdetr:base", download=True)
    assert "pretrain_weights" not in Base.made[0].arguments


def test_variants(package):
    with pytest.raises(UnknownNameError, match=r"no RF-DETR variant 'bsae'; available: base.*did you mean 'base'"):
        as_model("rfdetr:bsae")
    with pytest.raises(ConfigError, match="no RFDETRNano"):
        as_model("rfdetr:nano", download=True)
    with pytest.raises(ConfigError, match="no RF-DETR variant is named"):
        as_model("rfdetr:")


def test_weights_that_do_not_fit_are_one_line(package, tmp_path):
    (tmp_path / "mine.pth").write_bytes(b"weights")

    def broken(**_):
        raise RuntimeError("size\nmismatch")

    broken._model_config_class = None
    package.RFDETRBase = broken
    with pytest.raises(ModelLoadError, match="rfdetr:base cannot be loaded: RuntimeError: size mismatch"):
        as_model("rfdetr:base", weights="mine.pth")


def test_without_the_package_the_pip_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "rfdetr", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gstinfer\[rfdetr\]'"):
        as_model("rfdetr:base")
