"""An ONNX network of each task whose answer can be told from the picture, built in the test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["classifier", "rotated", "semantic"]


def _save(path: Path, nodes, outputs, constants, metadata, batch: int | str = "batch") -> Path:
    inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, 64, 64])]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "task", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def classifier(path: Path) -> Path:
    """``[B,3]``: the softmax of ten times the mean red, green and blue."""
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["means", "ten"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probs"], axis=1),
    ]
    outputs = [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", 3])]
    return _save(path, nodes, outputs, {"ten": np.float32(10)}, {"task": "classify", "names": "{0:'r',1:'g',2:'b'}"})


def semantic(path: Path) -> Path:
    """``[B,3,32,32]``: red, green and blue of each 2 x 2 pixels as scores."""
    nodes = [helper.make_node("AveragePool", ["images"], ["scores"], kernel_shape=[2, 2], strides=[2, 2])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3, 32, 32])]
    return _save(path, nodes, outputs, {}, {"task": "semantic", "names": "{0:'r',1:'g',2:'b'}"})


def rotated(path: Path) -> Path:
    """``[1,7,84]`` as Ultralytics' rotated boxes with two classes: one object at the centre, 32 x 8, turned by 0.5."""
    rows = np.zeros((1, 7, 84), np.float32)
    rows[0, :, 40] = 32, 32, 32, 8, 0.1, 0.9, 0.5
    # A weaker one that lies on it, and one crossing it that does not.
    rows[0, :, 41] = 33, 32, 32, 8, 0.1, 0.6, 0.52
    rows[0, :, 42] = 32, 32, 32, 8, 0.1, 0.7, 0.5 - np.pi / 2
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["most"], keepdims=0),
        helper.make_node("Mul", ["most", "zero"], ["nothing"]),
        helper.make_node("Add", ["rows", "nothing"], ["output0"]),
    ]
    outputs = [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 7, 84])]
    metadata = {"task": "obb", "names": "{0: 'ship', 1: 'plane'}", "imgsz": "[64, 64]", "stride": "32"}
    return _save(path, nodes, outputs, {"rows": rows, "zero": np.float32(0)}, metadata, batch=1)
