"""ONNX Runtime."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.network import NetworkModel

__all__ = ["OnnxRuntime", "onnx_model"]

TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}


class OnnxRuntime:
    """An ``.onnx`` file opened by ONNX Runtime.

    Args:
        path: The file.
        device: Where to run; a CUDA device is never replaced by the CPU.
        threads: Threads of one run on the CPU, 0 for one per core this process may use.

    Raises:
        MissingDependencyError: onnxruntime is not installed.
        ConfigError: A CUDA device, and this onnxruntime has no CUDA.
        ModelLoadError: The file is missing, empty, broken or no ONNX model.
    """

    def __init__(self, path: str | Path, device: Device | None = None, threads: int = 0) -> None:
        self.path, self.device = Path(path), device or Device()
        ort = _onnxruntime()
        providers = _providers(ort, self.device)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or cores()
        options.inter_op_num_threads = 1
        # Threads that spin between their tasks would take the cores from decoding and drawing beside us.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        _check_file(self.path)
        try:
            self._session = ort.InferenceSession(str(self.path), options, providers=providers)
        except Exception as error:
            raise ModelLoadError(
                f"{self.path} cannot be loaded by ONNX Runtime {ort.__version__}: {_reason(error, self.path)}",
                hint="check the file, with onnx.checker.check_model for one, or export it again",
            ) from error
        self._session.disable_fallback()
        if self.device.is_cuda and "CUDAExecutionProvider" not in self._session.get_providers():
            self.close()
            raise ModelLoadError(
                f"ONNX Runtime {ort.__version__} could not use {self.device} for {self.path.name}",
                hint="gstinfer doctor says which CUDA or cuDNN library is missing",
            )
        self.info = NetworkInfo(
            tuple(_tensor(node) for node in self._session.get_inputs()),
            tuple(_tensor(node) for node in self._session.get_outputs()),
            dict(self._session.get_modelmeta().custom_metadata_map),
        )
        self._outputs = [output.name for output in self.info.outputs]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch; contiguous NumPy inputs are read in place, and so are torch tensors on the CUDA device."""
        if any(hasattr(value, "data_ptr") for value in feeds.values()):
            return self._run_bound(feeds)
        return dict(zip(self._outputs, self._session.run(self._outputs, feeds)))

    def _run_bound(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        binding = self._session.io_binding()
        for item in self.info.inputs:
            value = feeds[item.name]
            if hasattr(value, "data_ptr"):
                value = value.contiguous()
                where = value.device.type, value.device.index or 0
                binding.bind_input(item.name, *where, np.dtype(item.dtype).type, list(value.shape), value.data_ptr())
            else:
                binding.bind_cpu_input(item.name, value)
        for name in self._outputs:
            binding.bind_output(name)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        return dict(zip(self._outputs, binding.copy_outputs_to_cpu()))

    def close(self) -> None:
        self._session = None


def onnx_model(path: str, **options: Any) -> NetworkModel:
    """The model in an ``.onnx`` file; the options are those of ``NetworkModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no ONNX file is named", hint="write model=onnx:FILE.onnx or model=FILE.onnx")
    return NetworkModel(lambda device, threads: OnnxRuntime(path, device, threads), path=path, **options)


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDependencyError("onnxruntime", purpose="ONNX models") from error
    return onnxruntime


def _providers(ort: Any, device: Device) -> list[Any]:
    if not device.is_cuda:
        return ["CPUExecutionProvider"]
    available = ort.get_available_providers()
    if "CUDAExecutionProvider" not in available:
        raise ConfigError(
            f"device={device} was asked for, but ONNX Runtime {ort.__version__} has no CUDA here, only "
            f"{', '.join(available)}",
            hint="pip install onnxruntime-gpu in place of onnxruntime, or set device=cpu",
        )
    # What CUDA has no kernel for runs on the CPU, node by node; that is ONNX Runtime's own design.
    return [("CUDAExecutionProvider", {"device_id": device.index}), "CPUExecutionProvider"]


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ModelLoadError(f"{path} is a folder, not an ONNX model")
    if not path.is_file():
        raise ModelLoadError(f"the model file {path} does not exist", hint=f"looked in {Path.cwd()}")
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError as error:
        raise ModelLoadError(f"the model file {path} cannot be read: {error.strerror}") from error
    if not start:
        raise ModelLoadError(f"the model file {path} is empty (0 bytes)", hint="copy or download it again")
    if start.startswith(b"version https://git-lfs"):
        raise ModelLoadError(f"{path} is a Git LFS pointer, not the model itself", hint="run git lfs pull")


def _reason(error: Exception, path: Path) -> str:
    """ONNX Runtime's message without its prefix and the path, on one line."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))
    return re.sub(rf"Load model from {re.escape(str(path))} failed:\s*", "", text)[:300]


def _tensor(node: Any) -> TensorInfo:
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return TensorInfo(node.name, shape, TYPES.get(node.type, str(node.type)))
