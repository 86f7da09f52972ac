"""NanoDet and PicoDet: generalised focal loss heads, a score map and box distances as distributions per stride."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, input_size, rows_above, shapes
from gstinfer.heads.nms import nms
from gstinfer.results import Detections, Result

__all__ = ["GflHead", "pair_outputs"]

BINS = (8, 11, 17)
"""Bins a side of NanoDet and PicoDet (8), of NanoDet-g (11) and of the GFL paper (17)."""
STRIDES = (4, 8, 16, 32, 64, 128)
SCORE_WORDS, BOX_WORDS = ("cls", "score", "class"), ("dis", "reg", "box", "dfl")


@dataclass(frozen=True)
class _Level:
    scores: str
    boxes: str
    stride: int


def pair_outputs(info: NetworkInfo) -> list[_Level]:
    """The score and distance outputs of every stride, matched by shape.

    Raises:
        ConfigError: The outputs are not pairs ``[B,n,nc]`` and ``[B,n,4*bins]`` over one grid per stride.
    """
    groups: dict[int, list[TensorInfo]] = {}
    for output in info.outputs:
        if len(output.shape) == 3 and output.shape[1] and output.shape[2]:
            groups.setdefault(output.shape[1], []).append(output)
    size = input_size(info)
    if size is None or len(groups) < 2 or sum(map(len, groups.values())) != len(info.outputs):
        raise _misfit(info)
    counts = {-(-size[0] // s) * -(-size[1] // s): s for s in reversed(STRIDES)}
    if any(len(pair) != 2 or n not in counts for n, pair in groups.items()):
        raise _misfit(info)
    levels = []
    columns: set[tuple[int | None, int | None]] = set()
    for n, (first, second) in groups.items():
        scores, boxes = (first, second) if _is_scores(first, second, info) else (second, first)
        columns.add((scores.shape[2], boxes.shape[2]))
        levels.append(_Level(scores.name, boxes.name, counts[n]))
    if len(columns) != 1:
        raise _misfit(info)
    return sorted(levels, key=lambda level: level.stride)


def _is_scores(first: TensorInfo, second: TensorInfo, info: NetworkInfo) -> bool:
    """Whether the first of a pair holds the scores: by labels, by names, by the usual numbers of bins."""
    widths = (first.shape[2], second.shape[2])
    labels = class_names(info)
    if labels is not None and (widths[0] == len(labels)) != (widths[1] == len(labels)):
        return widths[0] == len(labels)
    for words, answer in ((SCORE_WORDS, True), (BOX_WORDS, False)):
        hits = [any(word in output.name.lower() for word in words) for output in (first, second)]
        if hits[0] != hits[1]:
            return hits[0] is answer
    boxes = [width % 4 == 0 for width in widths if width]
    if boxes[0] != boxes[1]:
        return boxes[1]
    usual = [width in [4 * b for b in BINS] for width in widths]
    if usual[0] != usual[1]:
        return usual[1]
    raise ConfigError(
        f"the outputs {shapes(info)} of head=gfl do not say which are scores and which are box distances",
        hint="give the class names with labels=",
    )


def _misfit(info: NetworkInfo) -> ConfigError:
    return ConfigError(
        f"head=gfl needs two outputs per stride, scores [B,n,classes] and distances [B,n,4*bins] with n the cells "
        f"of that stride, got {shapes(info)}",
        hint="set head= to the network's own family, or give a fixed input size",
    )


class GflHead(Head):
    """Scores are probabilities or logits (seen from their sign); a point lies at the middle of its cell."""

    name = "gfl"
    thresholds = Thresholds(confidence=0.4, iou=0.6)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        self.levels = pair_outputs(info)
        self.labels = class_names(info)
        columns = next(o.shape[2] for o in info.outputs if o.name == self.levels[0].scores)
        check_labels(class_names(info), int(columns or 0), "the scores of head=gfl")

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {
            "resize": "letterbox",
            "pad_value": 114,
            "color": "bgr",
            "scale": 1.0,
            "mean": (103.53, 116.28, 123.675),
            "std": (57.375, 57.12, 58.395),
        }

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        return [self._frame(outputs, i, transform, thresholds) for i, transform in enumerate(transforms)]

    def _frame(
        self, outputs: Mapping[str, NDArray[Any]], index: int, transform: ImageTransform, thresholds: Thresholds
    ) -> Detections:
        # The coarsest map is the smallest: no probability is negative, and among logits some always are.
        logits = bool((outputs[self.levels[-1].scores][index] < 0).any())
        least = float(_logit(thresholds.confidence)) if logits else thresholds.confidence
        boxes, scores, classes = [], [], []
        for level in self.levels:
            map_ = outputs[level.scores][index]
            rows = rows_above(map_, least)
            if not rows.size:
                continue
            picked = np.asarray(map_[rows], np.float32)
            scores.append(picked.max(1))
            classes.append(picked.argmax(1))
            points = _points(transform.input_size, level.stride)[rows]
            boxes.append(_boxes(np.asarray(outputs[level.boxes][index][rows], np.float32), points, level.stride))
        if not boxes:
            return Detections.empty()
        xyxy, score, class_id = np.concatenate(boxes), np.concatenate(scores), np.concatenate(classes)
        if logits:
            score = np.asarray(1 / (1 + np.exp(-score)), np.float32)
        kept = nms(xyxy, score, class_id, thresholds)
        return Detections(transform.boxes_to_frame(xyxy[kept]), score[kept], class_id[kept])


def _logit(probability: float) -> float:
    return float(np.log(max(probability, 1e-9) / max(1 - probability, 1e-9)))


@lru_cache(maxsize=64)
def _points(size: tuple[int, int], stride: int) -> NDArray[np.float32]:
    """Middles ``[n,2]`` of the cells of a stride, row by row."""
    xs, ys = np.meshgrid(np.arange(-(-size[0] // stride)), np.arange(-(-size[1] // stride)))
    return ((np.stack([xs, ys], -1).reshape(-1, 2) + 0.5) * stride).astype(np.float32)


def _boxes(distances: NDArray[np.float32], points: NDArray[np.float32], stride: int) -> NDArray[np.float32]:
    """Boxes ``[M,4]`` from distributions ``[M,4*bins]`` over the distances left, top, right, bottom of points."""
    bins = distances.shape[1] // 4
    weights = distances.reshape(-1, 4, bins)
    weights = np.exp(weights - weights.max(-1, keepdims=True))
    reach = (weights @ np.arange(bins, dtype=np.float32)) / weights.sum(-1) * stride
    return np.concatenate([points - reach[:, :2], points + reach[:, 2:]], 1).astype(np.float32)
