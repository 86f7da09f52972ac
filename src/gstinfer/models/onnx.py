"""ONNX Runtime."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.files import check_file, cores, one_line
from gstinfer.models.network import NetworkModel
from gstinfer.models.onnx_cuda import SteadyBatch, load_libraries, why_not
from gstinfer.models.onnx_sizes import free_sizes
from gstinfer.settings import option
from gstinfer.unwinder import cxx_library, mixed

__all__ = ["PROVIDERS", "OnnxModel", "OnnxRuntime", "onnx_model"]

log = logging.getLogger(__name__)

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

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
"""Value of the ``provider`` option -> ONNX Runtime's own name."""

PACKAGES = {"cuda": "onnxruntime-gpu", "tensorrt": "onnxruntime-gpu", "openvino": "onnxruntime-openvino"}
"""Provider -> package that brings it in place of onnxruntime."""


class OnnxRuntime:
    """An ``.onnx`` file opened by ONNX Runtime.

    Args:
        path: The file.
        device: Where to run; a CUDA device is never replaced by the CPU.
        threads: Threads of one run on the CPU, 0 for one per core this process may use.
        provider: A key of ``PROVIDERS``; auto is cuda on a CUDA device and cpu elsewhere. What a provider has no kernel
            for runs on the CPU (for tensorrt: by CUDA first), node by node; that is ONNX Runtime's own design.
        any_size: Whether the file's batch and picture sizes are made free.

    Raises:
        MissingDependencyError: onnxruntime is not installed.
        ConfigError: This onnxruntime lacks the provider, or it does not fit the device.
        ModelLoadError: The file is missing, empty, broken or no ONNX model.
    """

    def __init__(
        self,
        path: str | Path,
        device: Device | None = None,
        threads: int = 0,
        provider: str = "auto",
        any_size: bool = False,
    ) -> None:
        self.path, self.device = Path(path), device or Device()
        self.any_size, self._held = any_size, dict[str, Any]()
        ort = _onnxruntime()
        providers = _providers(ort, self.device, provider)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or cores()
        options.inter_op_num_threads = 1
        # Threads that spin between their tasks would take the cores from decoding and drawing beside us.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        check_file(self.path, "an ONNX model")
        if self.device.is_cuda:
            load_libraries()
            if mixed():
                # ONNX Runtime opens the provider's library itself, so that cxx_library does not reach it.
                log.warning(
                    "GStreamer was loaded before gstinfer: an error inside of %s, such as too little memory, would end this "
                    "process; import gstinfer before gi.repository.Gst",
                    providers[0][0],
                )
        try:
            file = free_sizes(self.path.read_bytes()) if any_size else str(self.path)
            # Its own way out of a failure is to print a few lines and go on with the CPU.
            self._session = ort.InferenceSession(file, options, providers=providers, enable_fallback=False)
        except Exception as error:
            raise ModelLoadError(
                f"{self.path} cannot be loaded by ONNX Runtime {ort.__version__}: {_reason(error, self.path)}",
                hint=_remedy(error),
            ) from error
        self._session.disable_fallback()
        wanted = providers[0][0]
        if wanted not in self._session.get_providers():
            self.close()
            reason = why_not(ort, "tensorrt" if "Tensorrt" in wanted else "cuda") if self.device.is_cuda else ""
            raise ModelLoadError(
                f"ONNX Runtime {ort.__version__} could not use {wanted} on {self.device} for {self.path.name}"
                + (f": {reason}" if reason else ""),
                hint=_package(reason),
            )
        self.info = NetworkInfo(
            tuple(_tensor(node) for node in self._session.get_inputs()),
            tuple(_tensor(node) for node in self._session.get_outputs()),
            dict(self._session.get_modelmeta().custom_metadata_map),
        )
        self._outputs = [output.name for output in self.info.outputs]

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Runs a batch; contiguous NumPy inputs are read in place, and so are torch tensors on the CUDA device.

        Args:
            feeds: Arrays or tensors by input name.
            out: Tensors that outputs of these names are written into, where they lie; they are given back as they are.
        """
        if out or any(hasattr(value, "data_ptr") for value in feeds.values()):
            return self._run_bound(feeds, out or {})
        return dict(zip(self._outputs, self._session.run(self._outputs, feeds)))

    def run_there(self, feeds: Mapping[str, Any], outputs: Sequence[TensorInfo]) -> dict[str, Any]:
        """As ``run``, with the outputs as torch tensors beside the picture, valid until the next run.

        Args:
            feeds: The first is a torch tensor, batch first.
            outputs: Their shapes; of the batch anything.
        """
        import torch

        picture = next(iter(feeds.values()))
        rows, out = len(picture), {}
        for item in outputs:
            held = self._held.get(item.name)
            if held is None or len(held) < rows:
                shape, dtype = (rows, *item.shape[1:]), getattr(torch, item.dtype)
                held = self._held[item.name] = torch.empty(shape, dtype=dtype, device=picture.device)
            out[item.name] = held[:rows]
        return self._run_bound(feeds, out)

    def _run_bound(self, feeds: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
        binding = self._session.io_binding()
        kept = []
        for item in self.info.inputs:
            value = feeds[item.name]
            if hasattr(value, "data_ptr"):
                value = value.contiguous()
                kept.append(value)
                _settle(value)
                binding.bind_input(item.name, *_address(value, item))
            else:
                binding.bind_cpu_input(item.name, np.ascontiguousarray(value))
        for item in self.info.outputs:
            if item.name in out:
                _settle(out[item.name])
                binding.bind_output(item.name, *_address(out[item.name], item))
            else:
                binding.bind_output(item.name)
        # Returns when the outputs are there. The binding's own synchronize_* would wait for everything else on the GPU too.
        self._session.run_with_iobinding(binding)
        values = binding.get_outputs()
        return {name: out[name] if name in out else value.numpy() for name, value in zip(self._outputs, values)}

    def close(self) -> None:
        self._session = None
        self._held.clear()


class OnnxModel(NetworkModel):
    """An ``.onnx`` file with everything around it.

    Args:
        path: The file.
        **options: See the attributes below and ``NetworkModel``'s.
    """

    provider = option(
        str,
        "auto",
        "What ONNX Runtime runs it on; auto is cuda on a CUDA device and cpu elsewhere",
        choices=("auto", *PROVIDERS),
    )

    any_size = option(
        bool, False, "Whether batch and picture size of the file may change: for networks that were exported at one size"
    )

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(self._opened, path=path, **options)
        self._steady = SteadyBatch()

    def _freed(self, info: NetworkInfo) -> NetworkInfo:
        picture = info.inputs[0].shape
        if self.any_size or not self._head.any_size or None in (picture[0], *picture[-2:]):
            return info
        assert self._runtime is not None
        self._runtime.close()
        self._runtime = self._opened(self.device, self._find("threads")[0] or 0, any_size=True)
        return replace(info, inputs=self._runtime.info.inputs, outputs=self._runtime.info.outputs)

    def _run_size(self, count: int) -> int:
        # A function of the user's might meet what was found in blank pictures.
        if not self.device.is_cuda or self.max_batch is not None or self.functions:
            return super()._run_size(count)
        return self._steady.rows(count)

    def _run_there(self, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        outputs = self._info.outputs
        runtime = self._runtime
        assert isinstance(runtime, OnnxRuntime)
        first = ((None,), (self.max_batch,))
        known = all(item.shape[:1] in first and None not in item.shape[1:] for item in outputs)
        # A file whose sizes were made free still says the outputs' sizes of before.
        known &= not runtime.any_size
        return runtime.run_there(feeds, outputs) if known else None

    def _opened(self, device: Device, threads: int, any_size: bool = False) -> OnnxRuntime:
        assert self._path is not None
        provider = self._find("provider")[0] or "auto"
        return OnnxRuntime(self._path, device, threads, provider, any_size or self._find("any_size")[0] or False)


def onnx_model(path: str, **options: Any) -> OnnxModel:
    """The model in an ``.onnx`` file; the options are those of ``OnnxModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no ONNX file is named", hint="write model=onnx:FILE.onnx or model=FILE.onnx")
    return OnnxModel(path, **options)


