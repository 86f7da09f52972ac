"""Small ONNX networks with known answers, built in the test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["METADATA", "constant", "oracle", "sized"]

METADATA = {
    "task": "detect",
    "end2end": "True",
    "names": "{0: 'black', 1: 'b', 2: 'c', 3: 'blue'}",
    "imgsz": "[64, 64]",
}
TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "float64": TensorProto.DOUBLE,
}


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any],
          metadata: dict[str, str] | None) -> Path:  # fmt: skip
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def oracle(
    path: Path,
    batch: int | str = "batch",
    dtype: str = "float32",
    layout: str = "NCHW",
    channels: int = 3,
    side: int | str = 64,
    full: float = 1.0,
    metadata: dict[str, str] | None = METADATA,  # type: ignore[assignment]
) -> Path:
    """Shows the picture in a box: ``[4, 4, 20 + 32R, 20 + 32G, 0.9, 3B]`` of the channels' means, ``full`` being white.

    With one channel R, G and B are all that channel.
    """
    shape = [batch, channels, side, side] if layout == "NCHW" else [batch, side, side, channels]
    axes = [2, 3] if layout == "NCHW" else [1, 2]
    weights = np.zeros((3, 6), np.float32)
    weights[0, 2], weights[1, 3], weights[2, 5] = 32 / full, 32 / full, 3 / full
    if channels == 1:
        weights = weights.sum(0, keepdims=True)
    nodes = [
        helper.make_node("Cast", ["images"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["real"], ["means"], axes=axes, keepdims=0),
        helper.make_node("MatMul", ["means", "weights"], ["products"]),
        helper.make_node("Add", ["products", "bias"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "one"], ["rows" if dtype == "float16" else "output0"]),
    ]
    if dtype == "float16":
        nodes.append(helper.make_node("Cast", ["rows"], ["output0"], to=TensorProto.FLOAT16))
    out_type = TYPES["float16" if dtype == "float16" else "float32"]
    return _save(
        path,
        nodes,
        [helper.make_tensor_value_info("images", TYPES[dtype], shape)],
        [helper.make_tensor_value_info("output0", out_type, [batch, 1, 6])],
        {"weights": weights, "bias": np.array([4, 4, 20, 20, 0.9, 0], np.float32), "one": np.array([1], np.int64)},
        metadata,
    )


def constant(
    path: Path,
    output: np.ndarray,
    metadata: dict[str, str] | None = None,
    side: int = 64,
    name: str = "output0",
    said: Sequence[int | str] | None = None,
    channels: int = 3,
) -> Path:
    """Gives the same output whatever the picture; ``said`` is the shape that the file claims for it."""
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["most"], keepdims=0),
        helper.make_node("Mul", ["most", "zero"], ["nothing"]),
        helper.make_node("Add", ["answer", "nothing"], [name]),
    ]
    return _save(
        path,
        nodes,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, channels, side, side])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(said or output.shape))],
        {"answer": output.astype(np.float32), "zero": np.float32(0)},
        metadata,
    )


def sized(path: Path, name: str = "orig_target_sizes") -> Path:
    """A detector with a second input of sizes: one box, the middle half of what that input says, class 1 at 0.9."""
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["most"], keepdims=0),
        helper.make_node("Mul", ["most", "zero"], ["nothing"]),
        helper.make_node("Cast", [name], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["sizes", "sizes"], ["four"], axis=1),
        helper.make_node("Mul", ["four", "part"], ["box"]),
        helper.make_node("Unsqueeze", ["box", "one"], ["boxes"]),
        helper.make_node("Add", ["score", "nothing"], ["scores"]),
        helper.make_node("Identity", ["class"], ["labels"]),
    ]
    return _save(
        path,
        nodes,
        [
            helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 64, 64]),
            helper.make_tensor_value_info(name, TensorProto.INT64, [1, 2]),
        ],
        [
            helper.make_tensor_value_info("labels", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 1, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1]),
        ],
        {
            "zero": np.float32(0),
            "part": np.array([[0.25, 0.25, 0.75, 0.75]], np.float32),
            "one": np.array([1], np.int64),
            "score": np.array([[0.9]], np.float32),
            "class": np.array([[1]], np.int64),
        },
        None,
    )
