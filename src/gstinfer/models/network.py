"""A network file as a model: a runtime, its preprocessing and a head."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError, ModelLoadError, PredictError, UnknownNameError
from gstinfer.frames import FrameBatch
from gstinfer.geometry import RESIZES, ImageTransform
from gstinfer.heads import LAYOUTS, NAMES, Decision, choose
from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.device import DeviceDecoder
from gstinfer.heads.function import FunctionHead
from gstinfer.image import Device
from gstinfer.model import Model
from gstinfer.models.labels import LabelsOption, read_sidecar
from gstinfer.models.planning import FIELDS, check_picture, numbers, plan, size
from gstinfer.models.runtime import Runtime
from gstinfer.preprocess import Preprocessing, prepare
from gstinfer.reload import UserFunction
from gstinfer.results import Result
from gstinfer.settings import option

__all__ = ["NetworkModel", "Opener"]

Opener = Callable[[Device, int], Runtime]
"""Opens the network on a device with a number of threads (0: the runtime's own choice)."""

THRESHOLDS = {
    "confidence": "confidence_threshold",
    "iou": "iou_threshold",
    "class_agnostic": "class_agnostic",
    "limit": "max_detections",
}
"""Field of ``Thresholds`` -> option."""


def head_name(text: str) -> str:
    """A checked value of ``head``.

    Raises:
        UnknownNameError: Neither a known family nor a function.
    """
    if ":" not in text and text not in NAMES:
        raise UnknownNameError("head", text, NAMES, hint="or name a function of yours: my_module:function")
    return text


class NetworkModel(Model):
    """Pictures in, results in frame pixels out, through any runtime.

    What is unset is decided at ``load``, in this order: the options, the model's own defaults, a sidecar file, the file's
    metadata and shapes, the head's training habits. ``describe`` tells what was decided and why.

    Args:
        open_runtime: Opens the network.
        path: Its file, for a sidecar ``MODEL.gstinfer.toml`` and for messages; None when it has none.
        name: For messages; the file's name when empty.
        defaults: Options of a ready model, which its user's options override.
        **options: See the attributes below.

    Attributes:
        stage_seconds: Running sums of the time spent in ``prepare``, ``run`` and ``decode``.
        preprocessing: What was decided, after ``load``.
        functions: The user's functions in use, which can be loaded again while the model runs.
    """

    functions: tuple[UserFunction, ...] = ()

    head = option(
        str,
        "auto",
        f"Family of the outputs ({', '.join(NAMES)}), or a function of yours as module:function or file.py:function",
        check=head_name,
    )
    layout = option(
        str,
        "auto",
        "Whether candidates lie in the last axis (channels-first) or the one before",
        choices=LAYOUTS,
    )
    labels = LabelsOption(str, None, "Class names: a file of one name a line, or a,b,c", mutable=True)
    confidence_threshold = option(
        float, None, "Least confidence of an object; the model's own when unset", minimum=0, maximum=1, unset=-1,
        mutable=True,
    )  # fmt: skip
    iou_threshold = option(
        float, None, "Overlap above which the weaker box goes; the model's own when unset", minimum=0, maximum=1,
        unset=-1, mutable=True,
    )  # fmt: skip
    class_agnostic = option(bool, None, "Whether boxes of different classes suppress each other", mutable=True)
    max_detections = option(int, None, "Most objects of a frame", minimum=1, unset=0, mutable=True)
    input_size = option(str, None, "Input as WIDTHxHEIGHT or one number; the network's own when unset", check=size)
    resize = option(str, None, "How a picture is fitted", choices=RESIZES)
    pad_value = option(int, None, "Grey level of the letterbox padding", minimum=0, maximum=255, unset=-1)
    color = option(str, None, "Channel order of the input", choices=("rgb", "bgr"))
    scale = option(float, None, "Factor on 0..255 pixels", unset=0)
    mean = option(str, None, "Subtracted after scaling: one number or three", check=numbers)
    std = option(str, None, "Divided by after that: one number or three", check=numbers)
    preprocess = option(
        str, "fast", "Resize in the source format first (fast) or convert colour first (exact)",
        choices=("fast", "exact"),
    )  # fmt: skip
    threads = option(int, 0, "Threads of one run on the CPU; 0 for one per core", minimum=0)

    def __init__(
        self,
        open_runtime: Opener,
        *,
        path: str | Path | None = None,
        name: str = "",
        defaults: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._open, self._path = open_runtime, path
        self._defaults = self._parsed(defaults or {}, "the defaults")
        self._sidecar: dict[str, Any] = {}
        self.name = name or (Path(path).name if path else "network")
        self.stage_seconds = {"prepare": 0.0, "run": 0.0, "decode": 0.0}
        self._runtime: Runtime | None = None
        self._rows: list[tuple[str, str, str]] = []

    def _parsed(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        known = self.options()
        for key in values:
            if key not in known:
                raise UnknownNameError(f"setting in {where}", key, (o.key for o in known.values()))
        return {key: known[key].parse(value) for key, value in values.items()}

    def _find(self, name: str) -> tuple[Any, str]:
        """What was said about an option, and by whom; (None, "") where nothing was."""
        layers = ((self.__dict__, "set"), (self._defaults, f"part of {self.name}"), (self._sidecar, "the sidecar file"))
        for values, why in layers:
            value = values.get(name)
            if value is not None and value != "auto":
                return value, why
        return None, ""

    def load(self, device: Device) -> None:
        """Opens the network and decides everything.

        Raises:
            ModelLoadError: The file cannot be opened.
            ConfigError: The head is ambiguous, or an option, a label count or a shape does not fit the network.
        """
        self.close()
        self._sidecar = self._parsed(read_sidecar(self._path), "the sidecar file") if self._path else {}
        if ":" in self._sidecar.get("head", ""):
            raise ConfigError(
                f"the sidecar file of {self.name} names code: head={self._sidecar['head']}",
                hint="set head= yourself; a file beside a model must not choose what runs",
            )
        self.device = device
        self._runtime = self._open(device, self._find("threads")[0] or 0)
        try:
            self._decide(self._runtime.info)
        except BaseException:
            self.close()
            raise

    def _decide(self, info: NetworkInfo) -> None:
        if not info.inputs:
            raise ConfigError(f"{self.name} has no inputs")
        # A head of the sidecar counts as metadata the file lacks.
        extra = {
            key: str(self._sidecar[key]) for key in ("head", "layout") if self._sidecar.get(key) not in (None, "auto")
        }
        info = replace(info, metadata={**extra, **info.metadata})
        labels, labels_why = self._find("labels")
        if labels is not None:
            info = replace(info, labels=as_names(labels))
        said = {option: self._find(option) for option in FIELDS.values()}
        check_picture(self.name, info.inputs[0])
        if any(None in output.shape[1:] for output in info.outputs):
            info = self._measured(info, said)
        self._info = info
        chosen = {key: self.__dict__.get(key) or self._defaults.get(key) or "auto" for key in ("head", "layout")}
        self._decision = self._chosen(info, **chosen)
        self._head = self._decision.head
        self._info = info = self._freed(info)
        self.preprocessing, reasons = plan(self.name, info, said, self._head.preprocessing(info), self._head.name)
        self._picture = info.inputs[0].name
        self.max_batch = info.inputs[0].shape[0]
        self._buffer = np.zeros(self.preprocessing.input_shape(self.max_batch or 1), self.preprocessing.dtype)
        whole = ImageTransform.plan(self.preprocessing.size, self.preprocessing.size)
        missing = {item.name for item in info.inputs[1:]} - set(self._head.feeds([whole]))
        if missing:
            raise ConfigError(
                f"{self.name} has a further input {', '.join(sorted(missing))} that head={self._head.name} does not feed",
                hint="export the network with the picture as its only input",
            )
        names = self._head.labels
        origin = labels_why or ("" if names is None else "the file or its family")
        tensors = [("input", item) for item in info.inputs] + [("output", item) for item in info.outputs]
        self._rows = [
            *((kind, tensor_text(item), "the file") for kind, item in tensors),
            ("head", self.functions[0].text if self.functions else self._head.name, "; ".join(self._decision.reasons)),
            *(
                (key.replace("_", "-"), text(getattr(self.preprocessing, field)), reasons[field])
                for field, key in FIELDS.items()
            ),
            ("batch", str(self.max_batch or "any"), f"the shape of the input {self._picture}"),
            ("labels", str(len(names)) if names is not None else "none", origin),
        ]

    def _chosen(self, info: NetworkInfo, head: str, layout: str) -> Decision:
        """The head that is asked for, or that the network shows to be right."""
        if ":" not in head:
            self.functions = ()
            return choose(info, head, layout)
        function = UserFunction(head, "head")
        function.load()
        self.functions = (function,)
        made = FunctionHead(info, function, head, lambda: function.parameters > 2, layout)
        return Decision(made, "auto", (f"head={head} was set",))

    def _freed(self, info: NetworkInfo) -> NetworkInfo:
        """The network with its sizes made free, where its head says that any will do and the runtime can."""
        return info

    def _measured(self, info: NetworkInfo, said: Mapping[str, tuple[Any, str]]) -> NetworkInfo:
        """The network with the shapes of its outputs, where its file does not say them, from one run on zeros."""
        if len(info.inputs) != 1:
            return info
        try:
            spec, _ = plan(self.name, info, said, {}, "")
        except ConfigError:
            return info
        picture = info.inputs[0]
        rows = picture.shape[0] or 1
        try:
            outputs = self._run({picture.name: np.zeros(spec.input_shape(rows), spec.dtype)})
        except Exception as error:
            raise ModelLoadError(
                f"{self.name} fails on a picture of {spec.size[0]}x{spec.size[1]}: {type(error).__name__}: {error}",
                hint="set input-size= to a size that the network takes",
            ) from error
        measured = []
        for item in info.outputs:
            shape: list[int | None] = list(outputs[item.name].shape)
            if shape and picture.shape[0] is None and shape[0] == rows:
                shape[0] = None
            measured.append(TensorInfo(item.name, tuple(shape), item.dtype))
        return replace(info, outputs=tuple(measured))

    def labels_changed(self, labels: Any) -> None:
        """Called by the option before new labels are stored; while loaded they are held against the network."""
        if self._loaded():
            info = replace(self._info, labels=as_names(labels)) if labels is not None else self._info
            if self.functions:
                self._head.labels = info.labels
            else:
                self._head = choose(info, self._head.name, self._decision.layout).head

    def _loaded(self) -> bool:
        return self.__dict__.get("_runtime") is not None

    @property
    def known_labels(self) -> Any:
        """Names from the network itself, or its family; None before ``load`` and where unknown."""
        head = self.__dict__.get("_head")
        return None if head is None else head.labels

    @property
    def parts(self) -> tuple[NetworkInfo, Head, Runtime]:
        """The network, its head and its runtime, for tools that look at each step; while it is loaded."""
        if self._runtime is None:
            raise PredictError(f"{self.name} is not loaded", hint="call load(device) first")
        return self._info, self._head, self._runtime

    @property
    def thresholds(self) -> Thresholds:
        """What is kept now: the options over the head's own defaults."""
        said = {field: self._find(name)[0] for field, name in THRESHOLDS.items()}
        return replace(self._head.thresholds, **{field: value for field, value in said.items() if value is not None})

    def warmup(self) -> None:
        """One run on an empty picture, so that the first real one is not slow and a bad shape shows at load."""
        width, height = self.preprocessing.size
        with self._head.warming():
            self.predict(FrameBatch.of([np.zeros((height, width, 3), np.uint8)]))
        self.stage_seconds = dict.fromkeys(self.stage_seconds, 0.0)

    def predict(self, batch: FrameBatch) -> list[Result | tuple[Result, ...]]:
        """One result per frame, in frame pixels; one call at a time.

        Raises:
            PredictError: The model is not loaded.
        """
        if self._runtime is None:
            raise PredictError(f"{self.name} is not loaded", hint="call load(device) first")
        if not len(batch):
            return []
        start = time.perf_counter()
        count, images = len(batch), [frame.image for frame in batch]
        rows = self._run_size(count)
        if batch.device.is_cuda:
            blank = _blank(self.preprocessing, batch.device, rows) if rows > count else None
            pixels, transforms = prepare(images, self.preprocessing, out=blank)
            pixels = pixels if self.device.is_cuda else pixels.cpu().numpy()
        else:
            if len(self._buffer) < rows:
                self._buffer = np.zeros(self.preprocessing.input_shape(rows), self.preprocessing.dtype)
            _, transforms = prepare(images, self.preprocessing, out=self._buffer)
            pixels = self._buffer[:rows]
        padded = [*transforms, *transforms[-1:] * (rows - count)]
        prepared = time.perf_counter()
        feeds = {self._picture: pixels, **self._head.feeds(padded)}
        on_device = hasattr(pixels, "data_ptr") and DeviceDecoder.supports(self._head)
        there = self._run_there(feeds) if on_device else None
        outputs = self._run(feeds) if there is None else there
        ran = time.perf_counter()
        decoder: Any = self._head if there is None else DeviceDecoder(self._head)
        results: list[Result | tuple[Result, ...]] = decoder.decode(outputs, transforms, self.thresholds)
        seconds = self.stage_seconds
        seconds["prepare"] += prepared - start
        seconds["run"] += ran - prepared
        seconds["decode"] += time.perf_counter() - ran
        return results

    def _run_size(self, count: int) -> int:
        """Pictures of the run that a batch of ``count`` becomes; nobody looks at those that fill it up."""
        return self.max_batch or count

    def _run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        assert self._runtime is not None
        outputs = self._runtime.run(feeds)
        return {k: v.astype(np.float32) if v.dtype in (np.float16, np.float64) else v for k, v in outputs.items()}

    def _run_there(self, feeds: Mapping[str, Any]) -> dict[str, Any] | None:
        """Outputs as torch tensors where they were computed, of a head that decodes there; None where they come to the host."""
        return None

    def describe(self) -> list[tuple[str, str, str]]:
        """What was decided, as rows of (what, value, why); empty before ``load``."""
        if not self._loaded():
            return []
        own, rows = self.thresholds, list(self._rows)
        for field, name in THRESHOLDS.items():
            why = self._find(name)[1] or f"default of head {self._head.name}"
            rows.append((name.replace("_", "-"), text(getattr(own, field)), why))
        return rows

    def close(self) -> None:
        """Lets go of the network; ``load`` may follow."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()


def _blank(spec: Preprocessing, device: Device, rows: int) -> Any:
    """An input in GPU memory."""
    from gstinfer.preprocess.cuda import gpu_torch

    torch = gpu_torch()
    return torch.zeros(spec.input_shape(rows), dtype=getattr(torch, spec.dtype), device=str(device))


def as_names(labels: Any) -> tuple[str, ...]:
    """Labels of any form as names by index; numbers fill gaps."""
    if isinstance(labels, Mapping):
        return tuple(str(labels.get(i, i)) for i in range(max(labels, default=-1) + 1))
    return tuple(labels)


def tensor_text(item: TensorInfo) -> str:
    """Name, shape and type for people: ``images [?,3,640,640] float32``."""
    return f"{item.name} [{','.join('?' if side is None else str(side) for side in item.shape)}] {item.dtype}"


def text(value: Any) -> str:
    """A value for people: ``640x480``, ``0.5, 1``, ``true``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return "x".join(map(str, value))
    if isinstance(value, tuple):
        return ", ".join(f"{v:.6g}" for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
