"""What a pipeline is held against: the loop that people write, with the library that they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gstinfer.convert import to_result
from gstinfer.errors import ConfigError, MissingDependencyError
from gstinfer.frames import FrameBatch
from gstinfer.heads.base import Thresholds
from gstinfer.image import Device
from gstinfer.model import LoadedModel
from gstinfer.models.network import NetworkModel
from gstinfer.models.onnx import OnnxRuntime
from gstinfer.models.ultralytics import UltralyticsModel
from gstinfer.modelspec import ModelSpec
from gstinfer.parity.decoding import READERS, Candidate, Facts, Output, decode, suppress
from gstinfer.parity.fitting import Fitted, Pixels, Recipe, fit, recipe_of, to_tensor
from gstinfer.results import Classifications, Detections, Mask, Result, SegmentationMap

__all__ = ["KINDS", "Bare", "Loop", "Reference", "open_reference"]

KINDS = ("auto", "onnxruntime", "ultralytics", "torchvision", "transformers", "rfdetr", "model")
"""Values of ``--reference``; ``model`` is the model itself, called with OpenCV's frames."""

BEST = 5
"""Classes of a whole frame that are kept."""


class Reference(Protocol):
    """Answers for one picture at a time."""

    name: str

    def predict(self, picture: Pixels) -> Sequence[Result]:
        """Results for a BGR picture, in its pixels."""


