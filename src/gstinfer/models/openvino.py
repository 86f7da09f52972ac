"""OpenVINO: ``.xml`` files, folders that hold one, and the ``.onnx`` and ``.tflite`` files that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.models.files import check_file, cores, one_line, texts
from gstinfer.models.network import NetworkModel
from gstinfer.settings import option
from gstinfer.unwinder import cxx_library

__all__ = ["OpenVinoModel", "OpenVinoRuntime", "openvino_model"]

PRECISIONS = ("float32", "fastest")
VIRTUAL = ("AUTO", "MULTI", "HETERO", "BATCH")
"""Targets that OpenVINO makes out of others."""


class OpenVinoRuntime:
    """A network opened by OpenVINO.

    Args:
        path: An ``.xml`` with its ``.bin`` beside it, a folder with one, an ``.onnx`` or a ``.tflite``.
        device: cpu; OpenVINO knows no CUDA.
        threads: Threads of one run on the CPU, 0 for one per core this process may use.
        target: OpenVINO's own name of a device: CPU, GPU, GPU.1, NPU, AUTO.
        precision: float32, so that numbers are those of other runtimes, or fastest for the device's own choice, such as
            bfloat16 on some CPUs.

    Raises:
        MissingDependencyError: openvino is not installed.
        ConfigError: A CUDA device, a target that OpenVINO does not see here, or threads of another target.
        ModelLoadError: The file is missing or broken.
    """

    def __init__(
        self,
        path: str | Path,
        device: Device | None = None,
        threads: int = 0,
        target: str = "CPU",
        precision: str = "float32",
    ) -> None:
        openvino = _openvino()
        if device is not None and device.is_cuda:
            raise ConfigError(f"OpenVINO does not run on device={device}", hint="set device=cpu, and target=GPU or NPU")
        self.path = _file(Path(path))
        check_file(self.path, "an OpenVINO model")
        core, version = openvino.Core(), openvino.__version__.partition("-")[0]
        available = core.available_devices
        if target.partition(":")[0] not in (*VIRTUAL, *available, *(name.partition(".")[0] for name in available)):
            raise ConfigError(
                f"target={target} was asked for, but OpenVINO {version} sees only {', '.join(available)} here",
                hint="set target=CPU, or install the driver of the device",
            )
        if threads and target != "CPU":
            raise ConfigError(f"threads={threads} means nothing for target={target}", hint="leave it unset")
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if target == "CPU":
            settings["INFERENCE_NUM_THREADS"] = threads or cores()
        if precision == "float32":
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        try:
            network = core.read_model(str(self.path))
            compiled = core.compile_model(network, target, settings)
            self._request = compiled.create_infer_request()
        except Exception as error:
            raise ModelLoadError(
                f"{self.path} cannot be loaded by OpenVINO {version} on {target}: {_reason(error)}",
                hint="the .bin of its weights must lie beside it" if self.path.suffix == ".xml" else "export it again",
            ) from error
        self._inputs = [_tensor(port, f"input{n}") for n, port in enumerate(compiled.inputs)]
        outputs = [_tensor(port, f"output{n}") for n, port in enumerate(compiled.outputs)]
        self._outputs = [item.name for item in outputs]
        self.info = NetworkInfo(tuple(self._inputs), tuple(outputs), _metadata(network, self.path))

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a batch; contiguous inputs are read in place, and outputs lie in OpenVINO's memory until the next run."""
        inputs = {number: feeds[item.name] for number, item in enumerate(self._inputs)}
        values = self._request.infer(inputs, share_inputs=True, share_outputs=True).to_tuple()
        return dict(zip(self._outputs, values))

    def close(self) -> None:
        self._request = None


class OpenVinoModel(NetworkModel):
    """A network of OpenVINO with everything around it.

    Args:
        path: See ``OpenVinoRuntime``.
        **options: See the attributes below and ``NetworkModel``'s.
    """

    target = option(str, "CPU", "OpenVINO's own name of a device: CPU, GPU, GPU.1, NPU or AUTO")
    precision = option(
        str, "float32", "Precision of the arithmetic; fastest is the device's own choice", choices=PRECISIONS
    )

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(self._opened, path=path, **options)

    def _opened(self, device: Device, threads: int) -> OpenVinoRuntime:
        assert self._path is not None
        target, precision = (self._find(name)[0] or default for name, default in (("target", "CPU"), ("precision", "")))
        return OpenVinoRuntime(self._path, device, threads, target, precision or "float32")


def openvino_model(path: str, **options: Any) -> OpenVinoModel:
    """The model behind ``openvino:PATH``; the options are those of ``OpenVinoModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no OpenVINO file is named", hint="write model=openvino:FILE.xml or model=FILE.xml")
    return OpenVinoModel(path, **options)


def _openvino() -> Any:
    try:
        with cxx_library():
            import openvino
    except ImportError as error:
        raise MissingDependencyError("openvino", extra="openvino", purpose="OpenVINO models") from error
    return openvino


def _file(path: Path) -> Path:
    """The one ``.xml`` of a folder, or the file itself."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.xml"))
    if len(found) != 1:
        raise ModelLoadError(
            f"{path} holds {len(found) or 'no'} .xml files, expected one OpenVINO model", hint="name the .xml itself"
        )
    return found[0]


def _reason(error: Exception) -> str:
    """What OpenVINO says, without the places in its own source."""
    lines = [line.strip() for line in str(error).splitlines()]
    return one_line(" ".join(line for line in lines if line and not line.startswith(("Exception from", "Check "))) or error)


def _tensor(port: Any, name: str) -> TensorInfo:
    """A port, under its name or a made one: old files name only some."""
    names = sorted(port.names)
    shape = tuple(side.get_length() if side.is_static else None for side in port.partial_shape)
    kind = port.element_type
    dtype = "bfloat16" if kind.get_type_name() == "bf16" else kind.to_dtype().name
    return TensorInfo(port.any_name if names else name, shape, dtype)


def _metadata(network: Any, path: Path) -> dict[str, str]:
    """``metadata.yaml`` beside the file, as Ultralytics writes it, else what the file itself carries."""
    beside = path.with_name("metadata.yaml")
    if beside.is_file():
        try:
            import yaml
        except ImportError as error:
            raise MissingDependencyError("yaml", extra="openvino", purpose=f"reading {beside}") from error
        try:
            return texts(yaml.safe_load(beside.read_text("utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ModelLoadError(f"{beside} cannot be read: {one_line(error)}") from error
    # OpenVINO keeps the metadata of an ONNX file under "framework", also when it writes its own format.
    if not network.has_rt_info("framework"):
        return {}
    found = network.get_rt_info("framework")
    found = getattr(found, "value", found)
    return texts({key: str(getattr(value, "value", value)) for key, value in dict(found).items()})
