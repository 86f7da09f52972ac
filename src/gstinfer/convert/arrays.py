"""Arrays of any library as NumPy arrays."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["name_ids", "to_numpy"]


def to_numpy(value: Any) -> NDArray[Any]:
    """A NumPy array from an array or tensor on any device, or from a sequence; half precision becomes float32."""
    for step in ("detach", "cpu"):
        if hasattr(value, step):
            value = getattr(value, step)()
    if "bfloat16" in str(getattr(value, "dtype", "")) and hasattr(value, "float"):
        value = value.float()
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def name_ids(names: Iterable[str]) -> NDArray[np.int32]:
    """Class ids for names that come without numbers: the same for a name in every frame, and no index of anything."""
    return np.array([zlib.crc32(name.encode()) >> 1 for name in names], np.int32)
