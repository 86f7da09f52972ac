"""Semantic segmentation: a class for every pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, shapes
from gstinfer.results import Result, SegmentationMap

__all__ = ["SemanticHead"]


class SemanticHead(Head):
    """Scores ``[B,C,h,w]`` (or ``[B,h,w,C]``), or finished class maps ``[B,h,w]`` and ``[B,1,h,w]`` of integers.

    One channel of floats is the probability or logit of class 1 against background. The map that comes out spans the
    frame: the padding is cut away, at the output's own resolution.
    """

    name = "semantic"
    layouts = True

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        names = class_names(info)
        self.labels = names
        maps = [o for o in info.outputs if len(o.shape) in (3, 4)]
        # torchvision's second output, aux, is for training.
        output = next((o for o in maps if o.name == "out"), next(iter(maps), None))
        if output is None:
            raise ConfigError(f"head=semantic needs an output [B,classes,h,w] or [B,h,w], got {shapes(info)}")
        self.output = output.name
        if len(output.shape) == 3:
            return
        first, last = output.shape[1], output.shape[3]
        if layout == "auto":
            self.layout = self._layout(first, last, names, info)
        columns = first if self.layout == "channels-first" else last
        if columns is not None and columns > 1:
            check_labels(names, columns, f"{output.name} of head=semantic")

    def _layout(
        self, first: int | None, last: int | None, names: tuple[str, ...] | None, info: NetworkInfo
    ) -> str:
        if "task" in info.metadata or last is None:
            return "channels-first"
        if names is not None and (first == len(names)) != (last == len(names)):
            return "channels-first" if first == len(names) else "channels-last"
        if first is not None and first != last:
            return "channels-first" if first < last else "channels-last"
        raise ConfigError(
            f"the output {shapes(info)} does not say on which axis its classes lie",
            hint="set layout=channels-first or layout=channels-last",
        )

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        if "task" in info.metadata:
            return {"resize": "letterbox", "scale": 1 / 255}
        return {"resize": "stretch", "scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        array = outputs[self.output]
        names = None if self.labels is None else list(class_names(self.info) or ())
        return [
            SegmentationMap(_content(self._classes(array[i]), transform), names)
            for i, transform in enumerate(transforms)
        ]

    def _classes(self, scores: NDArray[Any]) -> NDArray[np.int32]:
        if scores.ndim == 2:
            return scores.astype(np.int32)
        axis = 0 if self.layout == "channels-first" else 2
        if scores.shape[axis] > 1:
            return scores.argmax(axis).astype(np.int32)
        single = scores.squeeze(axis)
        if single.dtype.kind in "iub":
            return single.astype(np.int32)
        probability = not bool((single < 0).any() or (single > 1).any())
        return (single > (0.5 if probability else 0.0)).astype(np.int32)


def _content(classes: NDArray[np.int32], transform: ImageTransform) -> NDArray[np.int32]:
    """The part of a map ``[h,w]`` over the input that shows the picture, without the padding.

    Where the input shows only the middle of the frame, no class is said of the rest.
    """
    height, width = classes.shape
    in_w, in_h = transform.input_size
    columns = _centres(transform.content[0], transform.pad[0], in_w, width)
    rows = _centres(transform.content[1], transform.pad[1], in_h, height)
    content: NDArray[np.int32] = classes[rows[:, None], columns]
    (frame_w, frame_h), (width, height) = transform.frame_size, transform.region
    if (width, height) == (frame_w, frame_h):
        return content
    rows_all, columns_all = round(len(content) * frame_h / height), round(len(content[0]) * frame_w / width)
    top, left = round(transform.origin[1] * rows_all / frame_h), round(transform.origin[0] * columns_all / frame_w)
    whole = np.full((rows_all, columns_all), -1, np.int32)
    whole[top : top + len(content), left : left + len(content[0])] = content[: rows_all - top, : columns_all - left]
    return whole


def _centres(content: int, pad: int, whole: int, cells: int) -> NDArray[np.int64]:
    """Cells of an axis nearest to the middles of as many equal parts of the content."""
    parts = max(1, round(content * cells / whole))
    middles = pad + (np.arange(parts) + 0.5) * content / parts
    return np.clip((middles * cells / whole).astype(np.int64), 0, cells - 1)
