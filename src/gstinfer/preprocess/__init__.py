"""From pictures to network input: colour conversion, resizing and normalisation, as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import RESIZES, ImageTransform
from gstinfer.image import Image

__all__ = ["Preprocessing", "prepare", "to_array"]


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes a network's input; it travels with the model.

    The value of a channel is ``(pixel * scale - mean) / std`` with pixel in 0..255.

    Attributes:
        size: (width, height) of the input.
        resize: ``"letterbox"``, ``"letterbox-topleft"``, ``"stretch"`` or ``"crop"`` (the middle, shorter side whole).
        pad_value: Grey level 0..255 of the padding, before normalisation.
        color: ``"rgb"``, ``"bgr"`` or ``"gray"``.
        scale: Factor on the pixel.
        mean: One value per channel, in scaled units.
        std: One value per channel, in scaled units.
        layout: ``"NCHW"`` or ``"NHWC"``.
        dtype: NumPy name of the input's type: float32, float16, uint8 or int32.
        quality: ``"fast"`` resizes in the source format first and converts the small picture; ``"exact"`` converts
            colour first, as the usual Python code does.
    """

    size: tuple[int, int] = (640, 640)
    resize: str = "letterbox"
    pad_value: int = 114
    color: str = "rgb"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = "NCHW"
    dtype: str = "float32"
    quality: str = "fast"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("resize", self.resize, RESIZES),
            ("color", self.color, ("rgb", "bgr", "gray")),
            ("layout", self.layout, ("NCHW", "NHWC")),
            ("dtype", self.dtype, ("float32", "float16", "uint8", "int32")),
            ("preprocess", self.quality, ("fast", "exact")),
        ):
            if value not in known:
                raise ConfigError(f"{name}={value!r} is not known", hint=f"use one of {', '.join(known)}")
        if min(self.size) < 1:
            raise ConfigError(f"input-size {self.size[0]}x{self.size[1]} is empty")
        if not 0 <= self.pad_value <= 255:
            raise ConfigError(f"pad-value={self.pad_value} is out of range", hint="use 0 to 255")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ConfigError(f"{name} has {len(values)} values, expected 1 or {self.channels}")
        if any(v == 0 for v in self.std):
            raise ConfigError("std holds a zero", hint="every std must be different from 0")

    @property
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3

    def input_shape(self, batch: int) -> tuple[int, int, int, int]:
        width, height = self.size
        if self.layout == "NCHW":
            return batch, self.channels, height, width
        return batch, height, width, self.channels


def to_array(image: Image, color: str = "rgb") -> NDArray[np.uint8]:
    """One picture as H x W x 3 uint8 (``"rgb"``, ``"bgr"``) or H x W (``"gray"``) in host memory.

    A view without a copy where the memory allows it; matrix and range of YUV pixels are honoured.
    """
    if image.device.is_cuda:
        from gstinfer.preprocess import cuda

        return cuda.to_array(image, color)
    from gstinfer.preprocess import cpu

    return cpu.to_array(image, color)


def prepare(
    images: Sequence[Image],
    spec: Preprocessing,
    *,
    transforms: Sequence[ImageTransform] | None = None,
    out: Any = None,
) -> tuple[Any, list[ImageTransform]]:
    """All pictures of a batch as one network input on the pictures' own device.

    Args:
        images: Pictures of any size and format, all on one device.
        spec: The input wanted.
        transforms: One per picture, planned on its own size; made here when None.
        out: Array of at least ``len(images)`` rows to write into, or None for a new one.

    Returns:
        The input (NumPy on the CPU, a torch tensor on a GPU) of ``spec.input_shape(len(images))`` and one
        transform per picture.
    """
    if transforms is None:
        transforms = [ImageTransform.plan(image.size, spec.size, spec.resize) for image in images]
    placed = [
        transform if image.region is None else image.region.placed(transform)
        for image, transform in zip(images, transforms)
    ]
    if images and images[0].device.is_cuda:
        from gstinfer.preprocess import cuda

        return cuda.prepare(images, spec, placed, out), list(transforms)
    from gstinfer.preprocess import cpu

    return cpu.prepare(images, spec, placed, out), list(transforms)
