"""Foreign result objects -> ours, recognised by shape and never by importing the package that made them."""

from __future__ import annotations

from typing import Any

from gstinfer.errors import ResultError
from gstinfer.results import Classifications, Detections, Result, SegmentationMap, Tensors, Text

__all__ = ["to_result"]

OURS = (Detections, Classifications, SegmentationMap, Text, Tensors)


def to_result(item: Any) -> Result | None:
    """A result of ours from anything supported; None stays None.

    Raises:
        ResultError: Nothing supported; the message names what is.
    """
    if item is None or isinstance(item, OURS):
        return item
    raise ResultError(
        f"a result of type {type(item).__module__}.{type(item).__name__} is not supported",
        hint="return Detections, Classifications, SegmentationMap, Text, Tensors, a tuple of them, or None",
    )
