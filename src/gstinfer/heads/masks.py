"""Masks of prototypes: only the part under each box is ever computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.results import Mask

__all__ = ["cut_masks"]


def cut_masks(
    coefficients: NDArray[np.float32], protos: NDArray[Any], xyxy: NDArray[np.float32], transform: ImageTransform
) -> list[Mask]:
    """Masks of one frame, cropped to their boxes and to the frame.

    A pixel is set where the bilinear blend of the logits ``coefficients . protos`` is above zero, which is a
    probability above one half.

    Args:
        coefficients: ``[M,m]``.
        protos: ``[m,h,w]`` spanning the input.
        xyxy: ``[M,4]`` in frame pixels, not yet clipped.
        transform: How the frame lies in the input.
    """
    import cv2

    count, height, width = protos.shape
    limits = np.array(transform.frame_size * 2)
    with np.errstate(invalid="ignore"):
        # A pixel belongs to a box whose left and top it does not lie before: Ultralytics' rule.
        corners = np.clip(np.nan_to_num(np.ceil(xyxy)), 0, limits).astype(int)
    # Frame pixel middle -> prototype index is affine: three points give its matrix.
    cell = np.array([width, height]) / transform.input_size
    base = transform.points_to_input(np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]])).astype(np.float64) * cell - 0.5
    matrix = np.stack([base[1] - base[0], base[2] - base[0], base[0]], 1)
    # Cells under each box, one more on every side for the blend.
    xs, ys = corners[:, [0, 2, 0, 2]], corners[:, [1, 1, 3, 3]]
    ends = np.stack([row[0] * xs + row[1] * ys + row[2] for row in matrix], -1)
    low = np.clip(np.floor(ends.min(1)).astype(int) - 1, 0, [width - 1, height - 1])
    high = np.clip(np.ceil(ends.max(1)).astype(int) + 2, low + 1, [width, height])
    shifts = np.repeat(matrix[None], len(corners), 0)
    shifts[:, :, 2] += corners[:, :2] @ matrix[:, :2].T - low
    protos = protos.astype(np.float32, copy=False)
    masks = []
    for coefficient, (x1, y1, x2, y2), (left, top), (right, bottom), shift in zip(
        coefficients, corners.tolist(), low.tolist(), high.tolist(), shifts
    ):
        if x2 <= x1 or y2 <= y1:
            masks.append(Mask(x1, y1, np.zeros((0, 0), bool)))
            continue
        part = protos[:, top:bottom, left:right].reshape(count, -1)
        blended = cv2.warpAffine(
            (coefficient @ part).reshape(bottom - top, right - left),
            shift,
            (x2 - x1, y2 - y1),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        masks.append(Mask(x1, y1, blended > 0))
    return masks
