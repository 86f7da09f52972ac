"""Objects of a frame that was scaled since."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gstinfer.geometry import ImageTransform
from gstinfer.results import Detections, Mask

__all__ = ["scaled"]


def scaled(detections: Detections, written: tuple[int, int], now: tuple[int, int]) -> Detections:
    """Objects in pixels of a frame of size ``written``, for the same picture at size ``now``, both (width, height).

    Boxes, rotated boxes, keypoints and masks follow; ``data`` columns stay as they are. Arrays are read-only.
    """
    transform = ImageTransform.plan(now, written, "stretch")
    sx, sy = now[0] / written[0], now[1] / written[1]
    d = replace(
        detections,
        xyxy=transform.boxes_to_frame(detections.xyxy),
        obb=None if detections.obb is None else transform.obb_to_frame(detections.obb),
        keypoints=None if detections.keypoints is None else transform.keypoints_to_frame(detections.keypoints),
        mask=None if detections.mask is None else [_mask(m, sx, sy) for m in detections.mask],
    )
    for column in (d.xyxy, d.obb, d.keypoints):
        if column is not None:
            column.setflags(write=False)
    return d


def _mask(mask: Mask, sx: float, sy: float) -> Mask:
    """Nearest neighbour: a pixel is set when the old pixel under its centre was."""
    height, width = mask.bitmap.shape
    if not mask.bitmap.size:
        return Mask(round(mask.x * sx), round(mask.y * sy), mask.bitmap)
    x1, x2 = math.floor(mask.x * sx), math.ceil((mask.x + width) * sx)
    y1, y2 = math.floor(mask.y * sy), math.ceil((mask.y + height) * sy)
    columns = np.floor((np.arange(x1, x2) + 0.5) / sx).astype(int) - mask.x
    rows = np.floor((np.arange(y1, y2) + 0.5) / sy).astype(int) - mask.y
    columns_in, rows_in = (columns >= 0) & (columns < width), (rows >= 0) & (rows < height)
    bitmap = np.zeros((y2 - y1, x2 - x1), bool)
    bitmap[np.ix_(rows_in, columns_in)] = mask.bitmap[np.ix_(rows[rows_in], columns[columns_in])]
    bitmap.setflags(write=False)
    return Mask(x1, y1, bitmap)
