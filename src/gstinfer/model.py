"""The model a user writes, the spec that names one, and the checked form in which the rest of the package runs it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gstinfer import registry
from gstinfer.convert import to_result
from gstinfer.errors import ConfigError, ModelError, ModelLoadError, PredictError, ResultError, UnknownNameError
from gstinfer.frames import FrameBatch
from gstinfer.image import Device
from gstinfer.results import Classifications, Detections, Result
from gstinfer.sanitize import Dropped, sanitize
from gstinfer.settings import Settings

__all__ = ["LoadedModel", "Model", "ModelSpec", "as_model"]

SUFFIXES = {
    ".onnx": "onnx",
    ".engine": "tensorrt",
    ".plan": "tensorrt",
    ".pt2": "torch",
    ".torchscript": "torch",
    ".tflite": "tflite",
    ".xml": "openvino",
}
"""File ending -> runtime."""


class Model(Settings, ABC):
    """A network and everything around it. Users subclass it; every method but ``predict`` has a default.

    Attributes:
        labels: Class names by index, or None when unknown.
        max_batch: Most frames that one ``predict`` takes, or None for any number.
    """

    labels: Sequence[str] | Mapping[int, str] | None = None
    max_batch: int | None = None

    def load(self, device: Device) -> None:
        """Opens the network on a device; called once, off the streaming thread's hot path."""

    @abstractmethod
    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        """One result per frame, in order: any kind of ``results``, a tuple of them, a foreign result, or None."""

    def close(self) -> None:
        """Lets go of the network."""


class _Wrapped(Model):
    """A plain function or an object with ``predict`` as a Model."""

    def __init__(self, target: Any, predict: Any) -> None:
        super().__init__()
        self._target, self._predict = target, predict
        self.labels = getattr(target, "labels", None)
        self.max_batch = getattr(target, "max_batch", None)
        for name in ("warmup",):
            if callable(getattr(target, name, None)):
                setattr(self, name, getattr(target, name))

    def load(self, device: Device) -> None:
        if callable(getattr(self._target, "load", None)):
            self._target.load(device)
        self.labels = getattr(self._target, "labels", self.labels)

    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        result: Sequence[Any] = self._predict(batch)
        return result

    def close(self) -> None:
        if callable(getattr(self._target, "close", None)):
            self._target.close()


