"""The tensors as they are, for user code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, Thresholds
from gstinfer.results import Result, Tensors

__all__ = ["RawHead"]


class RawHead(Head):
    """Copies each frame's rows; an output of one row for a batch of several is given to every frame."""

    name = "raw"

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        arrays = {name: np.asarray(array) for name, array in outputs.items()}
        return [
            Tensors({name: _row(array, i, len(transforms)).copy() for name, array in arrays.items()})
            for i in range(len(transforms))
        ]


def _row(array: NDArray[Any], index: int, batch: int) -> NDArray[Any]:
    if array.ndim == 0 or len(array) < batch:
        return array[0] if array.ndim and len(array) == 1 else array
    row: NDArray[Any] = array[index]
    return row
