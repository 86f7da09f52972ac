"""How people's Python code feeds a picture to a network, family by family: written apart from ``preprocess``, to check it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.heads.base import NetworkInfo

__all__ = ["Fitted", "Recipe", "fit", "letterbox", "recipe_of", "to_tensor"]

Pixels = NDArray[np.uint8]

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Recipe:
    """How a family is fed.

    Attributes:
        fit: ``"letterbox"``, ``"letterbox-topleft"``, ``"stretch"`` or ``"crop"``.
        pad: Grey level of the padding.
        color: ``"rgb"``, ``"bgr"`` or ``"gray"``.
        scale: Factor on the pixel.
        mean: Subtracted after it.
        std: Divided by after that.
    """

    fit: str = "letterbox"
    pad: int = 114
    color: str = "rgb"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def recipe_of(family: str, info: NetworkInfo) -> Recipe:
    """What the makers of a family do in their own code."""
    mean, std = IMAGENET
    if family == "gfl":
        return Recipe(color="bgr", scale=1.0, mean=(103.53, 116.28, 123.675), std=(57.375, 57.12, 58.395))
    if family == "yolox":
        return Recipe("letterbox-topleft", color="bgr", scale=1.0)
    if family == "ssd":
        return Recipe("stretch", scale=1 / 127.5, mean=(1.0,))
    if family in ("movenet", "centerface"):
        return Recipe(pad=0, scale=1.0)
    if family == "detr":
        outputs = {output.name: output.shape for output in info.outputs}
        wide = [shape[-1] for shape in outputs.values()]
        return Recipe("stretch", mean=mean, std=std) if "dets" in outputs or 92 in wide else Recipe("stretch")
    if family == "yolo-cls":
        return Recipe("crop")
    if family == "classify":
        return Recipe("crop", mean=mean, std=std)
    if family == "semantic" and "task" not in info.metadata:
        return Recipe("stretch", mean=mean, std=std)
    return Recipe()


@dataclass(frozen=True)
class Fitted:
    """A picture in its place in the input.

    Attributes:
        canvas: H x W x 3 (or H x W) uint8 of the input's size.
        factor: (x, y) input pixels per frame pixel.
        shift: (x, y) of the frame's origin in the input.
        inner: left, top, right, bottom of the picture in the input.
    """

    canvas: Pixels
    factor: tuple[float, float]
    shift: tuple[float, float]
    inner: tuple[int, int, int, int]

    def back(self, points: NDArray[Any]) -> NDArray[np.float64]:
        """Points ``[...,2]`` of the input in frame pixels."""
        return (np.asarray(points, np.float64) - self.shift) / self.factor


def letterbox(picture: Pixels, size: tuple[int, int], value: int = 114) -> Fitted:
    """Ultralytics' rule: the ratio of the tighter side, rounded size, half of the rest on either side.

    Half a pixel of padding goes to the right and the bottom: ``round(rest / 2 - 0.1)`` and ``round(rest / 2 + 0.1)``.
    """
    import cv2

    height, width = picture.shape[:2]
    ratio = min(size[1] / height, size[0] / width)
    inner = max(1, round(width * ratio)), max(1, round(height * ratio))
    half_x, half_y = (size[0] - inner[0]) / 2, (size[1] - inner[1]) / 2
    if (width, height) != inner:
        picture = cv2.resize(picture, inner, interpolation=cv2.INTER_LINEAR)
    left, top = round(half_x - 0.1), round(half_y - 0.1)
    right, bottom = round(half_x + 0.1), round(half_y + 0.1)
    color = (value, value, value)
    canvas = cv2.copyMakeBorder(picture, top, bottom, left, right, cv2.BORDER_CONSTANT, value=color)
    factor = inner[0] / width, inner[1] / height
    return Fitted(canvas, factor, (left, top), (left, top, left + inner[0], top + inner[1]))


def _top_left(picture: Pixels, size: tuple[int, int], value: int) -> Fitted:
    import cv2

    height, width = picture.shape[:2]
    ratio = min(size[1] / height, size[0] / width)
    inner = max(1, round(width * ratio)), max(1, round(height * ratio))
    canvas = np.full((size[1], size[0], *picture.shape[2:]), value, np.uint8)
    canvas[: inner[1], : inner[0]] = cv2.resize(picture, inner)
    return Fitted(canvas, (inner[0] / width, inner[1] / height), (0, 0), (0, 0, *inner))


def _stretch(picture: Pixels, size: tuple[int, int], value: int) -> Fitted:
    import cv2

    height, width = picture.shape[:2]
    return Fitted(cv2.resize(picture, size), (size[0] / width, size[1] / height), (0, 0), (0, 0, *size))


def _crop(picture: Pixels, size: tuple[int, int], value: int) -> Fitted:
    """The middle of the input's shape, as torchvision's transforms make it: ``Resize`` by Pillow, then ``CenterCrop``."""
    from PIL import Image

    height, width = picture.shape[:2]
    part = min(width / size[0], height / size[1])
    across, down = max(1, round(part * size[0])), max(1, round(part * size[1]))
    left, top = (width - across) // 2, (height - down) // 2
    factor = size[0] / across, size[1] / down
    if width * size[1] <= height * size[0]:
        whole = size[0], max(size[1], int(height * size[0] / width + 1e-9))
    else:
        whole = max(size[0], int(width * size[1] / height + 1e-9)), size[1]
    resized = np.array(Image.fromarray(np.ascontiguousarray(picture)).resize(whole, Image.Resampling.BILINEAR))
    x, y = round((whole[0] - size[0]) / 2), round((whole[1] - size[1]) / 2)
    canvas = resized[y : y + size[1], x : x + size[0]]
    return Fitted(canvas, factor, (-left * factor[0], -top * factor[1]), (0, 0, *size))


FITS: dict[str, Callable[[Pixels, tuple[int, int], int], Fitted]] = {
    "letterbox": letterbox,
    "letterbox-topleft": _top_left,
    "stretch": _stretch,
    "crop": _crop,
}


def fit(picture: Pixels, size: tuple[int, int], recipe: Recipe) -> Fitted:
    """A BGR picture fitted into an input of (width, height), in the recipe's colours."""
    import cv2

    if recipe.color != "bgr":
        code = cv2.COLOR_BGR2GRAY if recipe.color == "gray" else cv2.COLOR_BGR2RGB
        picture = cv2.cvtColor(picture, code)
    return FITS[recipe.fit](picture, size, recipe.pad)


def to_tensor(canvas: Pixels, recipe: Recipe, channels_first: bool, dtype: str) -> NDArray[Any]:
    """A fitted picture as a batch of one."""
    values: NDArray[Any] = canvas if canvas.ndim == 3 else canvas[..., None]
    if dtype in ("uint8", "int32") and (recipe.scale, recipe.mean, recipe.std) == (1.0, (0.0,), (1.0,)):
        values = values.astype(dtype)
    else:
        values = (values.astype(np.float64) * recipe.scale - np.array(recipe.mean)) / np.array(recipe.std)
        if dtype in ("uint8", "int32"):
            values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
        values = values.astype(dtype)
    return np.ascontiguousarray((values.transpose(2, 0, 1) if channels_first else values)[None])
