"""TFLite files, run by LiteRT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.files import check_file, cores, one_line
from gstinfer.models.network import NetworkModel
from gstinfer.models.tflite_metadata import Exported, normalization, read_metadata
from gstinfer.unwinder import cxx_library

__all__ = ["TfliteModel", "TfliteRuntime", "tflite_model"]

RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (-128.0, 127.0))
"""Ranges of numbers that pixels of 0..255 are scaled to without means of their own; a quantised input that spans one takes
pixels as they are."""


class TfliteRuntime:
    """A ``.tflite`` file opened by LiteRT.

    Quantised inputs take pixels as they are where their range says that this is meant, else real numbers that are quantised
    here by scale and zero point; quantised outputs are made float32 the same way.

    Args:
        path: The file.
        device: cpu.
        threads: Threads of one run, 0 for one per core this process may use.
        real: Whether a quantised picture is fed with real numbers, for one trained with means of its own.

    Raises:
        MissingDependencyError: No LiteRT is installed.
        ConfigError: A CUDA device, or a quantised input whose range is not that of pixels and ``real`` is not set.
        ModelLoadError: The file is missing or broken.
    """

    def __init__(
        self, path: str | Path, device: Device | None = None, threads: int = 0, real: bool = False
    ) -> None:
        interpreter = _interpreter()
        if device is not None and device.is_cuda:
            raise ConfigError(f"TFLite does not run on device={device}", hint="set device=cpu")
        self.path = Path(path)
        check_file(self.path, "a TFLite model")
        try:
            self._net = interpreter(model_path=str(self.path), num_threads=threads or cores())
            self._net.allocate_tensors()
        except Exception as error:
            raise ModelLoadError(
                f"{self.path} cannot be loaded by LiteRT: {one_line(error)}",
                hint="check that it is a whole .tflite file; operators of TensorFlow itself (Flex) are not supported",
            ) from error
        self._inputs = self._net.get_input_details()
        self._outputs = self._net.get_output_details()
        self._dynamic = self._takes_batches()
        self._real = real
        inputs = tuple(self._input(detail, number == 0) for number, detail in enumerate(self._inputs))
        metadata, labels = read_metadata(self.path)
        outputs = tuple(TensorInfo(d["name"], self._shape(d), _float(d)) for d in self._outputs)
        info = NetworkInfo(inputs, outputs, metadata, labels)
        self._exported = Exported(info) if "task" in metadata else None
        self.info = info if self._exported is None else self._exported.info

    def _takes_batches(self) -> bool:
        """Whether the batch may be of any size: declared so, and tried, as some files that declare it fail."""
        signatures = [d.get("shape_signature", d["shape"]) for d in self._inputs]
        if not all(len(s) and s[0] == -1 for s in signatures):
            return False
        try:
            self._resize(2)
            self._net.invoke()
        except (RuntimeError, ValueError):
            return False
        finally:
            self._resize(1)
        return True

    def _resize(self, rows: int) -> None:
        for detail in self._inputs:
            self._net.resize_tensor_input(detail["index"], [rows, *detail["shape"][1:].tolist()])
        self._net.allocate_tensors()
        self._rows = rows

    def _shape(self, detail: Mapping[str, Any]) -> tuple[int | None, ...]:
        shape: list[int | None] = [int(side) for side in detail["shape"]]
        if self._dynamic and shape:
            shape[0] = None
        return tuple(shape)

    def _input(self, detail: Mapping[str, Any], picture: bool) -> TensorInfo:
        dtype = np.dtype(detail["dtype"]).name
        scale, zero = detail["quantization"]
        if picture and scale and dtype in ("uint8", "int8"):
            dtype = "float32" if self._real else "uint8"
            if not self._real:
                _check_range(self.path, detail, float(scale), int(zero))
        return TensorInfo(detail["name"], self._shape(detail), dtype)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch of NumPy arrays; the outputs are copies."""
        rows = len(feeds[self.info.inputs[0].name])
        if self._dynamic and rows != self._rows:
            self._resize(rows)
        for item, detail in zip(self.info.inputs, self._inputs):
            self._net.set_tensor(detail["index"], quantised(np.asarray(feeds[item.name]), detail))
        self._net.invoke()
        found = {d["name"]: dequantised(self._net.get_tensor(d["index"]), d) for d in self._outputs}
        return found if self._exported is None else self._exported.outputs(found)

    def close(self) -> None:
        self._net = None


