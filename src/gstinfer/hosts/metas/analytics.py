"""GstAnalytics metas (GStreamer 1.24 and later), for elements that are not ours."""

from __future__ import annotations

from typing import Any

from gstinfer.results import FrameResults

__all__ = ["available", "write"]


def available() -> bool:
    return False


def write(buffer: Any, results: FrameResults, width: int, height: int) -> None:
    raise NotImplementedError
