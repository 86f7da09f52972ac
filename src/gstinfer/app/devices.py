"""On which GPUs the streams of a job run, and which of them the next stream gets."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gstinfer import gpu
from gstinfer.errors import ConfigError
from gstinfer.image import Device
from gstinfer.model import ModelSpec
from gstinfer.unwinder import cxx_library

__all__ = ["Seat", "least_loaded", "on_one_core", "parse_devices", "resolve", "runs_on_gpu"]

HINT = "use auto, cpu, cuda, cuda:N, or several GPUs: cuda:0,cuda:1"


@dataclass(eq=False)
class Seat:
    """A device, and the properties of the elements of the streams on it.

    Attributes:
        device: Where they run.
        properties: Values by element factory and property name; ``None`` for a factory leaves that element out.
    """

    device: Device
    properties: dict[str, dict[str, Any] | None]

    @property
    def infer(self) -> dict[str, Any]:
        """Properties of its pyinfer."""
        found = self.properties["pyinfer"]
        assert found is not None
        return found


def parse_devices(text: str) -> tuple[Device, ...]:
    """Reads ``--device``: ``"auto"`` gives none, else one device, or several GPUs separated by commas.

    Raises:
        ConfigError: A name that is no device, one that stands there twice, or other devices beside GPUs.
    """
    names = [name.strip().lower() for name in text.split(",")]
    if names == ["auto"]:
        return ()
    found: list[Device] = []
    for name in names:
        if not name:
            raise ConfigError(f"device={text!r} has an empty name in it", hint=HINT)
        if name in ("auto", "cpu") and len(names) > 1:
            raise ConfigError(f"device={text!r} names {name} beside others; only GPUs can be several", hint=HINT)
        try:
            device = Device.parse(name)
        except ConfigError as error:
            raise ConfigError(error.message, hint=HINT) from error
        if device in found:
            raise ConfigError(f"device={text!r} names {device} twice", hint=HINT)
        found.append(device)
    return tuple(found)


def resolve(text: str, models: Iterable[str], arguments: str = "") -> tuple[tuple[Device, str], ...]:
    """The devices of a job, each with the text for pyinfer's ``device``.

    ``auto`` is the first GPU where there is one and all models can run on it, else the CPU.

    Args:
        text: Of ``--device``.
        models: Specs.
        arguments: Of ``model-args``.

    Raises:
        ConfigError: See ``parse_devices``; or a GPU that is not there.
    """
    found = parse_devices(text)
    for device in found:
        gpu.require(device)
    if found:
        return tuple((device, str(device)) for device in found)
    # Who names a provider chose a device with it.
    if gpu.device_count() and "provider" not in arguments and all(runs_on_gpu(model) for model in models):
        return ((Device("cuda"), "cuda:0"),)
    return ((Device(), "auto"),)


def runs_on_gpu(model: str) -> bool:
    """Whether a model's runtime is here and runs on a GPU. Of a Python class nobody knows; it stays on the CPU."""
    spec = ModelSpec.parse(model)
    runtime = "onnx" if spec.kind == "ready" else spec.name if spec.kind == "runtime" else ""
    if runtime == "onnx":
        return _onnx()
    if runtime in ("torch", "ultralytics", "rfdetr", "tensorrt"):
        return _torch()
    return False


def _onnx() -> bool:
    try:
        with cxx_library():
            import onnxruntime
    except ImportError:
        return False
    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def _torch() -> bool:
    try:
        with cxx_library():
            import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def on_one_core(seat: Seat) -> list[str]:
    """Which elements of a seat are better off with their Python on one core: those whose models compute on a GPU and do not
    wait for it. Where the user named cores, none."""
    found: list[str] = []
    for name in ("pyinfer", "then"):
        properties = seat.properties.get(name) or {"device": "cpu"}
        gpu_wanted = str(properties["device"]).startswith("cuda")
        if gpu_wanted and "cpu_cores" not in properties and _works_ahead(str(properties["model"])):
            found.append(name)
    return found


def _works_ahead(model: str) -> bool:
    """Whether a model has ``submit``. The file of a class is read and not run, which is left to who loads it."""
    spec = ModelSpec.parse(model)
    if spec.kind != "python":
        return spec.kind == "runtime" and spec.name == "torch"
    source = spec.source()
    try:
        body = ast.parse(source.read_bytes()).body if source is not None else []
    except (OSError, SyntaxError, ValueError):  # said when it is loaded
        return False
    classes = (node for node in body if isinstance(node, ast.ClassDef) and node.name == spec.target)
    return any(isinstance(part, ast.FunctionDef) and part.name == "submit" for node in classes for part in node.body)


def least_loaded(seats: Sequence[Seat], taken: Iterable[Seat | None]) -> Seat:
    """The seat with the fewest streams; the first of equals.

    Args:
        seats: All.
        taken: Of the streams that run.
    """
    used = [seat for seat in taken if seat is not None]
    return min(seats, key=lambda seat: sum(other is seat for other in used))
