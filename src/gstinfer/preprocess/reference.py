"""What preprocessing means, in plain NumPy: slow, short and obviously right. The fast files are tested against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.image import ColorInfo, Image

if TYPE_CHECKING:
    from gstinfer.preprocess import Preprocessing

__all__ = ["affine", "cut", "letterbox", "luma_offset", "middle", "normalise", "prepare", "resize", "to_array", "yuv_matrix"]

LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Weights of red and blue in luma, from ITU-R BT.601, BT.709 and BT.2020; green has the rest."""


def luma_offset(color: ColorInfo) -> tuple[float, float]:
    """(factor, offset) that take luma to 0..255: ``factor * y + offset``."""
    return (1.0, 0.0) if color.full_range else (255 / 219, -16 * 255 / 219)


def yuv_matrix(color: ColorInfo, order: str = "rgb") -> NDArray[np.float64]:
    """``[3,4]``: rows are channels in the order asked for, applied to (y, u, v, 1) of 0..255 pixels."""
    red, blue = LUMA.get(color.matrix, LUMA["bt601"])
    green = 1 - red - blue
    luma, offset = luma_offset(color)
    chroma = 1.0 if color.full_range else 255 / 224
    to_red, to_blue = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma
    to_green_u, to_green_v = -to_blue * blue / green, -to_red * red / green
    rows = np.array([[luma, 0, to_red], [luma, to_green_u, to_green_v], [luma, to_blue, 0]], np.float64)
    matrix = np.column_stack([rows, offset - 128 * (rows[:, 1] + rows[:, 2])])
    return matrix if order == "rgb" else matrix[::-1]


def to_array(image: Image, color: str = "rgb") -> NDArray[np.uint8]:
    """One picture as H x W x 3 or, for ``"gray"``, H x W. A chroma sample holds for all its pixels."""
    layout = image.layout
    planes = [np.asarray(p) if layout.depth == 8 else np.asarray(p) * layout.to_byte for p in image.planes]
    if layout.kind == "packed":
        rgb = np.stack([planes[0][..., layout.order.index(c)] for c in "RGB"], -1).astype(np.float64)
        values = rgb @ (0.299, 0.587, 0.114) if color == "gray" else rgb if color == "rgb" else rgb[..., ::-1]
    elif layout.kind == "gray":
        values = planes[0] if color == "gray" else np.repeat(planes[0][..., None], 3, -1)
    elif color == "gray":
        factor, offset = luma_offset(image.color)
        values = planes[0] * factor + offset
    else:
        u, v = (planes[1][..., 0], planes[1][..., 1]) if layout.kind == "nv" else planes[1:]
        u, v = (v, u) if layout.order == "VU" else (u, v)
        across, down = layout.subsampling
        big = [c.repeat(down, 0).repeat(across, 1)[: image.height, : image.width] for c in (u, v)]
        values = np.stack([planes[0], *big, np.ones_like(planes[0])], -1).astype(np.float64)
        values = values @ yuv_matrix(image.color, color).T
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def sample(picture: NDArray[np.uint8], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Bilinear samples at pixel indices (0 is the centre of the first pixel); the edge repeats outside."""
    height, width = picture.shape[:2]
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    fx, fy = x - left, y - top
    if picture.ndim == 3:
        fx, fy = fx[..., None], fy[..., None]
    upper = picture[top, left] * (1 - fx) + picture[top, right] * fx
    lower = picture[bottom, left] * (1 - fx) + picture[bottom, right] * fx
    mixed: NDArray[np.uint8] = np.rint(upper * (1 - fy) + lower * fy).astype(np.uint8)
    return mixed


def resize(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Bilinear with half-pixel centres, to (width, height): ``cv2.INTER_LINEAR``."""
    height, width = picture.shape[:2]
    x = (np.arange(size[0]) + 0.5) * width / size[0] - 0.5
    y = (np.arange(size[1]) + 0.5) * height / size[1] - 0.5
    return sample(picture, *np.meshgrid(x, y))


def cut(picture: NDArray[np.uint8], transform: ImageTransform) -> NDArray[np.uint8]:
    """The transform's rectangle at the size of its content.

    An upright rectangle of whole pixels is cut out and resized; any other is sampled from the frame.
    """
    width, height = transform.content
    if not transform.is_slice:
        xs, ys = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
        points = transform.points_to_frame(np.stack([xs, ys], -1) + transform.pad).astype(np.float64)
        return sample(picture, points[..., 0] - 0.5, points[..., 1] - 0.5)
    x, y = map(int, transform.origin)
    w, h = map(int, transform.region)
    return resize(picture[y : y + h, x : x + w], (width, height))


def letterbox(picture: NDArray[np.uint8], transform: ImageTransform, pad_value: int) -> NDArray[np.uint8]:
    """The picture's rectangle in its place on a canvas of the pad value."""
    canvas_w, canvas_h = transform.input_size
    canvas = np.full((canvas_h, canvas_w, *picture.shape[2:]), pad_value, np.uint8)
    (left, top), (width, height) = transform.pad, transform.content
    canvas[top : top + height, left : left + width] = cut(picture, transform)
    return canvas


def middle(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """The middle of a picture as classifiers are trained on it: shrunk by Pillow, which counts every pixel, then cut.

    Sides and middle are rounded as torchvision's ``Resize`` and ``CenterCrop`` round them.
    """
    from PIL import Image as Pillow

    (height, width), (in_w, in_h) = picture.shape[:2], size
    ratio = max(in_w / width, in_h / height)
    new_w, new_h = max(in_w, int(width * ratio + 1e-9)), max(in_h, int(height * ratio + 1e-9))
    shrunk = np.asarray(Pillow.fromarray(picture).resize((new_w, new_h), Pillow.Resampling.BILINEAR))
    left, top = round((new_w - in_w) / 2), round((new_h - in_h) / 2)
    return shrunk[top : top + in_h, left : left + in_w]


def affine(spec: Preprocessing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(factor, offset), one value per channel each: ``pixel * factor + offset`` is the normalised value."""
    mean = np.broadcast_to(np.asarray(spec.mean, np.float64), (spec.channels,))
    std = np.broadcast_to(np.asarray(spec.std, np.float64), (spec.channels,))
    return spec.scale / std, -mean / std


def normalise(values: NDArray[Any], spec: Preprocessing) -> NDArray[Any]:
    """uint8 ``[...,C]`` to normalised values of the input's type; integers are rounded and saturate."""
    factor, offset = affine(spec)
    result = values * factor + offset
    if spec.dtype in ("uint8", "int32"):
        limits = np.iinfo(spec.dtype)
        result = np.clip(np.rint(result), limits.min, limits.max)
    return result.astype(spec.dtype)


def prepare(image: Image, spec: Preprocessing, transform: ImageTransform) -> NDArray[Any]:
    """One row of the network's input: C x H x W, or H x W x C for NHWC."""
    picture = to_array(image, spec.color)
    if spec.resize == "crop" and spec.quality == "exact" and transform.is_slice:
        canvas = middle(picture, spec.size)
    else:
        canvas = letterbox(picture, transform, spec.pad_value)
    if canvas.ndim == 2:
        canvas = canvas[..., None]
    row = normalise(canvas, spec)
    return row if spec.layout == "NHWC" else row.transpose(2, 0, 1)
