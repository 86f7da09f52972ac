"""Classification: one score per class for the whole picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, shapes
from gstinfer.results import Classifications, Result

__all__ = ["ClassifyHead", "YoloClsHead", "probabilities"]


def probabilities(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Rows ``[B,nc]`` that are none yet made probabilities: a softmax, unless they are positive and sum to one.

    Quantised rows are read at the fixed scale that TFLite gives a softmax: 1/256 from the least value on.
    """
    if scores.dtype.kind in "iu" and scores.dtype.itemsize == 1:
        scores = (scores.astype(np.float32) - np.iinfo(scores.dtype).min) / 256
        return scores.astype(np.float32)
    scores = np.asarray(scores, np.float32)
    with np.errstate(invalid="ignore"):
        applied = (scores >= 0).all(1) & (np.abs(scores.sum(1) - 1) < 0.02)
        # A quantised softmax loses what is below its step, and with many classes most of the sum.
        steps = scores * 256
        applied |= ((steps >= 0) & (steps <= 256) & (steps == np.rint(steps))).all(1)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        softmax = weights / weights.sum(1, keepdims=True)
    return np.where(applied[:, None], scores, softmax).astype(np.float32)


class ClassifyHead(Head):
    """``[B,nc]`` or ``[B,nc,1,1]``, softmax applied or not; the best five classes.

    Networks of float pixels are fed as torchvision's are, with ImageNet's mean and deviation and the middle of the picture;
    those of whole numbers as TensorFlow Lite's task library does, with all of it.
    """

    name = "classify"
    thresholds = Thresholds(confidence=0.0, limit=5)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        self.labels = class_names(info)
        output = next((o for o in info.outputs if _flat(o.shape)), None)
        if output is None:
            raise ConfigError(f"head={self.name} needs an output [B,classes], got {shapes(info)}")
        self.output = output.name
        columns = [d for d in output.shape[1:] if d != 1]
        if columns and columns[0] is not None:
            check_labels(class_names(info), columns[0], f"{output.name} of head={self.name}")

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        if info.inputs and info.inputs[0].dtype in ("uint8", "int32"):
            return {"resize": "stretch", "scale": 1.0}
        return {"resize": "crop", "scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        array = outputs[self.output][: len(transforms)]
        scores = probabilities(array.reshape(len(array), -1))
        best = np.argsort(-scores, axis=1, kind="stable")[:, : thresholds.limit]
        results: list[Result | tuple[Result, ...]] = []
        for row, order in zip(scores, best):
            order = order[~(row[order] < thresholds.confidence)]
            results.append(Classifications(order, row[order]))
        return results


def _flat(shape: Sequence[int | None]) -> bool:
    return len(shape) == 2 or (len(shape) > 2 and sum(d != 1 for d in shape[1:]) <= 1)


class YoloClsHead(ClassifyHead):
    """Ultralytics' classifiers: the middle of the picture, pixels 0..1 without mean and deviation."""

    name = "yolo-cls"

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {"resize": "crop", "scale": 1 / 255}