def _onnxruntime() -> Any:
    try:
        with cxx_library():
            import onnxruntime
    except ImportError as error:
        raise MissingDependencyError("onnxruntime", purpose="ONNX models") from error
    return onnxruntime


def _providers(ort: Any, device: Device, provider: str) -> list[tuple[str, dict[str, Any]]]:
    """The provider asked for, with its settings, then those for what it has no kernel for."""
    asked = f"provider={provider}"
    if provider == "auto":
        provider = "cuda" if device.is_cuda else "cpu"
        asked = f"device={device}"
    if (provider in ("cuda", "tensorrt")) != device.is_cuda:
        raise ConfigError(
            f"provider={provider} does not fit device={device}",
            hint="set device=cpu" if device.is_cuda else "set device=cuda:0, or another provider=",
        )
    available = ort.get_available_providers()
    if PROVIDERS[provider] not in available:
        raise ConfigError(
            f"{asked} was asked for, but ONNX Runtime {ort.__version__} has no {PROVIDERS[provider]} here, only "
            f"{', '.join(available)}",
            hint=f"pip install {PACKAGES.get(provider, 'onnxruntime')} in place of onnxruntime, or set "
            f"{'device=cpu' if device.is_cuda else 'provider=cpu'}",
        )
    gpu = {"device_id": device.index}
    cpu: tuple[str, dict[str, Any]] = (PROVIDERS["cpu"], {})
    # Its default tries every algorithm of every convolution whenever a batch has another size.
    cuda = (PROVIDERS["cuda"], {**gpu, "cudnn_conv_algo_search": "HEURISTIC"})
    chosen: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "cpu": [cpu],
        "cuda": [cuda, cpu],
        "tensorrt": [(PROVIDERS["tensorrt"], gpu), cuda, cpu],
        "openvino": [(PROVIDERS["openvino"], {"device_type": "CPU"}), cpu],
    }
    return chosen[provider]