@dataclass(frozen=True)
class ModelSpec:
    """What a ``model=`` text names.

    Forms: a ready model (``nanodet-coco``), ``runtime:target`` (``onnx:yolo.onnx``), a file whose ending names its runtime
    (``yolo.onnx``), ``module:Name`` and ``path/to/file.py:Name``.

    Attributes:
        text: As the user wrote it.
        kind: ``"ready"``, ``"runtime"`` or ``"python"``.
        name: Ready model, runtime, or module or file.
        target: File or address for a runtime; attribute for Python.
    """

    text: str
    kind: str
    name: str
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Reads a spec.

        Raises:
            ConfigError: Empty.
            UnknownNameError: Neither a ready model, a known ending nor ``module:Name``.
        """
        text = text.strip()
        if not text:
            raise ConfigError(
                "no model is set", hint="set model=nanodet-coco, model=FILE.onnx or model=my_models:MyModel"
            )
        if text in registry.names("model"):
            return cls(text, "ready", text)
        head, colon, rest = text.partition(":")
        if colon and head in registry.names("runtime"):
            return cls(text, "runtime", head, rest)
        suffix = Path(text).suffix.lower()
        if suffix in SUFFIXES:
            return cls(text, "runtime", SUFFIXES[suffix], text)
        module, colon, attribute = text.rpartition(":")
        if colon and module and attribute and "/" not in attribute:
            return cls(text, "python", module, attribute)
        if suffix == ".py":
            raise ConfigError(f"the model {text!r} names a file but no class in it", hint=f"write {text}:ClassName")
        if suffix in (".pt", ".pth"):
            raise ConfigError(
                f"the model {text!r} is a PyTorch checkpoint, which does not say how to build its network",
                hint=f"use ultralytics:{text}, or a module:Name that loads it",
            )
        raise UnknownNameError(
            "model",
            text,
            registry.names("model"),
            hint="or give a file (" + ", ".join(sorted(SUFFIXES)) + "), module:Name or file.py:Name",
        )

    def build(self, **arguments: Any) -> Model:
        """Makes the model, not yet loaded. Arguments go to the user's class or factory.

        Raises:
            ModelLoadError: File, module or name missing, or the constructor raised.
            ConfigError: An argument that the model does not take; the message lists those it takes.
        """
        if self.kind == "ready":
            return _construct(registry.find("model", self.name), arguments, self.text)
        if self.kind == "runtime":
            factory = registry.find("runtime", self.name)
            return _construct(factory, {"path": self.target, **arguments}, self.text)
        return _construct(_attribute(self), arguments, self.text)


def _attribute(spec: ModelSpec) -> Any:
    """The Python object a spec names; the current folder is searched first."""
    path = Path(spec.name)
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise ModelLoadError(
                    f"the model file {spec.name!r} does not exist", hint=f"looked in {Path.cwd()}"
                )
            module = _load_file(path)
        else:
            here = str(Path.cwd())
            if sys.path[:1] != [here]:
                sys.path.insert(0, here)
            module = importlib.import_module(spec.name)
    except ModelLoadError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if spec.name == missing or spec.name.startswith(missing + "."):
            raise ModelLoadError(
                f"the model {spec.text!r} needs a module {spec.name!r}, which is not found",
                hint=f"looked in {Path.cwd()} and on Python's path",
            ) from error
        raise ModelLoadError(
            f"importing {spec.name!r} failed: {error}", hint=f"pip install the package that brings {missing!r}"
        ) from error
    except Exception as error:
        raise ModelLoadError(f"importing {spec.name!r} failed: {type(error).__name__}: {error}") from error
    target: Any = module
    for part in spec.target.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            public = [n for n in vars(module) if not n.startswith("_")]
            raise ModelLoadError(
                f"{spec.name!r} has no {spec.target!r}", hint=f"it has {', '.join(public[:20]) or 'nothing public'}"
            ) from None
    return target


def _load_file(path: Path) -> Any:
    """A file's module under a private name, so that two files of one name do not collide; its folder is importable."""
    path = path.resolve()
    name = f"_gstinfer_user_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ModelLoadError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _construct(target: Any, arguments: dict[str, Any], text: str) -> Model:
    """Calls a class or factory, or wraps a function or object."""
    if isinstance(target, type) or (callable(target) and _is_factory(target)):
        arguments = _fitting(target, arguments, text)
        try:
            target = target(**arguments)
        except ModelError:
            raise
        except ConfigError:
            raise
        except Exception as error:
            raise ModelLoadError(f"{text} could not be made: {type(error).__name__}: {error}") from error
        arguments = {}
    if isinstance(target, Model):
        target.update(arguments)
        return target
    if arguments:
        raise UnknownNameError("model argument", next(iter(arguments)), [], hint=f"{text} takes none")
    if callable(getattr(target, "predict", None)):
        return _Wrapped(target, target.predict)
    if callable(target):
        return _Wrapped(target, target)
    raise ModelLoadError(
        f"{text} is a {type(target).__name__}, not a model",
        hint="name a Model subclass, a function predict(batch), or an object with a predict method",
    )


def _is_factory(target: Any) -> bool:
    """A function that makes a model rather than being one: no required positional parameter."""
    if isinstance(target, Model) or hasattr(target, "predict"):
        return False
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return not any(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters) and not any(
        p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters
    )


