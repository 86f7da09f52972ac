"""Frames with random pixels."""

from __future__ import annotations

import numpy as np

from gstinfer.frames import Frame, FrameBatch
from gstinfer.image import Device, Image


def batch(count: int, device: Device) -> FrameBatch:
    """The same for every device."""
    rng = np.random.default_rng(3)
    images = [Image.from_array(rng.integers(0, 256, (48, 64, 3), np.uint8)) for _ in range(count)]
    return FrameBatch(tuple(Frame(Image("RGB", i.planes, i.width, i.height, i.color, device)) for i in images))
