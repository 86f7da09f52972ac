"""CenterFace: faces as points of a heatmap, with five landmarks each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, shapes
from gstinfer.heads.nms import nms
from gstinfer.results import Detections, Result

__all__ = ["CenterFaceHead"]

STRIDE = 4


class CenterFaceHead(Head):
    """Heatmap ``[B,1,h,w]``, log sizes and offsets ``[B,2,h,w]`` (y, x), landmarks ``[B,10,h,w]`` at stride 4.

    Landmarks are five (y, x) in units of the face. Sizes come before offsets in the file, unless names say otherwise.
    """

    name = "centerface"
    thresholds = Thresholds(confidence=0.35, iou=0.3)
    any_size = True

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        if not self.recognises(info):
            raise ConfigError(
                f"head=centerface needs four maps of 1, 2, 2 and 10 channels, got {shapes(info)}"
            )
        self.heat, self.marks = _of(info, 1)[0].name, _of(info, 10)[0].name
        sizes, offsets = _of(info, 2)
        if "off" in sizes.name.lower() or "scale" in offsets.name.lower():
            sizes, offsets = offsets, sizes
        self.sizes, self.offsets = sizes.name, offsets.name
        self.labels = class_names(info) or ("face",)
        check_labels(class_names(info), 1, "head=centerface")

    @classmethod
    def recognises(cls, info: NetworkInfo) -> bool:
        """Whether the outputs are maps of 1, 2, 2 and 10 channels."""
        channels = [o.shape[1] if len(o.shape) == 4 else None for o in info.outputs]
        return sorted(c or 0 for c in channels) == [1, 2, 2, 10]

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {"resize": "letterbox", "pad_value": 0, "color": "rgb", "scale": 1.0}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        results: list[Result | tuple[Result, ...]] = []
        for i, transform in enumerate(transforms):
            heat = outputs[self.heat][i, 0]
            ys, xs = np.nonzero(~(heat < thresholds.confidence))
            score = np.asarray(heat[ys, xs], np.float32)
            with np.errstate(over="ignore"):
                size = np.exp(outputs[self.sizes][i][:, ys, xs].T.astype(np.float32))[:, ::-1] * STRIDE
            offset = outputs[self.offsets][i][:, ys, xs].T[:, ::-1]
            centre = (np.stack([xs, ys], -1) + offset + 0.5).astype(np.float32) * STRIDE
            xyxy = np.concatenate([centre - size / 2, centre + size / 2], 1)
            marks = outputs[self.marks][i][:, ys, xs].T.reshape(-1, 5, 2)[..., ::-1]
            points = marks * size[:, None] + xyxy[:, None, :2]
            keypoints = np.concatenate([points, np.broadcast_to(score[:, None, None], (*points.shape[:2], 1))], -1)
            kept = nms(xyxy, score, np.zeros(len(score), np.int32), thresholds)
            results.append(
                Detections(
                    transform.boxes_to_frame(xyxy[kept]),
                    score[kept],
                    keypoints=transform.keypoints_to_frame(keypoints[kept]),
                )
            )
        return results


def _of(info: NetworkInfo, channels: int) -> list[TensorInfo]:
    return [o for o in info.outputs if o.shape[1] == channels]
