"""The parameter table of the fused GPU kernel: one row a frame says all that the kernel must know.

The kernel has no cases for pixel formats. A row names three channels by pointer, pitch and step, an affine map from
output pixel to sample position, and a 3 x 3 matrix to the colours wanted. NV12, I420, the RGB family, GRAY8 and the
upper bytes of P010 differ in numbers only. The four pixels around a position are converted and rounded, then mixed, as
``reference`` does; a GPU gains nothing by another order, as it reads the same bytes either way, so ``preprocess=fast``
and ``exact`` are the same here. ``emulate`` reads the same table on the CPU.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.image import ColorInfo, Image, PixelFormat
from gstinfer.preprocess import Preprocessing, reference

__all__ = ["ROW", "ROW_BYTES", "Table", "channels", "color_matrix", "emulate", "fixed_row", "plane_layout"]

ROW = np.dtype(
    [
        ("plane", "<i8", 3),
        ("shift", "<i4"),
        ("unused", "<i4"),
        ("pitch", "<i4", 2),
        ("step", "<i4", 2),
        ("low", "<i4", 2),
        ("high", "<i4", 2),
        ("content", "<i4", 4),
        ("affine", "<f4", 6),
        ("matrix", "<f4", (3, 3)),
        ("offset", "<f4", 3),
        ("mul", "<f4", 3),
        ("add", "<f4", 3),
        ("pad", "<f4", 3),
        ("spare", "<f4"),
    ]
)
"""One frame's row.

``shift``: log2 of the chroma subsampling. ``pitch``, ``step``: bytes between rows and between samples, of channel 0 and
of channels 1 and 2. ``low``, ``high``: (x, y) limits of sample positions. ``content``: left, top, right, bottom of the
picture in the output. ``affine``: x = a*ox + b*oy + c, y = d*ox + e*oy + f. A pixel's colour is
``round(clip(matrix @ channels + offset, 0, 255))``, a value ``round(mix of four) * mul + add``; outside it is ``pad``.
"""

ROW_BYTES = ROW.itemsize


def plane_layout(plane: Any) -> tuple[int, tuple[int, ...]]:
    """Address and byte strides of a plane with ``__cuda_array_interface__`` or, on the CPU, ``__array_interface__``."""
    face = getattr(plane, "__cuda_array_interface__", None)
    if face is None:
        face = plane.__array_interface__
    strides = face.get("strides")
    if strides is None:
        shape = face["shape"]
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return face["data"][0], strides


def fixed_row(
    layout: PixelFormat,
    color: ColorInfo,
    strides: Sequence[tuple[int, ...]],
    spec: Preprocessing,
    transform: ImageTransform,
) -> NDArray[np.void]:
    """Everything of a frame's row but its pointers; equal for all frames of a stream.

    Args:
        layout: The pixel format.
        color: Matrix and range.
        strides: Byte strides of each plane.
        spec: The input wanted.
        transform: Where the picture goes.
    """
    row = np.zeros((), ROW)
    row["pitch"] = strides[0][0], strides[-1][0]
    row["step"] = strides[0][1], strides[-1][1]
    row["shift"] = int(layout.is_yuv)
    left, top = transform.pad
    row["content"] = left, top, left + transform.content[0], top + transform.content[1]
    row["affine"] = _affine(transform)
    if transform.is_slice:
        row["low"] = transform.origin
        row["high"] = np.add(transform.origin, transform.region) - 1
    else:
        row["high"] = np.subtract(transform.frame_size, 1)
    row["matrix"], row["offset"] = color_matrix(layout, color, spec.color)
    factor, offset = (np.resize(v, 3) for v in reference.affine(spec))
    row["mul"], row["add"] = factor, offset
    row["pad"] = np.resize(reference.normalise(np.full(spec.channels, spec.pad_value, np.float64), spec), 3)
    return row


def channels(image: Image) -> tuple[int, int, int]:
    """Addresses of a picture's three channels: R, G, B or Y, U, V; grey thrice."""
    layout, order, planes = image.layout, image.layout.order, image.planes
    first, strides = plane_layout(planes[0])
    if layout.kind == "nv":
        chroma, strides = plane_layout(planes[1])
        return first, chroma + order.index("U") * strides[2], chroma + order.index("V") * strides[2]
    if layout.kind == "packed":
        red, green, blue = (first + order.index(c) * strides[2] for c in "RGB")
        return red, green, blue
    if layout.kind == "gray":
        return first, first, first
    pair = plane_layout(planes[1])[0], plane_layout(planes[2])[0]
    return first, pair[order.index("U")], pair[order.index("V")]


