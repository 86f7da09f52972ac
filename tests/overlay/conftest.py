"""Plain pictures of every format, what they look like as RGB, and golden pictures to compare with.

``GSTINFER_BLESS=1 pytest tests/overlay`` writes the golden pictures anew; look at them before they are committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gstinfer.image import FORMATS, ColorInfo, Image

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "overlay"
WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}

Pixels = NDArray[np.uint8]


def blank(name: str, width: int, height: int, *, pad: int = 0, color: ColorInfo | None = None) -> Image:
    """A dark picture, each row followed by ``pad`` bytes of 7 that nobody may touch."""
    planes, layout = [], FORMATS[name]
    for number, shape in enumerate(layout.plane_shapes(width, height)):
        channels = shape[2] if len(shape) == 3 else 1
        memory = np.full((shape[0], shape[1] * channels + pad), 7, layout.dtype)
        size = memory.itemsize
        strides = (memory.strides[0], channels * size, size)[: len(shape)] if channels > 1 else memory.strides
        plane = np.lib.stride_tricks.as_strided(memory, shape, strides)
        plane[...] = (128 if number else 50) / layout.to_byte
        planes.append(plane)
    return Image(name, tuple(planes), width, height, color or ColorInfo())


def rgb_of(image: Image) -> Pixels:
    """The picture as H x W x 3, chroma repeated; written down anew so that the package does not judge itself."""
    order, (across, down) = image.layout.order, image.layout.subsampling
    planes = [np.floor(p * image.layout.to_byte) for p in image.planes]
    if image.layout.kind == "packed":
        return np.dstack([planes[0][..., order.index(letter)] for letter in "RGB"]).astype(np.uint8)
    if image.layout.kind == "gray":
        return np.dstack([planes[0]] * 3).astype(np.uint8)
    first, second = (planes[1][..., 0], planes[1][..., 1]) if image.layout.kind == "nv" else planes[1:]
    u, v = ((first, second) if order == "UV" else (second, first))
    height, width = planes[0].shape
    u, v = (np.repeat(np.repeat(c, down, 0), across, 1)[:height, :width] - 128.0 for c in (u, v))
    y = planes[0].astype(float)
    if not image.color.full_range:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    kr, kb = WEIGHTS[image.color.matrix]
    red, blue = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    return np.clip(np.rint(np.dstack([red, green, blue])), 0, 255).astype(np.uint8)


def matches_golden(picture: Pixels, name: str, *, blur: int = 1) -> None:
    """Compares with a golden picture.

    Lines may be smoothed a little differently by another OpenCV, and letters by another FreeType: a few pixels may differ,
    and ``blur`` averages over squares of that many pixels first.
    """
    import cv2

    file = GOLDEN / f"{name}.png"
    if os.environ.get("GSTINFER_BLESS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), picture[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 9])
    golden = cv2.imread(str(file))
    assert golden is not None, f"{file} is missing"
    assert golden.shape == picture.shape
    size = (picture.shape[1] // blur, picture.shape[0] // blur)
    a, b = (cv2.resize(p, size, interpolation=cv2.INTER_AREA).astype(int) for p in (golden[..., ::-1].copy(), picture))
    difference = np.abs(a - b).max(-1)
    assert difference.mean() < 0.5, f"{name}: mean difference {difference.mean():.2f}"
    assert (difference > 40).mean() < 0.002, f"{name}: {(difference > 40).sum()} pixels differ"


@pytest.fixture
def make_picture() -> Callable[..., Image]:
    return blank


@pytest.fixture
def as_rgb() -> Callable[[Image], Pixels]:
    return rgb_of


@pytest.fixture
def golden() -> Callable[..., None]:
    return matches_golden
