"""SSD of the TensorFlow detection zoo: decoded boxes and class probabilities per anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.coco import COCO91
from gstinfer.heads.facts import check_labels, class_names, rows_above, shapes
from gstinfer.heads.nms import nms
from gstinfer.results import Detections, Result

__all__ = ["SsdHead"]


class SsdHead(Head):
    """Boxes ``[B,N,1,4]`` or ``[B,N,4]`` (ymin, xmin, ymax, xmax in 0..1) and probabilities ``[B,N,C]``.

    90 columns without labels are COCO's ids 1 to 90, 91 columns its ids 0 (background) to 90. Other numbers of columns
    are the classes from 0 on; with one column more than labels the first is the background.
    """

    name = "ssd"
    thresholds = Thresholds(confidence=0.4, iou=0.5)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        found = _outputs(info)
        if found is None:
            raise ConfigError(f"head=ssd needs boxes [B,N,1,4] and scores [B,N,classes], got {shapes(info)}")
        self.boxes, self.scores = found[0].name, found[1].name
        columns, names = found[1].shape[2], class_names(info)
        self.skip = self.offset = 0
        self.labels = names
        if names is None and columns in (90, 91):
            self.labels, self.skip, self.offset = COCO91, columns - 90, 1
        elif names is not None and columns is not None:
            if columns == len(names) + 1:
                self.skip = 1
            check_labels(names, columns - self.skip, f"{self.scores} of head=ssd")

    @classmethod
    def recognises(cls, info: NetworkInfo) -> bool:
        """Whether the shapes leave no doubt: the boxes have the axis of length one."""
        found = _outputs(info)
        return found is not None and len(info.outputs) == 2 and len(found[0].shape) == 4

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        if info.inputs and info.inputs[0].dtype in ("uint8", "int32"):
            return {"resize": "stretch", "color": "rgb", "scale": 1.0, "layout": "NHWC"}
        return {"resize": "stretch", "color": "rgb", "scale": 1 / 127.5, "mean": (1.0,), "layout": "NHWC"}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        results: list[Result | tuple[Result, ...]] = []
        for boxes, scores, transform in zip(outputs[self.boxes], outputs[self.scores], transforms):
            scores = scores[:, self.skip :]
            rows = rows_above(scores, thresholds.confidence)
            picked = np.asarray(scores[rows], np.float32)
            score, class_id = picked.max(1), picked.argmax(1) + self.offset
            size = np.tile(np.array(transform.input_size, np.float32), 2)
            xyxy = np.asarray(boxes.reshape(-1, 4)[rows], np.float32)[:, [1, 0, 3, 2]] * size
            kept = nms(xyxy, score, class_id, thresholds)
            results.append(Detections(transform.boxes_to_frame(xyxy[kept]), score[kept], class_id[kept]))
        return results


def _outputs(info: NetworkInfo) -> tuple[TensorInfo, TensorInfo] | None:
    """Boxes and scores, matched by shape; by name where the scores are four wide too."""
    outputs = [o for o in info.outputs if len(o.shape) in (3, 4)]
    boxes = [o for o in outputs if o.shape[-1] == 4 and (len(o.shape) == 3 or o.shape[2] == 1)]
    deep = [o for o in boxes if len(o.shape) == 4] or [o for o in boxes if "box" in o.name.lower()] or boxes
    if len(deep) != 1:
        return None
    scores = [o for o in outputs if o is not deep[0] and len(o.shape) == 3 and o.shape[1] == deep[0].shape[1]]
    return (deep[0], scores[0]) if len(scores) == 1 else None
