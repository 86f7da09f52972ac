"""YOLOX: anchor-free with objectness, raw grid offsets or decoded boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.heads.facts import STRIDES, check_labels, class_names, shapes
from gstinfer.heads.nms import nms
from gstinfer.results import Detections, Result

__all__ = ["YoloxHead"]

LARGEST_LOG = 8.0
"""Above this a width is pixels: exp(8) cells would be wider than any input."""


class YoloxHead(Head):
    """``[B,N,5+nc]``: cx, cy, w, h, objectness, classes, the last two as probabilities.

    Raw boxes are offsets to the cell and logarithms of the size in cells. Which of the two it is shows in the sizes:
    pixels are never negative, and the logarithms of N cells never reach 8.
    """

    name = "yolox"
    thresholds = Thresholds(confidence=0.3, iou=0.45)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        output = next((o for o in info.outputs if len(o.shape) == 3), None)
        if output is None or (output.shape[2] is not None and output.shape[2] < 6):
            raise ConfigError(f"head=yolox needs an output [B,N,5+classes], got {shapes(info)}")
        self.output = output.name
        self.labels = class_names(info)
        if output.shape[2] is not None:
            check_labels(class_names(info), output.shape[2] - 5, f"{output.name} of head=yolox")

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {"resize": "letterbox-topleft", "pad_value": 114, "color": "bgr", "scale": 1.0}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        results: list[Result | tuple[Result, ...]] = []
        for rows, transform in zip(outputs[self.output], transforms):
            sizes = rows[:, 2:4]
            decoded = bool(sizes.max() > LARGEST_LOG and sizes.min() >= 0)
            index = np.flatnonzero(~(rows[:, 4] < thresholds.confidence))
            picked = np.asarray(rows[index], np.float32)
            score = picked[:, 4] * picked[:, 5:].max(1, initial=-np.inf)
            good = ~(score < thresholds.confidence)
            picked, score, index = picked[good], score[good], index[good]
            centre, size = picked[:, :2], picked[:, 2:4]
            if not decoded:
                cells, stride = _grid(transform.input_size, len(rows))
                centre = (centre + cells[index]) * stride[index]
                with np.errstate(over="ignore"):
                    size = np.exp(size) * stride[index]
            xyxy = np.concatenate([centre - size / 2, centre + size / 2], 1)
            class_id = picked[:, 5:].argmax(1)
            kept = nms(xyxy, score, class_id, thresholds)
            results.append(Detections(transform.boxes_to_frame(xyxy[kept]), score[kept], class_id[kept]))
        return results


@lru_cache(maxsize=16)
def _grid(size: tuple[int, int], count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cells ``[N,2]`` (x, y) and strides ``[N,1]`` of the raw candidates.

    Raises:
        ConfigError: No known set of strides gives that many for the input.
    """
    for strides in STRIDES:
        cells, steps = [], []
        for stride in strides:
            xs, ys = np.meshgrid(np.arange(-(-size[0] // stride)), np.arange(-(-size[1] // stride)))
            cells.append(np.stack([xs, ys], -1).reshape(-1, 2))
            steps.append(np.full((xs.size, 1), stride))
        if sum(map(len, cells)) == count:
            return np.concatenate(cells).astype(np.float32), np.concatenate(steps).astype(np.float32)
    raise ConfigError(
        f"{count} raw candidates of head=yolox do not fit an input of {size[0]}x{size[1]}", hint="check input-size="
    )