def color_matrix(
    layout: PixelFormat, color: ColorInfo, wanted: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(matrix ``[3,3]``, offset ``[3]``) from a picture's channels to rgb, bgr or gray, all in 0..255."""
    if layout.is_yuv and wanted == "gray":
        factor, offset = reference.luma_offset(color)
        return np.array([[factor, 0.0, 0.0]] * 3), np.full(3, offset)
    if layout.is_yuv:
        matrix = reference.yuv_matrix(color, wanted)
        return matrix[:, :3], matrix[:, 3]
    if wanted == "gray":
        return np.array([[1.0, 0.0, 0.0] if layout.kind == "gray" else [0.299, 0.587, 0.114]] * 3), np.zeros(3)
    return np.eye(3) if wanted == "rgb" else np.eye(3)[::-1], np.zeros(3)


def _affine(transform: ImageTransform) -> NDArray[np.float64]:
    """Output pixel index -> sample index in the frame, as (a, b, c, d, e, f)."""
    scale, pad = np.array(transform.scale, np.float64), np.array(transform.pad, np.float64)
    linear = np.diag(1 / scale)
    shift = (0.5 - pad) / scale + transform.origin
    if transform.angle:
        cos, sin = math.cos(transform.angle), math.sin(transform.angle)
        rotation = np.array([[cos, -sin], [sin, cos]])
        centre = np.array(transform.origin) + np.array(transform.region) / 2
        linear, shift = rotation @ linear, rotation @ (shift - centre) + centre
    return np.column_stack([linear, shift - 0.5]).ravel()


class Table:
    """Writes the rows of batches; the fixed part of each stream's row is kept between batches."""

    def __init__(self, spec: Preprocessing, kept: int = 1024) -> None:
        self.spec = spec
        self._row = lru_cache(maxsize=kept)(self._make)

    def _make(
        self, layout: PixelFormat, color: ColorInfo, strides: tuple[tuple[int, ...], ...], transform: ImageTransform
    ) -> NDArray[np.void]:
        return fixed_row(layout, color, strides, self.spec, transform)

    def fill(self, out: NDArray[np.void], images: Sequence[Image], transforms: Sequence[ImageTransform]) -> None:
        """Writes one row per picture into ``out`` (dtype ``ROW``)."""
        for index, (image, transform) in enumerate(zip(images, transforms)):
            strides = tuple([plane_layout(plane)[1] for plane in image.planes])
            out[index] = self._row(image.layout, image.color, strides, transform)
        out["plane"][: len(images)] = [channels(image) for image in images]


def emulate(table: NDArray[np.void], spec: Preprocessing, out: NDArray[Any]) -> None:
    """What the kernel does, in NumPy over host pointers: fills the rows of ``out`` that the table has."""
    for row, target in zip(table, out):
        picture = _picture(row, spec)
        target[...] = picture if spec.layout == "NCHW" else picture.transpose(1, 2, 0)


def _picture(row: NDArray[np.void], spec: Preprocessing) -> NDArray[Any]:
    width, height = spec.size
    count = spec.channels
    oy, ox = np.mgrid[:height, :width].astype(np.float32)
    left, top, right, bottom = row["content"]
    a, b, c, d, e, f = row["affine"]
    (low_x, low_y), (high_x, high_y) = row["low"], row["high"]
    x, y = np.clip(a * ox + b * oy + c, low_x, high_x), np.clip(d * ox + e * oy + f, low_y, high_y)
    x0, y0 = x.astype(np.int32), y.astype(np.int32)
    x1, y1 = np.minimum(x0 + 1, high_x), np.minimum(y0 + 1, high_y)
    ax, ay = (x - x0).astype(np.float32), (y - y0).astype(np.float32)
    upper = _color(row, x0, y0) * (1 - ax) + _color(row, x1, y0) * ax
    lower = _color(row, x0, y1) * (1 - ax) + _color(row, x1, y1) * ax
    color = np.rint(upper * (1 - ay) + lower * ay)[:count]
    value = color * row["mul"][:count, None, None] + row["add"][:count, None, None]
    inside = (ox >= left) & (ox < right) & (oy >= top) & (oy < bottom)
    value = np.where(inside, value, row["pad"][:count, None, None])
    if spec.dtype in ("uint8", "int32"):
        value = np.rint(value)
    if spec.dtype == "uint8":
        value = np.clip(value, 0, 255)
    return value.astype(spec.dtype)


def _color(row: NDArray[np.void], x: Any, y: Any) -> Any:
    shift = int(row["shift"])
    parts = np.stack([_fetch(row, 0, x, y), *(_fetch(row, c, x >> shift, y >> shift) for c in (1, 2))])
    return np.rint(np.clip(np.tensordot(row["matrix"], parts, 1) + row["offset"][:, None, None], 0, 255))


def _fetch(row: NDArray[np.void], channel: int, x: Any, y: Any) -> NDArray[np.float32]:
    group = min(channel, 1)
    offset = y.astype(np.int64) * row["pitch"][group] + x.astype(np.int64) * row["step"][group]
    span = (ctypes.c_uint8 * (int(offset.max()) + 1)).from_address(int(row["plane"][channel]))
    return np.frombuffer(span, np.uint8)[offset].astype(np.float32)
