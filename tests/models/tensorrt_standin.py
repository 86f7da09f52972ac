"""Stand-ins for ``tensorrt`` and the part of ``torch`` that the runtime asks, over NumPy memory; what a test can hold
against the documented interface of TensorRT 10 without a GPU.

An "engine" is JSON: tensors in order, profiles, and what deserialising it says. It shows a picture in a box like ``oracle``
of ``onnx_networks``, reading and writing memory by the addresses it is given.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import json
import types
from typing import Any

import numpy as np

__all__ = ["Dims", "engine", "tensorrt", "torch"]

STREAM = 0x5EED
"""Handle of the caller's stream."""


class Dims:
    """A shape that ends the process where the real one would: when iterated over."""

    __module__ = "tensorrt_bindings.tensorrt"

    def __init__(self, sides: Any) -> None:
        self._sides = [int(side) for side in sides]

    def __len__(self) -> int:
        return len(self._sides)

    def __getitem__(self, index: int) -> int:
        if isinstance(index, slice):
            raise AssertionError("sliced")
        return self._sides[index]

    def __iter__(self) -> Any:
        raise AssertionError("iterated over: with PyGObject loaded the process ends here")


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3
    UINT8 = 5
    FP8 = 6


class TensorIOMode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class ILogger:
    """The logger class that is subclassed."""

    Severity = enum.Enum("Severity", "INTERNAL_ERROR ERROR WARNING INFO")

    def __init__(self) -> None:
        self.made = True


class Runtime:
    """Deserialises engines; like the real one it gives None on failure, and the reason to the logger."""

    def __init__(self, logger: ILogger) -> None:
        assert logger.made, "ILogger.__init__ was not called"
        self._logger = logger

    def deserialize_cuda_engine(self, content: bytes) -> Any:
        try:
            facts = json.loads(content)
        except ValueError:
            self._logger.log(ILogger.Severity.ERROR, "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (magic tag)")
            return None
        for severity, message in facts["log"]:
            self._logger.log(ILogger.Severity[severity], message)
        return None if facts["refused"] else Engine(facts)


class Engine:
    """What can be asked of an engine by the names of its tensors."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.tensors = {item["name"]: item for item in facts["tensors"]}
        self.num_io_tensors = len(self.tensors)
        self.contexts: list[Context] = []

    def get_tensor_name(self, index: int) -> str:
        return list(self.tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[self.tensors[name]["mode"]]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self.tensors[name]["dtype"]]

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(self.tensors[name]["shape"])

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[Dims, Dims, Dims]:
        assert profile == 0
        return tuple(Dims(shape) for shape in self.tensors[name]["profile"])

    def create_execution_context(self) -> Context:
        self.contexts.append(Context(self))
        return self.contexts[-1]


class Context:
    """Runs the engine on addresses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.streams: list[int] = []
        self.rows: list[int] = []
        self.fails = False

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        item = self.engine.tensors[name]
        least, _, most = item.get("profile") or [item["shape"]] * 3
        if len(shape) != len(least) or not all(a <= side <= b for a, side, b in zip(least, shape, most)):
            return False
        self.shapes[name] = shape
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        item = self.engine.tensors[name]
        if item.get("depends"):
            return Dims([-1 if side < 0 else side for side in item["shape"]])
        return Dims([self.shapes["images"][0] if side < 0 else side for side in item["shape"]])

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def _view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        dtype = {"FLOAT": np.float32, "HALF": np.float16, "UINT8": np.uint8}[self.engine.tensors[name]["dtype"]]
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = (ctypes.c_uint8 * count).from_address(self.addresses[name])
        return np.frombuffer(memory, dtype).reshape(shape)

    def execute_async_v3(self, stream: int) -> bool:
        self.streams.append(stream)
        if self.fails:
            return False
        pixels = self._view("images", self.shapes["images"]).astype(np.float32)
        self.rows.append(len(pixels))
        r, g, b = pixels.mean((2, 3)).T
        four = np.full_like(r, 4)
        row = np.stack([four, four, 20 + 32 * r, 20 + 32 * g, np.full_like(r, 0.9), 3 * b], 1)[:, None]
        self._view("output0", (len(pixels), 1, 6))[:] = row
        return True


def engine(batch: int = -1, most: int = 4, dtype: str = "FLOAT", refused: bool = False, log: Any = (), **output: Any) -> bytes:
    """A serialised engine."""
    images = {"name": "images", "mode": "INPUT", "dtype": dtype, "shape": [batch, 3, 64, 64]}
    if batch < 0:
        images["profile"] = [[1, 3, 64, 64], [2, 3, 64, 64], [most, 3, 64, 64]]
    out = {"name": "output0", "mode": "OUTPUT", "dtype": dtype if dtype == "HALF" else "FLOAT", "shape": [batch, 1, 6]}
    # The output first: roles come from the mode, never from the order.
    facts = {"tensors": [{**out, **output}, images], "refused": refused, "log": list(log)}
    return json.dumps(facts).encode()


class _Tensor:
    """A tensor in NumPy memory that says it lies on the GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype.name

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> _Tensor:
        return _Tensor(self.array[index])

    def contiguous(self) -> _Tensor:
        return _Tensor(np.ascontiguousarray(self.array))

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def cpu(self) -> _Tensor:
        return _Tensor(self.array.copy())

    def numpy(self) -> np.ndarray:
        return self.array


class _Cuda:
    def __init__(self) -> None:
        self.entered = 0

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    @contextlib.contextmanager
    def device(self, place: Any) -> Any:
        self.entered += 1
        yield

    def current_stream(self, place: Any) -> Any:
        return types.SimpleNamespace(cuda_stream=STREAM)


def tensorrt() -> types.ModuleType:
    """A module that stands in for ``tensorrt``."""
    module = types.ModuleType("tensorrt")
    module.__version__ = "10.9.0"
    for item in (DataType, TensorIOMode, ILogger, Runtime, Dims):
        setattr(module, item.__name__, item)
    return module


def torch() -> types.ModuleType:
    """A module that stands in for ``torch``."""
    module = types.ModuleType("torch")
    module.__version__ = "2.0"
    module.cuda = _Cuda()
    module.device = lambda text: text
    module.as_tensor = lambda value, device: value if isinstance(value, _Tensor) else _Tensor(np.asarray(value))
    module.empty = lambda shape, dtype, device: _Tensor(np.full(shape, 77, dtype))
    for name in ("float32", "float16", "uint8", "int32", "bfloat16"):
        setattr(module, name, name)
    return module
