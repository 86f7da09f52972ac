"""Models run by the Ultralytics package: its own loading, preprocessing and decoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gstinfer.convert import to_result
from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError, PredictError
from gstinfer.frames import FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.image import Device
from gstinfer.modelbase import Model
from gstinfer.models.files import check_file, one_line
from gstinfer.models.labels import LabelsOption
from gstinfer.models.planning import size
from gstinfer.models.tensorrt import sides
from gstinfer.results import Detections, Result
from gstinfer.settings import option
from gstinfer.unwinder import cxx_library

__all__ = ["DimsTuple", "UltralyticsModel", "patch_tensorrt", "ultralytics_model"]

TENSORRT_BACKENDS = ("ultralytics.nn.backends.tensorrt", "ultralytics.nn.autobackend")
"""Modules in which Ultralytics reads the shapes of an engine, by release."""

TASKS = ("auto", "detect", "segment", "pose", "obb", "classify", "semantic")
REMOTE = ("http://", "https://", "rtsp://", "ul://")
FOLDERS = ("_openvino_model", "_saved_model", "_ncnn_model", "_paddle_model", "_rknn_model", "_imx_model")


class UltralyticsModel(Model):
    """A model of the Ultralytics package; what it decides itself is decided by it.

    Its checkpoints are pickles: loading one runs the code inside, so name only files that you trust.

    Args:
        path: ``FILE.pt``, an architecture ``yolo26n.yaml`` (untrained), or any file of an export that it reads.
        **options: See the attributes below.
    """

    labels = LabelsOption(str, None, "Class names: a file of one name a line, or a,b,c", mutable=True)
    confidence_threshold = option(
        float, 0.25, "Least confidence of an object", minimum=0, maximum=1, mutable=True
    )
    iou_threshold = option(
        float, 0.7, "Overlap above which the weaker box goes", minimum=0, maximum=1, mutable=True
    )
    class_agnostic = option(bool, False, "Whether boxes of different classes suppress each other", mutable=True)
    max_detections = option(int, 300, "Most objects of a frame", minimum=1, mutable=True)
    input_size = option(str, None, "Input as WIDTHxHEIGHT or one number; the model's own when unset", check=size)
    task = option(str, "auto", "What the model does, for files that do not say", choices=TASKS)
    half = option(bool, False, "Whether to compute in float16")
    download = option(bool, False, "Whether weights that are missing may be fetched from Ultralytics' server")

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        self.path = path
        self.known_labels: Any = None
        self._net: Any = None

    def labels_changed(self, labels: Any) -> None:
        """Nothing to hold new labels against: names beyond the classes are never asked for."""

    def load(self, device: Device) -> None:
        """Opens the model and lets it predict once on an empty picture.

        Raises:
            MissingDependencyError: ultralytics, or what it needs for this kind of file, is not installed.
            ModelLoadError: The file is missing and may not be fetched, or cannot be opened.
        """
        remote = self.download or self.path.startswith(REMOTE)
        if not remote:
            self._check_local()
        yolo = _yolo(offline=not remote)
        if self.path.endswith((".engine", ".plan")):
            patch_tensorrt()
        try:
            self._net = yolo(self.path, task=None if self.task == "auto" else self.task, verbose=False)
            if self.path.endswith((".pt", ".yaml", ".yml")):
                self._net.to(str(device))
            self.device = device
            self.known_labels = dict(self._net.names)
        except Exception as error:
            self._net = None
            if isinstance(error, ImportError):
                raise MissingDependencyError(error.name or "a library", purpose=f"{self.path}: {one_line(error)}") from error
            raise ModelLoadError(
                f"{self.path} cannot be loaded by Ultralytics: {type(error).__name__}: {one_line(error)}",
                hint="check the file, and set task= if it does not say what it does",
            ) from error

    def _check_local(self) -> None:
        path = Path(self.path)
        if path.suffix in (".yaml", ".yml") and not path.is_file():
            return  # an architecture inside the package
        if path.is_dir() and path.name.endswith(FOLDERS):
            return
        try:
            check_file(path, "an Ultralytics model")
        except ModelLoadError as error:
            hint = f"{error.hint}; nothing is fetched unless download=true is set" if not path.exists() else error.hint
            raise ModelLoadError(error.message, hint=hint) from error

    def warmup(self) -> None:
        """One run on an empty picture."""
        import numpy as np

        self._run([np.zeros((64, 64, 3), np.uint8)])

    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        """Ultralytics' own results, one per frame; ``convert`` makes them ours.

        Raises:
            PredictError: The model is not loaded.
        """
        if self._net is None:
            raise PredictError(f"{self.path} is not loaded", hint="call load(device) first")
        if not len(batch):
            return []
        return self._run_tensor(batch) if batch.device.is_cuda else self._run(batch.images("bgr"))

    def _run_tensor(self, batch: FrameBatch) -> list[Any]:
        """Frames in GPU memory: one letterboxed tensor for the whole batch; no pixel comes to the host."""
        from ultralytics.utils import ops

        side = self.input_size or _square(self._net.overrides.get("imgsz", 640))
        pictures, transforms = batch.letterbox(side, "float16" if self.half else "float32")
        to_host = ops.convert_torch2numpy_batch
        # Its results keep the pictures for drawing, of which only the shape is read here.
        ops.convert_torch2numpy_batch = _shapes
        try:
            found = self._run(pictures)
        finally:
            ops.convert_torch2numpy_batch = to_host
        return [_in_frame(to_result(item), transform) for item, transform in zip(found, transforms)]

    def _run(self, pictures: Any) -> list[Any]:
        settings: dict[str, Any] = {
            "conf": self.confidence_threshold,
            "iou": self.iou_threshold,
            "agnostic_nms": self.class_agnostic,
            "max_det": self.max_detections,
            "device": str(self.device),
            "batch": len(pictures),
            "verbose": False,
        }
        if self.half:
            settings["half"] = True
        if self.input_size is not None:
            width, height = self.input_size
            settings["imgsz"] = (height, width)
        found: list[Any] = list(self._net.predict(pictures, **settings))
        return found

    def describe(self) -> list[tuple[str, str, str]]:
        """What is known of the model, as rows of (what, value, why); empty before ``load``."""
        if self._net is None:
            return []
        rows = [("task", str(self._net.task), "set" if self.task != "auto" else "the file")]
        rows += [
            (self.options()[name].key, str(getattr(self, name)), "set" if name in self.__dict__ else "Ultralytics' own")
            for name in ("confidence_threshold", "iou_threshold", "class_agnostic", "max_detections")
        ]
        rows.append(("labels", str(len(self.known_labels)), "the file"))
        return rows

    def close(self) -> None:
        """Lets go of the model; ``load`` may follow."""
        self._net = None


def ultralytics_model(path: str, **options: Any) -> UltralyticsModel:
    """The model behind ``ultralytics:PATH``; the options are those of ``UltralyticsModel``.

    Raises:
        ConfigError: No path, or an option that is unknown or does not fit.
    """
    if not str(path).strip():
        raise ConfigError("no Ultralytics model is named", hint="write model=ultralytics:FILE.pt")
    return UltralyticsModel(path, **options)


def _square(sides: Any) -> tuple[int, int]:
    """(width, height) from one number or (height, width)."""
    if isinstance(sides, int):
        return sides, sides
    return int(sides[-1]), int(sides[0])


def _shapes(pictures: Any) -> Any:
    """Arrays of the pictures' shapes, ``[B,H,W,3]`` of one shared zero, in place of a copy of the pixels."""
    import numpy as np

    count, channels, height, width = pictures.shape
    return np.broadcast_to(np.zeros(1, np.uint8), (count, height, width, channels))