class TfliteModel(NetworkModel):
    """A ``.tflite`` file with everything around it.

    A quantised network is fed the real numbers that it was trained with where ``scale``, ``mean`` or ``std`` are set, or are
    part of the file as TensorFlow's metadata.

    Args:
        path: The file.
        **options: Those of ``NetworkModel``.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(self._opened, path=path, **options)
        self._own: dict[str, Any] = {}

    def _find(self, name: str) -> tuple[Any, str]:
        value, why = super()._find(name)
        if value is None and name in self._own:
            return self._own[name], "the file's normalization"
        return value, why

    def _opened(self, device: Device, threads: int) -> TfliteRuntime:
        assert self._path is not None
        check_file(self._path, "a TFLite model")
        self._own = normalization(Path(self._path))
        real = any(self._find(name)[0] is not None for name in ("scale", "mean", "std"))
        return TfliteRuntime(self._path, device, threads, real)


def tflite_model(path: str, **options: Any) -> TfliteModel:
    """The model in a ``.tflite`` file; the options are those of ``TfliteModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no TFLite file is named", hint="write model=tflite:FILE.tflite or model=FILE.tflite")
    return TfliteModel(path, **options)


def quantised(values: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    """An input as the tensor wants it: pixels shifted to int8, real numbers by scale and zero point."""
    dtype = np.dtype(detail["dtype"])
    if values.dtype == dtype:
        return values
    if values.dtype == np.uint8 and dtype == np.int8:
        return (values ^ 0x80).view(np.int8)
    scale, zero = detail["quantization"]
    if dtype.kind in "iu" and values.dtype.kind == "f" and scale:
        limits = np.iinfo(dtype)
        return np.clip(np.rint(values / scale + zero), limits.min, limits.max).astype(dtype)
    return values.astype(dtype)


def dequantised(values: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    """An output as real numbers, by the scale and zero point of the tensor or of each channel."""
    found = detail["quantization_parameters"]
    scales, zeros = np.asarray(found["scales"], np.float32), np.asarray(found["zero_points"], np.float32)
    if values.dtype.kind not in "iu" or not scales.size:
        return values
    if scales.size > 1:
        shape = [1] * values.ndim
        shape[found["quantized_dimension"]] = -1
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    real: NDArray[Any] = (values.astype(np.float32) - zeros) * scales
    return real


def _interpreter() -> Any:
    try:
        with cxx_library():
            from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        try:
            with cxx_library():
                from tflite_runtime.interpreter import Interpreter
        except ImportError as error:
            raise MissingDependencyError("ai_edge_litert", extra="tflite", purpose="TFLite models") from error
    return Interpreter


def _float(detail: Mapping[str, Any]) -> str:
    """The type of an output as ``run`` gives it."""
    dtype = np.dtype(detail["dtype"])
    return "float32" if dtype.kind in "iu" and len(detail["quantization_parameters"]["scales"]) else dtype.name


def _check_range(path: Path, detail: Mapping[str, Any], scale: float, zero: int) -> None:
    limits = np.iinfo(detail["dtype"])
    low, high = (limits.min - zero) * scale, (limits.max - zero) * scale
    if not any(abs(low - a) + abs(high - b) < 0.03 * (b - a) for a, b in RANGES):
        raise ConfigError(
            f"the quantised input {detail['name']} of {path.name} spans {low:.3g} to {high:.3g}, which is no plain range "
            "of pixels",
            hint="set scale=, mean= and std= as the network was trained with",
        )