class Loop:
    """Pictures in, results out, with nothing of the pipeline in between: fitted, run and decoded by code of its own.

    Args:
        model: The loaded network whose family, size, thresholds and settings apply.
        library: ``"onnxruntime"`` opens the file anew, ``"runtime"`` runs the model's own runtime.

    Attributes:
        name: For people.
        recipe: How pictures are fed.
    """

    def __init__(self, model: NetworkModel, library: str = "onnxruntime") -> None:
        info, head, runtime = model.parts
        self._model, self._runtime, self.family = model, runtime, head.name
        self.size, self.recipe = model.preprocessing.size, _recipe(model)
        # COCO's list with gaps, a dict, is a family's own knowledge: the decoding here has to know it too.
        names = info.labels or (tuple(model.labels) if isinstance(model.labels, (list, tuple)) else None)
        self.facts = Facts(self.size, info, names, model.layout, model.thresholds)
        self._inputs, self._outputs = info.inputs, [output.name for output in info.outputs]
        self.session: Any = None
        if library == "onnxruntime":
            if not isinstance(runtime, OnnxRuntime):
                raise ConfigError(
                    f"{model.name} is no ONNX file, so onnxruntime cannot run it", hint="use --reference auto"
                )
            self.session = _session(runtime, model)
        self.name = "a bare ONNX Runtime loop" if self.session else "a bare loop around the same runtime"
        if self.family not in READERS:
            raise ConfigError(
                f"parity has no decoding of its own for head={self.family}", hint="use --reference model"
            )

    def prepare(self, picture: Pixels) -> tuple[NDArray[Any], Fitted]:
        """A BGR picture as a batch of one."""
        fitted = fit(picture, self.size, self.recipe)
        spec = self._model.preprocessing
        return to_tensor(fitted.canvas, self.recipe, spec.layout == "NCHW", spec.dtype), fitted

    def run(self, tensor: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Outputs by name, batch first."""
        rows = self._inputs[0].shape[0] or 1
        feeds = {self._inputs[0].name: np.repeat(tensor, rows, 0) if rows > 1 else tensor}
        for item in self._inputs[1:]:
            feeds[item.name] = np.array([self.size] * rows, item.dtype)
        if self.session is None:
            return {name: np.array(value) for name, value in self._runtime.run(feeds).items()}
        return dict(zip(self._outputs, self.session.run(self._outputs, feeds)))

    def decode(
        self,
        outputs: Mapping[str, NDArray[Any]],
        fitted: Fitted,
        frame: tuple[int, int],
        thresholds: Thresholds | None = None,
    ) -> list[Result]:
        """Results in pixels of a frame of (width, height)."""
        facts = self.facts if thresholds is None else replace(self.facts, thresholds=thresholds)
        output = decode(self.family, outputs, facts)
        assert output is not None
        return [_result(output, suppress(output, facts.thresholds), fitted, frame, facts.thresholds.confidence)]

    def predict(self, picture: Pixels) -> list[Result]:
        """Results for a BGR picture."""
        tensor, fitted = self.prepare(picture)
        return self.decode(self.run(tensor), fitted, (picture.shape[1], picture.shape[0]))


class Bare:
    """A model that prepares and decodes by itself, called with OpenCV's frames.

    Args:
        loaded: The model, loaded.
        name: For people.
    """

    def __init__(self, loaded: LoadedModel, name: str) -> None:
        self._loaded, self.name = loaded, name

    def predict(self, picture: Pixels) -> Sequence[Result]:
        """Results for a BGR picture."""
        return self._loaded.predict(FrameBatch.of([picture], "bgr"))[0]


class _Torchvision:
    """A detection network of torchvision: a list of pictures in, a list of dicts out."""

    def __init__(self, target: str, confidence: float) -> None:
        self._torch = _library("torch", "torch")
        module: Any = ModelSpec(f"{target}", "python", *target.rsplit(":", 1)).target_object()
        self._net = module() if not hasattr(module, "eval") or isinstance(module, type) else module
        self._net.eval()
        self._least, self.name = confidence, f"torchvision's own {type(self._net).__name__}"

    def predict(self, picture: Pixels) -> Sequence[Result]:
        values = self._torch.from_numpy(picture[..., ::-1].transpose(2, 0, 1).copy()).float() / 255
        with self._torch.inference_mode():
            found = to_result(self._net([values])[0])
        if isinstance(found, Detections):
            found = found[found.confidence >= self._least]
        return [] if found is None else [found]


class _Transformers:
    """An object detector of transformers from a folder, with its own image processor."""

    def __init__(self, folder: str, confidence: float) -> None:
        self._torch, library = _library("torch", "torch"), _library("transformers", "transformers")
        self._processor = library.AutoImageProcessor.from_pretrained(folder, local_files_only=True)
        self._net = library.AutoModelForObjectDetection.from_pretrained(folder, local_files_only=True).eval()
        self._least, self.name = confidence, f"transformers' own {type(self._net).__name__}"

    def predict(self, picture: Pixels) -> Sequence[Result]:
        rgb = np.ascontiguousarray(picture[..., ::-1])
        with self._torch.inference_mode():
            outputs = self._net(**self._processor(images=rgb, return_tensors="pt"))
        sizes = self._torch.tensor([rgb.shape[:2]])
        found = self._processor.post_process_object_detection(outputs, threshold=self._least, target_sizes=sizes)
        result = to_result(found[0])
        return [] if result is None else [result]


def open_reference(kind: str, loaded: LoadedModel, target: str, device: Device) -> Reference:
    """The reference of a kind for a loaded model.

    Args:
        kind: One of ``KINDS``.
        loaded: The model as the pipeline runs it.
        target: The library's own name for the model, where it differs; or empty.
        device: Where it runs.

    Raises:
        ConfigError: The kind does not fit the model.
        MissingDependencyError: The library is not installed.
    """
    model = loaded.model
    spec = ModelSpec.parse(loaded.text)
    network = isinstance(model, NetworkModel)
    if kind == "auto":
        kind = _automatic(model, bool(target))
    if kind == "onnxruntime" and network:
        return Loop(model)  # type: ignore[arg-type]
    if kind == "runtime":
        return Loop(model, "runtime")  # type: ignore[arg-type]
    if kind == "model":
        return Bare(loaded, "the model itself on OpenCV's frames")
    confidence = model.thresholds.confidence if isinstance(model, NetworkModel) else _confidence(model)
    if kind == "ultralytics":
        return _ultralytics(model, target or spec.target, device)
    if kind == "rfdetr":
        own = ModelSpec.parse(f"rfdetr:{target or spec.target}").build(confidence_threshold=confidence)
        return _bare(own, f"rfdetr:{target or spec.target}", "RF-DETR's own predictor", device)
    if kind in ("torchvision", "transformers"):
        if not target:
            what = "module:factory of the network" if kind == "torchvision" else "FOLDER of the model"
            raise ConfigError(f"--reference {kind} needs to know the model", hint=f"set --reference-model to {what}")
        return (_Torchvision if kind == "torchvision" else _Transformers)(target, confidence)
    raise ConfigError(f"--reference {kind} cannot run {loaded.text}", hint="use --reference auto")


def _automatic(model: Any, named: bool) -> str:
    if not isinstance(model, NetworkModel):
        return "model"
    info, head, runtime = model.parts
    if not isinstance(runtime, OnnxRuntime):
        return "runtime" if head.name in READERS else "model"
    if "task" in info.metadata and find_spec("ultralytics") is not None:
        return "ultralytics"
    return "onnxruntime" if head.name in READERS else "model"


def _confidence(model: Any) -> float:
    value = getattr(model, "confidence_threshold", None)
    return 0.25 if value is None else float(value)


def _ultralytics(model: Any, path: str, device: Device) -> Bare:
    options: dict[str, Any] = {}
    if isinstance(model, NetworkModel):
        kept, (width, height) = model.thresholds, model.preprocessing.size
        options = {
            "confidence_threshold": kept.confidence,
            "iou_threshold": kept.iou,
            "class_agnostic": kept.class_agnostic,
            "max_detections": kept.limit,
            "input_size": f"{width}x{height}",
        }
    else:
        options["confidence_threshold"] = _confidence(model)
    return _bare(UltralyticsModel(path, **options), f"ultralytics:{path}", "Ultralytics' own predictor", device)


def _bare(model: Any, text: str, name: str, device: Device) -> Bare:
    loaded = LoadedModel(model, text)
    loaded.load(device)
    return Bare(loaded, name)


def _library(name: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(name, extra=extra, purpose=f"--reference {extra}") from error


def _session(runtime: OnnxRuntime, model: NetworkModel) -> Any:
    import onnxruntime

    from gstinfer.models.onnx_sizes import free_sizes

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    file = runtime.path.read_bytes()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    # A file that was exported at one size and that the model runs at any: its sizes are made free here too.
    fixed = [d for d in session.get_inputs()[0].shape if isinstance(d, int)]
    if len(fixed) == 4 and None in runtime.info.inputs[0].shape:
        session = onnxruntime.InferenceSession(free_sizes(file), options, providers=["CPUExecutionProvider"])
    return session


def _recipe(model: NetworkModel) -> Recipe:
    """The family's own recipe, but for what the user, the file or the input's type decided otherwise."""
    info, head, _ = model.parts
    recipe, spec = recipe_of(head.name, info), model.preprocessing
    reasons = {what: why for what, _, why in model.describe()}
    usual = ("the usual", f"what head {head.name} is trained with")
    said: dict[str, tuple[str, Any]] = {
        "fit": ("resize", spec.resize),
        "pad": ("pad-value", spec.pad_value),
        "color": ("color", spec.color),
        "scale": ("scale", spec.scale),
        "mean": ("mean", spec.mean),
        "std": ("std", spec.std),
    }
    return replace(recipe, **{name: value for name, (key, value) in said.items() if reasons.get(key) not in usual})


def _result(
    output: Output, kept: Sequence[Candidate], fitted: Fitted, frame: tuple[int, int], least: float
) -> Result:
    """What a frame's candidates are in its own pixels."""
    if output.probabilities is not None:
        order = np.argsort(-output.probabilities, kind="stable")[:BEST]
        order = order[output.probabilities[order] >= least]
        return Classifications(order.astype(np.int32), output.probabilities[order].astype(np.float32))
    if output.class_map is not None:
        return SegmentationMap(_whole_map(output.class_map, fitted).astype(np.int32))
    limits = np.array([*frame, *frame], np.float64)
    rotated = any(c.angle is not None for c in kept)
    if rotated:
        boxes = [[*fitted.back(c.box[:2]), *(c.box[2:] / fitted.factor[0]), c.angle] for c in kept]
        whole = Detections(None, obb=np.array(boxes, np.float32))  # type: ignore[arg-type]
        corners = whole.xyxy.astype(np.float64)
    else:
        corners = np.array([fitted.back(c.box.reshape(2, 2)).ravel() for c in kept]).reshape(-1, 4)
    corners = np.clip(corners, 0, limits)
    real = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    kept, corners = [c for c, good in zip(kept, real) if good], corners[real]
    columns: dict[str, Any] = {}
    if rotated:
        columns["obb"] = np.array(boxes, np.float32)[real]
    if kept and kept[0].points is not None:
        columns["keypoints"] = [np.column_stack([fitted.back(c.points[:, :2]), c.points[:, 2]]) for c in kept]  # type: ignore[index]
    if output.prototypes is not None and kept:
        columns["mask"] = [_mask(c, output.prototypes, box, fitted, frame) for c, box in zip(kept, corners)]
    return Detections(corners, [c.score for c in kept], [c.class_id for c in kept], **columns)  # type: ignore[arg-type]


def _mask(
    candidate: Candidate,
    prototypes: NDArray[np.float64],
    box: NDArray[np.float64],
    fitted: Fitted,
    frame: tuple[int, int],
) -> Mask:
    """The mask enlarged to the frame, then cut to its box."""
    import cv2

    assert candidate.coefficients is not None
    logits = np.tensordot(candidate.coefficients, prototypes, 1).astype(np.float32)
    height, width = fitted.canvas.shape[:2]
    left, top, right, bottom = fitted.inner
    large = cv2.resize(logits, (width, height))[top:bottom, left:right]
    return Mask.from_frame(cv2.resize(large, frame) > 0, box.tolist())


def _whole_map(classes: NDArray[np.int64], fitted: Fitted) -> NDArray[np.int64]:
    """The picture's part of a map over the input."""
    height, width = fitted.canvas.shape[:2]
    down, across = classes.shape[0] / height, classes.shape[1] / width
    left, top, right, bottom = fitted.inner
    part: NDArray[np.int64] = classes[round(top * down) : round(bottom * down), round(left * across) : round(right * across)]
    return part
