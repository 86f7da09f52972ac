"""TensorRT engines, by the named-tensor interface of TensorRT 8.6 and later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError, PredictError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.files import check_file, one_line, texts
from gstinfer.models.network import NetworkModel
from gstinfer.models.runtime import in_parts
from gstinfer.models.torch_load import torch_library
from gstinfer.settings import option
from gstinfer.unwinder import cxx_library

__all__ = ["TensorRtModel", "TensorRtRuntime", "sides", "split_header", "tensorrt_model"]

TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
"""Name of a ``tensorrt.DataType`` -> torch's."""

OTHER_GPU = "different models of devices"
"""Words of TensorRT's warning about an engine that was built on another model of GPU."""

LONGEST_HEADER = 1 << 24


class TensorRtRuntime:
    """A serialised engine, run on the caller's CUDA stream; memory is torch's.

    Args:
        path: The engine, with Ultralytics' JSON header before it or without.
        device: A CUDA device.
        other_gpu: Whether an engine that was built on another model of GPU may run, which TensorRT warns of.

    Attributes:
        limit: Most rows of one run where the batch is free; None for what the inputs' shapes say.

    Raises:
        MissingDependencyError: tensorrt or torch is not installed.
        ConfigError: The device is the CPU.
        ModelLoadError: The file is missing, broken, or made for another TensorRT or GPU.
    """

    def __init__(self, path: str | Path, device: Device, other_gpu: bool = False) -> None:
        trt = _tensorrt()
        if not device.is_cuda:
            raise ConfigError(f"a TensorRT engine does not run on device={device}", hint="set device=cuda:0")
        self.torch = torch = torch_library(device)
        self.path, self.place = Path(path), torch.device(str(device))
        check_file(self.path, "a TensorRT engine")
        metadata, engine_bytes = split_header(self.path.read_bytes())
        log = _log(trt)
        with torch.cuda.device(self.place):
            # Both must outlive the engine.
            self._log, self._runtime = log, trt.Runtime(log)
            try:
                self._engine = self._runtime.deserialize_cuda_engine(engine_bytes)
            except Exception as error:
                raise self._refused(trt, str(error)) from error
            if self._engine is None:
                raise self._refused(trt, "")
            if not other_gpu and any(OTHER_GPU in line for line in log.warnings):
                raise self._refused(trt, "it was built on another model of GPU", ", or set other-gpu=true to run it anyway")
            self._context = self._engine.create_execution_context()
        if self._context is None:
            raise ModelLoadError(f"{self.path} has no room on {device}: {one_line(' '.join(log.errors)) or 'no context'}")
        self._describe(trt, metadata)
        self._memory: dict[str, Any] = {}

    def _refused(self, trt: Any, reason: str, hint: str = "") -> ModelLoadError:
        reason = reason or " ".join(self._log.errors) or "it is no engine"
        return ModelLoadError(
            f"{self.path} cannot be loaded by TensorRT {trt.__version__}: {one_line(reason)}",
            hint="an engine runs only with the TensorRT and the GPU that it was built with: build it again here" + hint,
        )

    def _describe(self, trt: Any, metadata: Mapping[str, str]) -> None:
        engine = self._engine
        inputs, outputs = [], []
        self.limit: int | None = None
        for number in range(engine.num_io_tensors):
            name = engine.get_tensor_name(number)
            shape = tuple(None if side < 0 else side for side in sides(engine.get_tensor_shape(name)))
            item = TensorInfo(name, shape, TYPES.get(engine.get_tensor_dtype(name).name, "unknown"))
            if item.dtype == "unknown":
                raise ModelLoadError(f"{self.path}: the tensor {name} has a type that is not supported")
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                inputs.append(item)
                if shape and shape[0] is None:
                    most = sides(engine.get_tensor_profile_shape(name, 0)[2])[0]
                    self.limit = most if self.limit is None else min(most, self.limit)
            else:
                outputs.append(item)
        self.info = NetworkInfo(tuple(inputs), tuple(outputs), metadata)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch of NumPy arrays or tensors; NumPy arrays come back.

        Raises:
            PredictError: A shape outside of the engine's profile, or TensorRT failed.
        """
        with self.torch.cuda.device(self.place):
            return in_parts(self._run, feeds, self.limit)

    def run_there(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """As ``run`` of at most ``limit`` rows, with the outputs as tensors on the GPU, valid until the next run: what reads
        them on the caller's stream need not wait.
        """
        with self.torch.cuda.device(self.place):
            return self._execute(feeds)

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        outputs, bfloat16 = self._execute(feeds), self.torch.bfloat16
        # The copy to the host waits for the stream.
        return {n: (v.float() if v.dtype == bfloat16 else v).cpu().numpy() for n, v in outputs.items()}

    def _execute(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        torch, context = self.torch, self._context
        kept = []
        for item in self.info.inputs:
            value = torch.as_tensor(feeds[item.name], device=self.place).contiguous()
            kept.append(value)
            if not context.set_input_shape(item.name, tuple(value.shape)):
                raise PredictError(
                    f"{self.path.name} does not take {item.name} {list(value.shape)}, only {self._profile(item.name)}",
                    hint="set input-size= and batch-size= to what it was built for, or build it again",
                )
            context.set_tensor_address(item.name, value.data_ptr())
        outputs = {}
        for item in self.info.outputs:
            shape = sides(context.get_tensor_shape(item.name))
            if min(shape, default=0) < 0:
                raise PredictError(
                    f"the output {item.name} of {self.path.name} has a size that depends on the picture",
                    hint="export the network without NMS inside",
                )
            outputs[item.name] = self._output(item, shape)
            context.set_tensor_address(item.name, outputs[item.name].data_ptr())
        if not context.execute_async_v3(torch.cuda.current_stream(self.place).cuda_stream):
            raise PredictError(f"TensorRT failed on {self.path.name}: {one_line(' '.join(self._log.errors[-3:]))}")
        return outputs

    def _output(self, item: TensorInfo, shape: tuple[int, ...]) -> Any:
        held = self._memory.get(item.name)
        if held is None or tuple(held.shape) != shape:
            held = self.torch.empty(shape, dtype=getattr(self.torch, item.dtype), device=self.place)
            self._memory[item.name] = held
        return held

    def _profile(self, name: str) -> str:
        least, _, most = (list(sides(dims)) for dims in self._engine.get_tensor_profile_shape(name, 0))
        return f"{least} to {most}"

    def close(self) -> None:
        self._memory.clear()
        self._context = self._engine = self._runtime = None


class TensorRtModel(NetworkModel):
    """An engine with everything around it.

    Args:
        path: The file.
        **options: See the attribute below and ``NetworkModel``'s.
    """

    other_gpu = option(bool, False, "Whether an engine built on another model of GPU may run")

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(self._opened, path=path, **options)

    def _opened(self, device: Device, threads: int) -> TensorRtRuntime:
        assert self._path is not None
        if threads:
            raise ConfigError(f"threads={threads} means nothing for a TensorRT engine", hint="leave it unset")
        return TensorRtRuntime(self._path, device, bool(self._find("other_gpu")[0]))

    def _run_there(self, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        runtime = self._runtime
        assert isinstance(runtime, TensorRtRuntime)
        fits = runtime.limit is None or len(feeds[self._picture]) <= runtime.limit
        return runtime.run_there(feeds) if fits else None


def tensorrt_model(path: str, **options: Any) -> TensorRtModel:
    """The model in an ``.engine`` or ``.plan`` file; the options are those of ``TensorRtModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no TensorRT engine is named", hint="write model=tensorrt:FILE.engine or model=FILE.engine")
    return TensorRtModel(path, **options)


