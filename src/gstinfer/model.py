"""The model a user writes, the spec that names one, and the checked form in which the rest of the package runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gstinfer import gpu
from gstinfer.convert import to_result
from gstinfer.errors import GstInferError, ModelError, ModelLoadError, PredictError, ResultError
from gstinfer.frames import FrameBatch
from gstinfer.image import Device
from gstinfer.modelbase import Model
from gstinfer.modelspec import ModelSpec, construct
from gstinfer.results import Classifications, Detections, Result
from gstinfer.sanitize import Dropped, clip_batch, sanitize

__all__ = ["LoadedModel", "Model", "ModelSpec", "as_model"]


class LoadedModel:
    """A model with its results checked: what the runner and ``as_model`` drive.

    Args:
        model: The model.
        text: Its spec, for messages.
        labels: Class names that override the model's own; either may be changed while it runs.
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
        gpu.require(device)
        loaded = False
        try:
            self.model.load(device)
            loaded = True
            warmup = getattr(self.model, "warmup", None)
            if callable(warmup):
                warmup()
        except (Exception, SystemExit) as error:
            if loaded:
                self.model.close()
            if isinstance(error, GstInferError):
                raise
            raise ModelLoadError(f"{self.text} failed to load on {device}: {type(error).__name__}: {error}") from error
        self.device = device

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
            raise PredictError(f"{self.text} is not loaded", hint="load it first; a closed model must be loaded again")
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
        except (Exception, SystemExit) as error:
            raise PredictError(f"{self.text}.{name}() raised {type(error).__name__}: {error}") from error

    def _check(self, raw: Any, batch: FrameBatch) -> list[tuple[Result, ...]]:
        if raw is None:
            raw = [None] * len(batch)
        if not isinstance(raw, (list, tuple)):
            # A lone Detections has a length too, and it is the number of objects.
            raise ResultError(
                f"{self.text}.predict() returned a {type(raw).__name__}, expected a list with one result per frame",
                hint="return [result] for a batch of one",
            )
        if len(raw) != len(batch):
            raise ResultError(
                f"{self.text}.predict() returned {len(raw)} results for a batch of {len(batch)}",
                hint="return one result per frame",
            )
        if all(type(item) is Detections and _plain(item) for item in raw):
            clipped = clip_batch(list(raw), [frame.image.size for frame in batch])
            return [
                self._checked(item, frame) if clean is None else (self._named(clean),)
                for clean, item, frame in zip(clipped, raw, batch)
            ]
        return [self._checked(item, frame) for item, frame in zip(raw, batch)]

    def _named(self, result: Detections) -> Detections:
        if self.confidence is not None:
            result = result[result.confidence >= self.confidence]
        return result.named(self._labels(result))

    def _labels(self, result: Detections | Classifications) -> Sequence[str] | Mapping[int, str] | None:
        labels = self.model.labels if self.labels is None else self.labels
        if result.label is None and labels and not isinstance(labels, Mapping):
            beyond = int((result.class_id >= len(labels)).sum())
            if beyond:
                self.dropped["unnamed"] += beyond
        return labels

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
            if isinstance(result, Detections):
                result = self._named(result)
            elif isinstance(result, Classifications):
                if self.confidence is not None:
                    result = result[result.confidence >= self.confidence]
                result = result.named(self._labels(result))
            checked.append(result)
        return tuple(checked)

    def close(self) -> None:
        """Closes the model, once."""
        if self.device is not None:
            self.device = None
            self.model.close()


def _plain(result: Detections) -> bool:
    return result.obb is None and result.keypoints is None and result.attributes is None


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
        loaded = LoadedModel(construct(model, arguments, name), name)
    loaded.load(device)
    return _Predictor(loaded)


