"""RT-DETR, D-FINE, RF-DETR and the original DETR: a set of queries, no suppression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.coco import COCO91
from gstinfer.heads.facts import check_labels, class_names, named, shapes
from gstinfer.results import Detections, Result

__all__ = ["DetrHead"]

Float = NDArray[np.float32]
SIZES = "orig_target_sizes"


class DetrHead(Head):
    """Boxes are cx, cy, w, h in 0..1 of the stretched input. Three forms:

    * boxes ``[B,Q,4]`` and logits ``[B,Q,C]``, matched by name, else by shape;
    * ``labels``, ``boxes``, ``scores`` in pixels of the size fed as ``orig_target_sizes`` (w, h): the input's own here;
    * one output ``[B,Q,6]`` (box, score, class) or ``[B,Q,4+nc]`` (box, probabilities).

    Class columns: with one column more than labels the last is the background and dropped; 91 columns without labels
    are COCO's ids and none is dropped; RF-DETR (``dets``, ``labels``) without labels has the background last; 92 are
    the original DETR's, a softmax over COCO's ids and "no object".
    """

    name = "detr"
    thresholds = Thresholds(confidence=0.5)

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        self.names = class_names(info)
        self.labels = self.names
        self.drop_last = self.softmax = False
        self.finished: tuple[str, str, str] | None = None
        self.single = ""
        self.sizes = next((i for i in info.inputs[1:] if i.name.lower() == SIZES), None)
        outputs = {o.name.lower(): o.name for o in info.outputs}
        if {"labels", "boxes", "scores"} <= set(outputs):
            if self.sizes is None:
                raise ConfigError(
                    f"head=detr with outputs labels, boxes and scores needs the input {SIZES}, which says what the "
                    "boxes' pixels refer to",
                    hint="set head=raw and decode the boxes in a callback",
                )
            self.finished = (outputs["labels"], outputs["boxes"], outputs["scores"])
            return
        rows = [o for o in info.outputs if len(o.shape) == 3]
        if len(rows) == 1 and len(info.outputs) == 1:
            self._bind_single(rows[0])
            return
        boxes, logits = self._pair(rows, info)
        self.boxes, self.logits = boxes.name, logits.name
        if logits.shape[2] is not None:
            self._columns(logits.shape[2], rf_detr=(boxes.name.lower(), logits.name.lower()) == ("dets", "labels"))

    def _bind_single(self, output: TensorInfo) -> None:
        columns = output.shape[2]
        self.single = output.name
        if columns is None or columns < 5:
            raise ConfigError(f"head=detr needs [B,Q,6] or [B,Q,4+classes], got {shapes(self.info)}")
        # Newer Ultralytics files name their head and finish the rows; older ones keep a probability per class.
        self.rows = columns == 6 and not (self.names is not None and len(self.names) == 2 and self._old())
        if not self.rows:
            check_labels(self.names, columns - 4, f"{output.name} of head=detr")

    def _old(self) -> bool:
        return "head" not in self.info.metadata and "description" in self.info.metadata

    def _pair(self, rows: list[TensorInfo], info: NetworkInfo) -> tuple[TensorInfo, TensorInfo]:
        """Boxes and logits: by name, else by width."""
        boxes = named(info, "dets", "pred_boxes", "boxes")
        logits = named(info, "labels", "logits", "pred_logits", "scores")
        if boxes is not None and logits is not None:
            return boxes, logits
        wide = [o for o in rows if o.shape[2] != 4]
        narrow = [o for o in rows if o.shape[2] == 4]
        if len(wide) == 1 and len(narrow) == 1:
            return narrow[0], wide[0]
        raise ConfigError(
            f"head=detr cannot tell boxes [B,Q,4] from logits [B,Q,classes] in {shapes(info)}",
            hint="name the outputs dets and labels, or set head=raw",
        )

    def _columns(self, columns: int, rf_detr: bool) -> None:
        if self.names is not None and columns == len(self.names) + 1:
            self.drop_last = True
        elif self.names is None and columns == 91:
            self.labels = COCO91
        elif self.names is None and columns == 92:
            self.labels, self.drop_last, self.softmax = COCO91, True, True
        elif self.names is None and rf_detr:
            self.drop_last = True
        classes = columns - self.drop_last
        check_labels(self.names, classes, f"{self.logits} of head=detr")
        if classes < 1:
            raise ConfigError(f"head=detr finds no class column in {shapes(self.info)}")

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        fields: dict[str, Any] = {"resize": "stretch", "color": "rgb", "scale": 1 / 255}
        normalised = named(info, "dets") or (named(info, "logits", "pred_logits") and _last(info) == 92)
        if normalised:
            fields |= {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
        return fields

    def feeds(self, transforms: Sequence[ImageTransform]) -> dict[str, NDArray[Any]]:
        if self.sizes is None:
            return {}
        return {self.sizes.name: np.array([t.input_size for t in transforms], self.sizes.dtype).reshape(-1, 2)}

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        results: list[Result | tuple[Result, ...]] = []
        for i, transform in enumerate(transforms):
            if self.finished is not None:
                class_id, xyxy, score = (outputs[name][i] for name in self.finished)
            else:
                box, score, class_id = self._queries(outputs, i, thresholds)
                xyxy = _corners(box) * np.tile(np.array(transform.input_size, np.float32), 2)
            rows = np.flatnonzero(~(score < thresholds.confidence))
            rows = rows[np.argsort(-score[rows], kind="stable")][: thresholds.limit]
            results.append(
                Detections(
                    transform.boxes_to_frame(np.asarray(xyxy[rows], np.float32)), score[rows], class_id[rows]
                )
            )
        return results

    def _queries(
        self, outputs: Mapping[str, NDArray[Any]], index: int, thresholds: Thresholds
    ) -> tuple[Float, Float, NDArray[Any]]:
        """Boxes, scores and classes of one frame; a query may speak for several classes."""
        if self.single:
            rows = np.asarray(outputs[self.single][index], np.float32)
            if self.rows:
                return rows[:, :4], rows[:, 4], _whole(rows[:, 5])
            box, score = rows[:, :4], rows[:, 4:]
        else:
            box = np.asarray(outputs[self.boxes][index], np.float32)
            logits = np.asarray(outputs[self.logits][index], np.float32)
            if self.softmax:
                weights = np.exp(logits - logits.max(1, keepdims=True))
                score = weights / weights.sum(1, keepdims=True)
            else:
                with np.errstate(over="ignore"):
                    score = np.asarray(1 / (1 + np.exp(-logits)), np.float32)
            if self.drop_last:
                score = score[:, :-1]
        query, class_id = np.nonzero(~(score < thresholds.confidence))
        return box[query], score[query, class_id], class_id


def _last(info: NetworkInfo) -> int | None:
    logits = named(info, "logits", "pred_logits")
    return logits.shape[-1] if logits is not None else None


def _corners(box: Float) -> Float:
    half = box[:, 2:4] / 2
    return np.concatenate([box[:, :2] - half, box[:, :2] + half], 1)


def _whole(column: Float) -> NDArray[np.int32]:
    """Class numbers of a float column; -1 where it is no number."""
    return np.rint(np.nan_to_num(column, nan=-1, posinf=-1, neginf=-1)).clip(-1, 2**31 - 256).astype(np.int32)
