"""Opening networks of PyTorch: exported programs, TorchScript and modules that Python code builds."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.image import Device
from gstinfer.modelspec import ModelSpec
from gstinfer.unwinder import cxx_library

__all__ = ["PRECISIONS", "Network", "open_network", "torch_library"]

PRECISIONS = ("auto", "float32", "float16", "bfloat16")

SCRIPT_SUFFIXES = (".torchscript", ".ts")
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


_PICTURE = TensorInfo("images", (None, 3, None, None))


@dataclass
class Network:
    """An open network.

    Attributes:
        call: Takes the picture tensor (or all inputs, in order) and gives tensors by output name.
        info: Its description.
        rows: Fixed batch size, or None.
    """

    call: Callable[..., dict[str, Any]]
    info: NetworkInfo
    rows: int | None


def torch_library(device: Device | None = None) -> Any:
    """torch.

    Raises:
        MissingDependencyError: It is not installed.
        ConfigError: A CUDA device that torch does not see.
    """
    try:
        with cxx_library():
            import torch
    except ImportError as error:
        raise MissingDependencyError("torch", extra="torch", purpose="PyTorch models") from error
    if device is not None and device.is_cuda:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.index >= count:
            raise ConfigError(
                f"device={device} was asked for, but torch {torch.__version__} sees {count or 'no'} GPU"
                f"{'s' if count > 1 else ''}",
                hint="set device=cpu, or install a CUDA build of torch that fits the driver",
            )
    return torch


def open_network(
    path: str,
    device: Device,
    *,
    size: tuple[int, int] | None = None,
    precision: str = "auto",
    weights: str = "",
    trust: bool = False,
) -> Network:
    """Opens ``FILE.pt2``, ``FILE.torchscript`` or ``module:factory`` on a device.

    Args:
        path: The file, or Python code as ``module:Name`` or ``file.py:Name``: a module, its class, or a function that
            makes one.
        device: Where to run.
        size: (width, height) of the input, for networks that do not say.
        precision: One of ``PRECISIONS``; auto is a file's own, and float16 on a GPU for a module.
        weights: State of a module, ``.safetensors`` or a checkpoint of tensors.
        trust: Whether pickled Python code in a checkpoint may run.

    Raises:
        ConfigError: A setting does not fit the kind of network.
        ModelLoadError: It cannot be opened.
    """
    torch = torch_library(device)
    place = torch.device(str(device))
    suffix = Path(path).suffix.lower()
    is_file = suffix == ".pt2" or suffix in SCRIPT_SUFFIXES
    if is_file and weights:
        raise ConfigError(f"weights={weights} does not apply to {path}, which holds its own")
    if is_file and not Path(path).is_file():
        raise ModelLoadError(f"the model file {path} does not exist", hint=f"looked in {Path.cwd()}")
    if is_file and not zipfile.is_zipfile(path):
        # torch itself would write a traceback of its own to the log first.
        raise ModelLoadError(
            f"{path} cannot be loaded by torch: it is not a whole archive (corrupt, cut short, or another kind of file)",
            hint="copy or download it again, or export it again",
        )
    try:
        if suffix == ".pt2":
            module, info = _exported(torch, path, place)
        elif suffix in SCRIPT_SUFFIXES:
            module, info = _scripted(torch, path, place)
        else:
            module, info = _built(torch, path, weights, trust)
    except (ModelLoadError, ConfigError):
        raise
    except Exception as error:  # files of any origin, and the user's code
        raise ModelLoadError(f"{path} cannot be loaded by torch {torch.__version__}: {error}") from error
    own = _own_type(torch, module)
    usual = torch.float16 if device.is_cuda and not is_file else own
    wanted = usual if precision == "auto" else getattr(torch, precision)
    if suffix == ".pt2" and wanted != own:
        raise ConfigError(
            f"precision={precision} does not fit {path}, an exported program of {str(own).removeprefix('torch.')}",
            hint="export it from a model of that type",
        )
    module = module.to(device=place, dtype=wanted) if suffix != ".pt2" else module
    if device.is_cuda and not is_file:
        module = module.to(memory_format=torch.channels_last)
    if hasattr(module, "eval") and suffix != ".pt2":
        module.eval()
    picture = info.inputs[0]
    # Preprocessing has no bfloat16: such a network gets float32 pictures and casts them.
    fed = "float32" if wanted == torch.bfloat16 else str(wanted).removeprefix("torch.")
    info = NetworkInfo(
        (TensorInfo(picture.name, picture.shape, fed), *info.inputs[1:]), info.outputs, info.metadata, info.labels
    )
    network = Network(_named(torch, module, wanted), info, picture.shape[0])
    if not info.outputs:
        network.info = _probed(torch, network, path, place, size)
    return network


def _own_type(torch: Any, module: Any) -> Any:
    for tensor in module.parameters():
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32


def _exported(torch: Any, path: str, place: Any) -> tuple[Any, NetworkInfo]:
    extra = {"metadata.json": ""}
    program = torch.export.load(path, extra_files=extra)
    from torch.export.passes import move_to_device_pass

    program = move_to_device_pass(program, place)
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = tuple(_described(nodes[name], name) for name in program.graph_signature.user_inputs)
    outputs = tuple(
        _described(nodes[name], f"output{number}")
        for number, name in enumerate(program.graph_signature.user_outputs)
        if name in nodes
    )
    return program.module(), NetworkInfo(inputs, outputs, _texts(extra["metadata.json"]))


def _described(node: Any, name: str) -> TensorInfo:
    value = node.meta["val"]
    shape = tuple(side if isinstance(side, int) else None for side in value.shape)
    return TensorInfo(name, shape, str(value.dtype).removeprefix("torch."))


def _texts(text: Any) -> dict[str, str]:
    """Metadata from JSON text; empty where there is none."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    # JSON has text keys only: names are numbered again.
    if isinstance(found.get("names"), dict):
        found["names"] = {int(key): value for key, value in found["names"].items()}
    return {key: value if isinstance(value, str) else repr(value) for key, value in found.items()}


