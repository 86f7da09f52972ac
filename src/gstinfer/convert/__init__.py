"""Foreign result objects -> ours, recognised by shape and never by importing the package that made them."""

from __future__ import annotations

from typing import Any

from gstinfer.convert import supervision, torchvision, transformers, ultralytics
from gstinfer.errors import ResultError
from gstinfer.results import Classifications, Detections, Result, SegmentationMap, Tensors, Text

__all__ = ["to_result"]

OURS = (Detections, Classifications, SegmentationMap, Text, Tensors)
FOREIGN = (ultralytics, supervision, torchvision, transformers)
"""Asked in this order; each has ``matches(item)`` and ``convert(item)``."""


def to_result(item: Any) -> Result | None:
    """A result of ours from anything supported; None stays None.

    Raises:
        ResultError: Nothing supported, or a column that does not fit; the message names what is supported.
    """
    if item is None or isinstance(item, OURS):
        return item
    for kind in FOREIGN:
        if kind.matches(item):
            return kind.convert(item)
    raise ResultError(
        f"a result of type {type(item).__module__}.{type(item).__name__} is not supported",
        hint="return Detections, Classifications, SegmentationMap, Text, Tensors, a tuple of them, or None; results of "
        "ultralytics, supervision, torchvision and transformers are taken too",
    )