def _in_frame(result: Result | None, transform: ImageTransform) -> Any:
    return result.placed(transform) if isinstance(result, Detections) else result


def _yolo(offline: bool) -> Any:
    """``ultralytics.YOLO``, told before its first import not to fetch, install or print anything on its own."""
    os.environ.setdefault("YOLO_AUTOINSTALL", "false")
    # It prints to standard output, where messages may go.
    os.environ.setdefault("YOLO_VERBOSE", "false")
    if offline:
        os.environ.setdefault("YOLO_OFFLINE", "true")
    try:
        with cxx_library():
            from ultralytics import YOLO
    except ImportError as error:
        name = error.name or "ultralytics"
        if name.partition(".")[0] == "ultralytics":
            raise MissingDependencyError("ultralytics", extra="ultralytics", purpose="Ultralytics models") from error
        raise MissingDependencyError(name, purpose="Ultralytics models") from error
    return YOLO


class _TupleLike(type):
    """Makes a class that stands in for ``tuple``: in ``isinstance``, and as a call."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, tuple)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, tuple)

    def __call__(cls, value: Any = ()) -> tuple[Any, ...]:
        kind = type(value)
        if kind.__name__.startswith("Dims") and kind.__module__.partition(".")[0].startswith("tensorrt"):
            return sides(value)
        return tuple(value)


class DimsTuple(tuple[Any, ...], metaclass=_TupleLike):
    """``tuple`` for code that meets TensorRT's ``Dims``: a call reads those one by one, and all else as ever.

    Iterating over a ``Dims`` ends the process once PyGObject is loaded.
    """


def patch_tensorrt() -> None:
    """Lets Ultralytics' TensorRT backend read shapes by ``DimsTuple``, where both TensorRT and PyGObject are loaded.

    Only the name ``tuple`` inside that module's own namespace is set.
    """
    if "gi" not in sys.modules:
        return
    try:
        with cxx_library():
            import tensorrt  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("tensorrt", extra="tensorrt", purpose="TensorRT engines") from error
    import importlib

    for name in TENSORRT_BACKENDS:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        vars(module)["tuple"] = DimsTuple