def _address(tensor: Any, item: TensorInfo) -> tuple[Any, ...]:
    """Where a tensor lies, in the order of ``bind_input`` and ``bind_output``."""
    where = tensor.device.type, tensor.device.index or 0
    return (*where, np.dtype(item.dtype).type, list(tensor.shape), tensor.data_ptr())


def _settle(tensor: Any) -> None:
    """Waits for what torch still writes into a tensor: ONNX Runtime works on a stream of its own."""
    if tensor.device.type == "cuda":
        import torch

        torch.cuda.current_stream(tensor.device).synchronize()


def _package(reason: str) -> str:
    """What brings the library that a provider lacks."""
    if "cannot open shared object" not in reason:
        return ""
    return "pip install " + ("tensorrt" if re.search("libnv(infer|onnx)", reason) else "'onnxruntime-gpu[cuda,cudnn]'")


def _newer(error: Exception) -> str:
    """The operator set of a file that is newer than this ONNX Runtime, else empty."""
    found = re.search(r"Opset (\d+) is under development", str(error))
    return found[1] if found else ""


def _remedy(error: Exception) -> str:
    if _newer(error):
        return "export it with an older opset, or upgrade onnxruntime"
    if re.search(r"CU\w+ failure", str(error)):
        return "nvidia-smi shows the driver, and what else uses the GPU's memory"
    return "check the file, with onnx.checker.check_model for one, or export it again"


def _reason(error: Exception, path: Path) -> str:
    """ONNX Runtime's message without its prefix, the place in its source, and the path, on one line."""
    if _newer(error):
        return f"it was exported for ONNX opset {_newer(error)}, which is newer than this release reads"
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", one_line(error, 2000))
    if gpu := re.search(r"CU\w+ failure \d+: [^;]*", text):
        return gpu[0].strip()
    text = re.sub(rf"Load model from {re.escape(str(path))} failed:\s*", "", text)
    return re.sub(r"^/\S+:\d+ .*?\) (?=[A-Z])", "", text)[:300]


def _tensor(node: Any) -> TensorInfo:
    shape = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return TensorInfo(node.name, shape, TYPES.get(node.type, str(node.type)))
