"""Semantic segmentation through ONNX Runtime, with outputs as torchvision's exports have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gstinfer import ConfigError, SegmentationMap, as_model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLORS = np.array([(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255)], np.float32)


def network(path: Path, classes: int = 4, second: bool = True) -> Path:
    """``out`` and ``aux`` ``[B,classes,h,w]`` as of ``deeplabv3_resnet50``: class k is nearest to the k-th colour.

    The input is normalised as torchvision's weights want it; ``aux`` says the opposite of ``out``.
    """
    colors = (np.resize(COLORS, (classes, 3)) / 255 - MEAN) / STD
    weights = (2 * colors)[..., None, None].astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["input", "weights", "bias"], ["out"]),
        helper.make_node("Neg", ["out"], ["aux"]),
    ]
    values = {"weights": weights, "bias": -(colors**2).sum(1).astype(np.float32)}
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", classes, 60, 80])
        for name in (("out", "aux") if second else ("out",))
    ]
    picture = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 60, 80])
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes[: 1 + second], "semantic", [picture], outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def quarters(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture of the four colours, and its classes."""
    classes = np.zeros((height, width), np.int32)
    classes[: height // 2, width // 2 :] = 1
    classes[height // 2 :, : width // 2] = 2
    classes[height // 2 :, width // 2 :] = 3
    return COLORS[classes].astype(np.uint8), classes


@pytest.mark.parametrize("frame", [(60, 80), (240, 320), (101, 300), (720, 404)])
@pytest.mark.parametrize("second", [False, True], ids=["out", "out and aux"])
def test_every_pixel_has_its_class(tmp_path, frame, second):
    model = as_model(str(network(tmp_path / "s.onnx", second=second)), head="semantic", labels="none,red,green,blue")
    picture, classes = quarters(*frame)
    found = model.predict([picture, np.ascontiguousarray(picture[::-1])])
    for result, wanted in zip(found, (classes, classes[::-1])):
        assert isinstance(result, SegmentationMap) and result.label == ["none", "red", "green", "blue"]
        height, width = result.class_map.shape
        rows, columns = np.arange(frame[0]) * height // frame[0], np.arange(frame[1]) * width // frame[1]
        enlarged = result.class_map[rows[:, None], columns]
        assert (enlarged == wanted).mean() > 0.95


@pytest.mark.parametrize("swapped", [False, True])
def test_out_and_aux_are_known_by_their_names(tmp_path, swapped):
    path = network(tmp_path / "s.onnx")
    if swapped:
        model = onnx.load(path)
        outputs = list(model.graph.output)
        del model.graph.output[:]
        model.graph.output.extend(outputs[::-1])
        onnx.save(model, path)
    picture, classes = quarters(60, 80)
    assert (as_model(str(path)).predict(picture)[0].class_map == classes).all()


def test_one_map_without_a_word_of_the_user_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="head=semantic"):
        as_model(str(network(tmp_path / "s.onnx", second=False)))


def test_names_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="3 labels"):
        as_model(str(network(tmp_path / "s.onnx")), head="semantic", labels="a,b,c")
