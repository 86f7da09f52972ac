"""Small TFLite networks with known answers, built in the test by LiteRT's own schema."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["constant", "oracle", "with_files"]

KINDS = {"float32": "FLOAT32", "uint8": "UINT8", "int8": "INT8", "int32": "INT32"}


class _Graph:
    """Tensors and operators of one network."""

    def __init__(self) -> None:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema

        self.flatbuffers, self.schema = flatbuffers, schema
        self.model = schema.ModelT()
        self.model.version, self.model.description = 3, "test"
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.name = [], [], "main"
        self.model.subgraphs = [self.graph]

    def tensor(self, name: str, shape: Any, dtype: str = "float32", quant: Any = None, data: Any = None,
               signature: Any = None) -> int:  # fmt: skip
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.type = name, list(shape), getattr(self.schema.TensorType, KINDS[dtype])
        tensor.buffer = 0
        if signature is not None:
            tensor.shapeSignature = list(signature)
        if data is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        if quant is not None:
            found = self.schema.QuantizationParametersT()
            found.scale, found.zeroPoint = [quant[0]], [quant[1]]
            tensor.quantization = found
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(self, kind: str, inputs: list[int], outputs: list[int], options: Any = None) -> None:
        code = self.schema.OperatorCodeT()
        number = getattr(self.schema.BuiltinOperator, kind)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        operator = self.schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes)
        self.model.operatorCodes.append(code)
        operator.inputs, operator.outputs = inputs, outputs
        if options is not None:
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.graph.operators.append(operator)

    def save(self, path: Path, inputs: list[int], outputs: list[int]) -> Path:
        self.graph.inputs, self.graph.outputs = inputs, outputs
        builder = self.flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def oracle(
    path: Path,
    dtype: str = "float32",
    quant: tuple[float, int] | None = None,
    out: tuple[str, float, int] | None = None,
    full: float = 1.0,
    dynamic: bool = False,
) -> Path:
    """Shows the picture in a box: ``[4, 4, 20 + 32R, 20 + 32G, 0.9, 3B]`` of the channels' means, ``full`` being white.

    Args:
        path: Where to write.
        dtype: Type of the input ``[1,64,64,3]``.
        quant: Its scale and zero point.
        out: Type, scale and zero point of the output; float32 when None.
        full: Real number that a white pixel becomes.
        dynamic: Whether the batch is of any size.
    """
    net = _Graph()
    batch = -1 if dynamic else 1
    weights = np.zeros((6, 3), np.float32)
    weights[2, 0], weights[3, 1], weights[5, 2] = 32 / full, 32 / full, 3 / full
    picture = net.tensor("images", (1, 64, 64, 3), dtype, quant, signature=(batch, 64, 64, 3))
    real = picture
    if dtype != "float32":
        real = net.tensor("real", (1, 64, 64, 3))
        net.operator("DEQUANTIZE" if quant else "CAST", [picture], [real], None if quant else net.schema.CastOptionsT())
    axes = net.tensor("axes", (2,), "int32", data=[1, 2])
    means = net.tensor("means", (1, 3))
    net.operator("MEAN", [real, axes], [means], net.schema.ReducerOptionsT())
    matrix = net.tensor("weights", (6, 3), data=weights)
    bias = net.tensor("bias", (6,), data=np.array([4, 4, 20, 20, 0.9, 0], np.float32))
    row = net.tensor("row", (1, 6))
    net.operator("FULLY_CONNECTED", [means, matrix, bias], [row], net.schema.FullyConnectedOptionsT())
    shape = net.tensor("shape", (3,), "int32", data=[-1, 1, 6])
    last = net.tensor("output0" if out is None else "rows", (1, 1, 6), signature=(batch, 1, 6))
    net.operator("RESHAPE", [row, shape], [last])
    if out is not None:
        found = net.tensor("output0", (1, 1, 6), out[0], out[1:])
        net.operator("QUANTIZE", [last], [found], net.schema.QuantizeOptionsT())
        last = found
    return net.save(path, [picture], [last])


def constant(path: Path, output: np.ndarray, shape: tuple[int, ...] = (1, 64, 64, 3)) -> Path:
    """Gives the same output whatever the picture."""
    net = _Graph()
    picture = net.tensor("images", shape)
    axes = net.tensor("axes", (len(shape),), "int32", data=list(range(len(shape))))
    most, zero = net.tensor("most", ()), net.tensor("zero", (), data=np.float32(0))
    net.operator("REDUCE_MAX", [picture, axes], [most], net.schema.ReducerOptionsT())
    nothing = net.tensor("nothing", ())
    net.operator("MUL", [most, zero], [nothing], net.schema.MulOptionsT())
    answer = net.tensor("answer", output.shape, data=output)
    found = net.tensor("output0", output.shape)
    net.operator("ADD", [answer, nothing], [found], net.schema.AddOptionsT())
    return net.save(path, [picture], [found])


def with_files(path: Path, files: Mapping[str, Any]) -> Path:
    """Adds a zip archive of files behind the network, as exporters do; what is no text is written as JSON."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        for name, content in files.items():
            writer.writestr(name, content if isinstance(content, str) else json.dumps(content))
    path.write_bytes(path.read_bytes() + archive.getvalue())
    return path
