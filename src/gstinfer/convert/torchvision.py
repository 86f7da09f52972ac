"""The dicts of torchvision's detectors: boxes, labels and scores, with masks or keypoints. ``transformers``' post-processing
gives the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gstinfer.convert.arrays import name_ids, to_numpy
from gstinfer.results import Detections, Result

__all__ = ["convert", "matches"]


def matches(item: Any) -> bool:
    """Whether it is such a dict."""
    return isinstance(item, Mapping) and "boxes" in item and ("labels" in item or "scores" in item)


def convert(item: Any) -> Result | None:
    """The objects; labels may be numbers or, from open-vocabulary models, names."""
    boxes = to_numpy(item["boxes"]).reshape(-1, 4)
    columns: dict[str, Any] = {}
    if item.get("scores") is not None:
        columns["confidence"] = to_numpy(item["scores"]).reshape(-1)
    names = item.get("text_labels")
    labels = item.get("labels")
    if labels is not None and len(labels) and isinstance(labels[0], str):
        names, labels = labels, None
    if labels is not None:
        columns["class_id"] = to_numpy(labels).reshape(-1)
    if names is not None:
        columns["label"] = [str(name) for name in names]
        if labels is None:
            columns["class_id"] = name_ids(columns["label"])
    if item.get("masks") is not None:
        masks = to_numpy(item["masks"])
        masks = masks[:, 0] if masks.ndim == 4 else masks
        columns["mask"] = masks > 0.5 if masks.dtype.kind == "f" else masks.astype(bool)
    if item.get("keypoints") is not None:
        columns["keypoints"] = to_numpy(item["keypoints"]).astype(np.float32).reshape(len(boxes), -1, 3)
    data = {}
    if item.get("keypoints_scores") is not None:
        data["keypoint_logits"] = to_numpy(item["keypoints_scores"])
    return Detections(boxes, data=data, **columns)
