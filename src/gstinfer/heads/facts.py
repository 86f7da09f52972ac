"""What can be read from a network's description: class names, input size, flags."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.heads.base import NetworkInfo, TensorInfo

__all__ = [
    "check_labels",
    "class_names",
    "ends_itself",
    "grid_counts",
    "input_size",
    "literal",
    "named",
    "rows_above",
    "shapes",
]

STRIDES = ((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64), (16, 32))
"""Sets of strides in use by one-stage detectors."""


def literal(info: NetworkInfo, key: str) -> Any:
    """A metadata text read as a Python literal, the text itself where it is none, or None where absent."""
    text = info.metadata.get(key)
    if text is None:
        return None
    try:
        return ast.literal_eval(str(text).strip())
    except (ValueError, SyntaxError):
        word = str(text).strip()
        return {"true": True, "false": False}.get(word.lower(), word)


def class_names(info: NetworkInfo) -> tuple[str, ...] | None:
    """The labels given, else the metadata's ``names`` (a dict by index, or a list), or None.

    Raises:
        ConfigError: ``names`` is no list and no dict of integers without gaps.
    """
    if info.labels is not None:
        return tuple(info.labels)
    names = literal(info, "names")
    if names is None or names == "":
        return None
    if isinstance(names, dict):
        if sorted(names) != list(range(len(names))):
            raise ConfigError("the metadata's names are not numbered 0, 1, 2, ...", hint="give the names with labels=")
        names = [names[i] for i in range(len(names))]
    if isinstance(names, str):
        names = [part.strip() for part in names.split(",")]
    return tuple(str(name) for name in names)


def check_labels(labels: tuple[str, ...] | None, columns: int, what: str) -> None:
    """Holds the labels against the class columns of an output.

    Raises:
        ConfigError: Their numbers differ.
    """
    if labels is not None and len(labels) != columns:
        raise ConfigError(
            f"{len(labels)} labels do not fit {what}, which has {columns} class columns",
            hint="check labels=, head= and layout=",
        )


def ends_itself(info: NetworkInfo) -> bool:
    """Whether an Ultralytics export suppresses overlaps itself: ``end2end``, or exported with ``nms``."""
    arguments = literal(info, "args")
    return literal(info, "end2end") is True or (isinstance(arguments, dict) and arguments.get("nms") is True)


def input_size(info: NetworkInfo) -> tuple[int, int] | None:
    """(width, height) of the picture input: its fixed shape, else the metadata's ``imgsz`` (height, width), or None."""
    if info.inputs and len(info.inputs[0].shape) == 4:
        _, first, middle, last = info.inputs[0].shape
        height, width = (first, middle) if last in (1, 3, 4) and first not in (1, 3, 4) else (middle, last)
        if height and width:
            return width, height
    size = literal(info, "imgsz")
    if isinstance(size, int):
        return size, size
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return int(size[1]), int(size[0])
    return None


def grid_counts(size: tuple[int, int] | None, anchors: int = 1) -> set[int]:
    """How many candidates a one-stage detector may have for an input of (width, height); empty when unknown."""
    if size is None:
        return set()
    width, height = size
    return {
        anchors * sum(-(-width // stride) * -(-height // stride) for stride in strides) for strides in STRIDES
    }


def named(info: NetworkInfo, *names: str) -> TensorInfo | None:
    """The output with one of the names, or None."""
    return next((o for o in info.outputs if o.name.lower() in names), None)


def rows_above(scores: NDArray[Any], least: float) -> NDArray[np.int64]:
    """Rows of ``[N,C]`` with any score of at least ``least``, or with a NaN.

    Looks for hits in memory order: several times faster than the greatest of each row when few rows have any.
    """
    count, columns = scores.shape
    hit = ~(scores < least)
    found = np.zeros(count, bool)
    if hit.flags.c_contiguous:
        found[np.flatnonzero(hit) // max(columns, 1)] = True
    else:
        found[np.flatnonzero(hit.T) % max(count, 1)] = True
    return np.flatnonzero(found)


def shapes(info: NetworkInfo) -> str:
    """The outputs for messages: ``output0 [1,84,8400]``."""
    return ", ".join(
        f"{o.name} [{','.join('?' if d is None else str(d) for d in o.shape)}]" for o in info.outputs
    ) or "no outputs"