def _scripted(torch: Any, path: str, place: Any) -> tuple[Any, NetworkInfo]:
    extra = {"config.txt": ""}
    module = torch.jit.load(path, map_location=place, _extra_files=extra)
    metadata = _texts(extra["config.txt"])
    return module, NetworkInfo((_PICTURE,), (), metadata)


def _built(torch: Any, path: str, weights: str, trust: bool) -> tuple[Any, NetworkInfo]:
    suffix = Path(path).suffix.lower()
    module_name, colon, attribute = path.rpartition(":")
    if not colon or not module_name:
        hint = "write torch:FILE.pt2, torch:FILE.torchscript or torch:module:factory"
        if suffix in WEIGHT_SUFFIXES:
            hint = f"weights alone do not build a network: write torch:module:factory and weights={path}"
        raise ConfigError(f"{path!r} names no PyTorch network", hint=hint)
    target = ModelSpec(path, "python", module_name, attribute).target_object()
    module = target if isinstance(target, torch.nn.Module) else target()
    if not isinstance(module, torch.nn.Module):
        raise ModelLoadError(
            f"{path} gave a {type(module).__name__}, expected a torch.nn.Module",
            hint="name a module, its class, or a function without arguments that makes one",
        )
    if weights:
        module.load_state_dict(_state(torch, weights, trust))
    said = getattr(module, "metadata", None) or {}
    metadata = {str(key): value if isinstance(value, str) else repr(value) for key, value in said.items()}
    for name in ("names", "task"):
        if name not in metadata and isinstance(getattr(module, name, None), (str, dict, list, tuple)):
            value = getattr(module, name)
            metadata[name] = value if isinstance(value, str) else repr(value)
    return module, NetworkInfo((_PICTURE,), (), metadata)


def _state(torch: Any, weights: str, trust: bool) -> Any:
    """Tensors by name from a checkpoint."""
    file = Path(weights)
    if not file.is_file():
        raise ModelLoadError(f"the weights file {weights} does not exist", hint=f"looked in {Path.cwd()}")
    if file.suffix.lower() == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise MissingDependencyError("safetensors", extra="torch", purpose=".safetensors weights") from error
        return load_file(str(file))
    import pickle

    try:
        state = torch.load(file, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{weights} holds pickled Python code, which could do anything, besides tensors",
            hint="save model.state_dict(), or set trust=true if you trust where the file comes from",
        ) from error
    return state.get("state_dict", state) if isinstance(state, dict) else state.state_dict()


def _named(torch: Any, module: Any, wanted: Any) -> Callable[..., dict[str, Any]]:
    def call(picture: Any, *others: Any) -> dict[str, Any]:
        if picture.is_floating_point() and picture.dtype != wanted:
            picture = picture.to(wanted)
        found = module(picture, *others)
        if isinstance(found, Mapping):
            return {key: value for key, value in found.items() if isinstance(value, torch.Tensor)}
        if isinstance(found, torch.Tensor):
            found = (found,)
        # Training aids that ride along (Ultralytics returns a dict of them) are no tensors.
        return {f"output{n}": value for n, value in enumerate(found) if isinstance(value, torch.Tensor)}

    return call


def _probed(torch: Any, network: Network, path: str, place: Any, size: tuple[int, int] | None) -> NetworkInfo:
    """The network's description with its outputs, from one run on zeros."""
    from gstinfer.heads.facts import input_size

    size = size or input_size(network.info)
    if size is None:
        raise ConfigError(f"{path} does not say the size of its input", hint="set input-size=640 or WIDTHxHEIGHT")
    picture = network.info.inputs[0]
    dtype = getattr(torch, picture.dtype)
    with torch.inference_mode():
        outputs = network.call(torch.zeros((1, 3, size[1], size[0]), dtype=dtype, device=place))
    if not outputs:
        raise ModelLoadError(f"{path} returned no tensor for a picture of {size[0]}x{size[1]}")
    described = tuple(
        TensorInfo(name, (None, *value.shape[1:]), str(value.dtype).removeprefix("torch."))
        for name, value in outputs.items()
    )
    return NetworkInfo(network.info.inputs, described, network.info.metadata, network.info.labels)
