"""MoveNet multipose: six people with 17 keypoints and a box each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, shapes
from gstinfer.results import Detections, Result

__all__ = ["MoveNetHead"]

KEYPOINTS = 17


class MoveNetHead(Head):
    """``[B,6,56]``: 17 times (y, x, score), then ymin, xmin, ymax, xmax, score, all 0..1 of the padded input."""

    name = "movenet"
    thresholds = Thresholds(confidence=0.25)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        output = next((o for o in info.outputs if len(o.shape) == 3 and o.shape[2] == 3 * KEYPOINTS + 5), None)
        if output is None:
            raise ConfigError(f"head=movenet needs an output [B,6,56], got {shapes(info)}")
        self.output = output.name
        self.labels = class_names(info) or ("person",)
        check_labels(class_names(info), 1, "head=movenet")

    @classmethod
    def recognises(cls, info: NetworkInfo) -> bool:
        """Whether the shapes leave no doubt: six rows of 56 from an input of whole numbers, channels last."""
        picture = info.inputs[0] if info.inputs else None
        return (
            len(info.outputs) == 1
            and info.outputs[0].shape[1:] == (6, 3 * KEYPOINTS + 5)
            and picture is not None
            and picture.dtype in ("int32", "uint8")
            and len(picture.shape) == 4
            and picture.shape[3] == 3
        )

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {"resize": "letterbox", "pad_value": 0, "color": "rgb", "scale": 1.0, "layout": "NHWC"}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        results: list[Result | tuple[Result, ...]] = []
        for people, transform in zip(outputs[self.output], transforms):
            people = np.asarray(people[~(people[:, -1] < thresholds.confidence)], np.float32)
            people = people[np.argsort(-people[:, -1], kind="stable")][: thresholds.limit]
            size = np.array(transform.input_size, np.float32)
            points = people[:, : 3 * KEYPOINTS].reshape(-1, KEYPOINTS, 3)
            keypoints = np.concatenate([points[..., 1::-1] * size, points[..., 2:]], -1)
            boxes = people[:, [-4, -5, -2, -3]] * np.tile(size, 2)
            results.append(
                Detections(
                    transform.boxes_to_frame(boxes),
                    people[:, -1],
                    keypoints=transform.keypoints_to_frame(keypoints),
                )
            )
        return results
