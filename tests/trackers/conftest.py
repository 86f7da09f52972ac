"""A small world of moving boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.results import Detections

PICTURE = Image.from_array(np.zeros((720, 1280, 3), np.uint8))


def frame(number: int, stream: str = "0", fps: float | None = 30) -> Frame:
    """A frame of a 1280x720 stream."""
    return Frame(PICTURE, stream, None if fps is None else round(number * 1e9 / fps), number)


def boxes(*rows: tuple[float, ...], **columns: Any) -> Detections:
    """Objects from (cx, cy, w, h, confidence, class); the last two may be left out."""
    full = np.array([[*row, *(0.9, 0)[len(row) - 4 :]] for row in rows], np.float32).reshape(-1, 6)
    xyxy = np.concatenate([full[:, :2] - full[:, 2:4] / 2, full[:, :2] + full[:, 2:4] / 2], 1)
    return Detections(xyxy, full[:, 4], full[:, 5].astype(int), **columns)


@pytest.fixture
def make_frame() -> Callable[..., Frame]:
    return frame


@pytest.fixture
def make_boxes() -> Callable[..., Detections]:
    return boxes