def sides(dims: Any) -> tuple[int, ...]:
    """The sizes of a TensorRT ``Dims``, read one by one.

    Iterating over one, which ``tuple(dims)`` does, ends the process once PyGObject is loaded.
    """
    return tuple(int(dims[number]) for number in range(len(dims)))


def split_header(content: bytes) -> tuple[dict[str, str], bytes]:
    """Ultralytics' metadata and the engine: four bytes of length, little-endian, then so much JSON, before the engine."""
    length = int.from_bytes(content[:4], "little")
    if 0 < length <= min(len(content) - 4, LONGEST_HEADER):
        try:
            return texts(json.loads(content[4 : 4 + length])), content[4 + length :]
        except ValueError:
            pass
    return {}, content


def _tensorrt() -> Any:
    try:
        with cxx_library():
            import tensorrt
    except ImportError as error:
        raise MissingDependencyError("tensorrt", extra="tensorrt", purpose="TensorRT engines") from error
    return tensorrt


def _log(trt: Any) -> Any:
    """A logger that keeps what TensorRT says: its calls tell only that something failed."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            known = trt.ILogger.Severity
            if severity in (known.ERROR, known.INTERNAL_ERROR):
                self.errors.append(message)
            elif severity == known.WARNING:
                self.warnings.append(message)

    return Log()