def _fitting(target: Any, arguments: dict[str, Any], text: str) -> dict[str, Any]:
    """The arguments under Python names, checked against what a class or factory takes."""
    arguments = {key.replace("-", "_"): value for key, value in arguments.items()}
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return arguments
    known = {n for n, p in parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        if not (isinstance(target, type) and issubclass(target, Settings)):
            return arguments
        known |= set(target.options())
    for key in arguments:
        if key not in known:
            raise UnknownNameError("model argument", key, known - {"path"}, hint="" if known else f"{text} takes none")
    return arguments


class LoadedModel:
    """A model with its results checked: what the runner and ``as_model`` drive.

    Args:
        model: The model.
        text: Its spec, for messages.
        labels: Class names that override the model's own.
        confidence: Objects below are left out; None for the model's own threshold.
    """

    def __init__(
        self,
        model: Model,
        text: str,
        *,
        labels: Sequence[str] | Mapping[int, str] | None = None,
        confidence: float | None = None,
    ) -> None:
        self.model, self.text, self.labels, self.confidence = model, text, labels, confidence
        self.device: Device | None = None
        self.dropped = Dropped()

    def load(self, device: Device | str = "cpu") -> None:
        """Loads and warms the model. A user's ``predict`` is never called with made-up frames.

        Raises:
            ModelLoadError: ``load`` or ``warmup`` raised; the user's exception is the cause.
        """
        device = Device.parse(device)
        try:
            self.model.load(device)
            warmup = getattr(self.model, "warmup", None)
            if callable(warmup):
                warmup()
        except (ModelError, ConfigError):
            raise
        except Exception as error:
            if isinstance(error, ImportError) and hasattr(error, "hint"):
                raise
            raise ModelLoadError(f"{self.text} failed to load on {device}: {type(error).__name__}: {error}") from error
        self.device = device
        if self.labels is None:
            self.labels = self.model.labels

    @property
    def pipelined(self) -> bool:
        """Whether the model can work on a batch while another waits for its results."""
        return callable(getattr(self.model, "submit", None))

    def submit(self, batch: FrameBatch) -> Callable[[], list[tuple[Result, ...]]]:
        """Starts a batch; the callable that comes back waits for its checked results.

        A model with ``submit(batch)``, which gives an object with ``result()``, works on several batches at a time; any
        other has done its work when this returns.

        Raises:
            PredictError, ResultError: As ``predict``, here or from the callable.
        """
        if not self.pipelined or len(batch) > (self.model.max_batch or len(batch)):
            results = self.predict(batch)
            return lambda: results
        pending = self._calling("submit", batch, self.model.submit)  # type: ignore[attr-defined]

        def finish() -> list[tuple[Result, ...]]:
            return self._check(self._calling("submit", batch, lambda _: pending.result()), batch)

        return finish

    def predict(self, pictures: Any, color: str = "rgb") -> list[tuple[Result, ...]]:
        """Checked results, one tuple per frame; empty tuples where nothing was found.

        Args:
            pictures: A FrameBatch, frames, images or uint8 arrays.
            color: Channel order of bare arrays.

        Raises:
            PredictError: The model raised.
            ResultError: What it returned cannot be used.
        """
        if self.device is None:
            self.load()
        batch = FrameBatch.of(pictures, color)
        limit = self.model.max_batch or len(batch) or 1
        results: list[tuple[Result, ...]] = []
        for start in range(0, len(batch), limit):
            part = FrameBatch(batch.frames[start : start + limit])
            results += self._check(self._calling("predict", part, self.model.predict), part)
        return results

    def _calling(self, name: str, batch: FrameBatch, method: Callable[[FrameBatch], Any]) -> Any:
        try:
            return method(batch)
        except ModelError:
            raise
        except Exception as error:
            raise PredictError(f"{self.text}.{name}() raised {type(error).__name__}: {error}") from error

    def _check(self, raw: Any, batch: FrameBatch) -> list[tuple[Result, ...]]:
        if raw is None:
            raw = [None] * len(batch)
        try:
            count = len(raw)
        except TypeError:
            raise ResultError(
                f"{self.text}.predict() returned a {type(raw).__name__}, expected a list with one result per frame"
            ) from None
        if count != len(batch):
            raise ResultError(
                f"{self.text}.predict() returned {count} results for a batch of {len(batch)}",
                hint="return one result per frame",
            )
        return [self._checked(item, frame) for item, frame in zip(raw, batch)]

    def _checked(self, item: Any, frame: Any) -> tuple[Result, ...]:
        checked: list[Result] = []
        for part in item if isinstance(item, tuple) else (item,):
            try:
                result = to_result(part)
            except ResultError as error:
                raise ResultError(f"{self.text}.predict(): {error.message}", hint=error.hint) from error
            if result is None:
                continue
            result = sanitize(result, frame.width, frame.height, self.dropped)
            if isinstance(result, Detections) and self.confidence is not None:
                result = result[result.confidence >= self.confidence]
            if isinstance(result, (Detections, Classifications)):
                result = result.named(self.labels)
            checked.append(result)
        return tuple(checked)

    def close(self) -> None:
        """Closes the model, once."""
        if self.device is not None:
            self.device = None
            self.model.close()


class _Predictor:
    """A model run with no pipeline."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    @property
    def model(self) -> Model:
        return self.loaded.model

    def predict(self, pictures: Any, color: str = "rgb") -> list[Any]:
        """One result per picture: the single kind the model gives, a tuple of several, or None.

        Args:
            pictures: uint8 arrays (H x W x 3), images, frames, or a batch.
            color: Channel order of bare arrays.
        """
        results = self.loaded.predict(pictures, color)
        return [None if not r else r[0] if len(r) == 1 else r for r in results]

    def close(self) -> None:
        self.loaded.close()

    def __enter__(self) -> _Predictor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_model(model: Any, device: Device | str = "cpu", **arguments: Any) -> _Predictor:
    """Any model, ready to predict without a pipeline.

    Args:
        model: A spec such as ``"nanodet-coco"`` or ``"my_models:Yolo"``, a Model, a function or an object with ``predict``.
        device: ``"cpu"`` or ``"cuda:N"``.
        **arguments: Settings for the model.

    Raises:
        ConfigError, ModelLoadError: It cannot be found, made or loaded.
    """
    if isinstance(model, str):
        spec = ModelSpec.parse(model)
        loaded = LoadedModel(spec.build(**arguments), spec.text)
    else:
        name = getattr(model, "__name__", type(model).__name__)
        loaded = LoadedModel(_construct(model, arguments, name), name)
    loaded.load(device)
    return _Predictor(loaded)


