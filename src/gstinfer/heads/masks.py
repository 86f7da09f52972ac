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
        corners = np.concatenate([np.floor(xyxy[:, :2]), np.ceil(xyxy[:, 2:])], 1)
        corners = np.clip(np.nan_to_num(corners), 0, limits).astype(int)
    # Frame pixel middle -> prototype index is affine: three points give its matrix.
    cell = np.array([width, height]) / transform.input_size
    base = transform.points_to_input(np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 1.5]])).astype(np.float64) * cell - 0.5
    matrix = np.stack([base[1] - base[0], base[2] - base[0], base[0]], 1)
    masks = []
    for coefficient, (x1, y1, x2, y2) in zip(coefficients, corners):
        if x2 <= x1 or y2 <= y1:
            masks.append(Mask(int(x1), int(y1), np.zeros((0, 0), bool)))
            continue
        ends = matrix @ np.array([[x1, x2, x1, x2], [y1, y1, y2, y2], [1, 1, 1, 1]])
        left, top = np.clip(np.floor(ends.min(1)).astype(int) - 1, 0, [width - 1, height - 1])
        right, bottom = np.clip(np.ceil(ends.max(1)).astype(int) + 2, [left + 1, top + 1], [width, height])
        part = protos[:, top:bottom, left:right].reshape(count, -1)
        logits = (coefficient @ part.astype(np.float32, copy=False)).reshape(bottom - top, right - left)
        shift = matrix.copy()
        shift[:, 2] += matrix[:, :2] @ [x1, y1] - [left, top]
        blended = cv2.warpAffine(
            np.ascontiguousarray(logits, np.float32),
            shift,
            (int(x2 - x1), int(y2 - y1)),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        masks.append(Mask(int(x1), int(y1), blended > 0))
    return masks
