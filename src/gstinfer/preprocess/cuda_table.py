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
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.image import ColorInfo, Image, PixelFormat
from gstinfer.preprocess import Preprocessing, reference

__all__ = ["ROW", "ROW_BYTES", "Table", "channels", "emulate", "fixed_row", "geometry", "plane_layout"]

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

KEPT = 4096
"""Transforms whose numbers are kept."""

_POINTERS = struct.Struct("<3q")
_PLACE = struct.Struct("<8i6f")
_GEOMETRY = ROW.fields["low"][1]  # type: ignore[index]


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
    layout: PixelFormat, color: ColorInfo, strides: Sequence[tuple[int, ...]], spec: Preprocessing
) -> NDArray[np.void]:
    """What the rows of all pictures of one format, colour and pitch have in common.

    Raises:
        ConfigError: A format that only the CPU reads.
    """
    if not layout.is_plain:
        raise ConfigError(
            f"pixel format {layout.name} is not read on a GPU",
            hint="put cudaconvert ! video/x-raw(memory:CUDAMemory),format=NV12 before this element",
        )
    row = np.zeros((), ROW)
    row["pitch"] = strides[0][0], strides[-1][0]
    row["step"] = strides[0][1], strides[-1][1]
    row["shift"] = int(layout.is_yuv)
    row["matrix"], row["offset"] = color_matrix(layout, color, spec.color)
    factor, offset = (np.resize(v, 3) for v in reference.affine(spec))
    row["mul"], row["add"] = factor, offset
    row["pad"] = np.resize(reference.normalise(np.full(spec.channels, spec.pad_value, np.float64), spec), 3)
    return row


def geometry(transform: ImageTransform) -> tuple[float, ...]:
    """The fields ``low``, ``high``, ``content`` and ``affine`` of a row."""
    (sx, sy), (left, top), (ox, oy) = transform.scale, transform.pad, transform.origin
    width, height = transform.content
    if transform.is_slice:
        low = int(ox), int(oy)
        high = low[0] + int(transform.region[0]) - 1, low[1] + int(transform.region[1]) - 1
    else:
        low, high = (0, 0), (transform.frame_size[0] - 1, transform.frame_size[1] - 1)
    shift_x, shift_y = (0.5 - left) / sx + ox, (0.5 - top) / sy + oy
    content = left, top, left + width, top + height
    if not transform.angle:
        return (*low, *high, *content, 1 / sx, 0.0, shift_x - 0.5, 0.0, 1 / sy, shift_y - 0.5)
    cos, sin = math.cos(transform.angle), math.sin(transform.angle)
    middle_x, middle_y = ox + transform.region[0] / 2, oy + transform.region[1] / 2
    dx, dy = shift_x - middle_x, shift_y - middle_y
    first = cos / sx, -sin / sy, cos * dx - sin * dy + middle_x - 0.5
    return (*low, *high, *content, *first, sin / sx, cos / sy, sin * dx + cos * dy + middle_y - 0.5)


def channels(layout: PixelFormat, planes: Sequence[tuple[int, tuple[int, ...]]]) -> tuple[int, int, int]:
    """Addresses of a picture's three channels, R, G, B or Y, U, V or grey thrice, from its planes' layouts."""
    order, (first, strides) = layout.order, planes[0]
    if layout.kind == "nv":
        chroma, strides = planes[1]
        return first, chroma + order.index("U") * strides[2], chroma + order.index("V") * strides[2]
    if layout.kind == "packed":
        red, green, blue = (first + order.index(c) * strides[2] for c in "RGB")
        return red, green, blue
    if layout.kind == "gray":
        return first, first, first
    pair = planes[1][0], planes[2][0]
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


class Table:
    """Writes the rows of batches for one input; the parts of a row that frames share are kept between batches."""

    def __init__(self, spec: Preprocessing) -> None:
        self.spec = spec
        self._fixed: dict[Any, bytes] = {}
        self._geometry: dict[int, tuple[ImageTransform, bytes]] = {}

    def fill(self, out: NDArray[np.void], images: Sequence[Image], transforms: Sequence[ImageTransform]) -> bool:
        """Writes one row per picture to the start of ``out`` (dtype ``ROW``, contiguous).

        Returns:
            Whether all pictures have U and V side by side at even addresses.
        """
        target = memoryview(out).cast("B")  # type: ignore[arg-type]
        paired, at = True, 0
        for image, transform in zip(images, transforms):
            planes = [plane_layout(plane) for plane in image.planes]
            color, strides = image.color, tuple([plane[1] for plane in planes])
            key = image.format, color.matrix, color.full_range, strides
            fixed = self._fixed.get(key)
            if fixed is None:
                fixed = self._fixed[key] = fixed_row(image.layout, color, strides, self.spec).tobytes()
            target[at : at + ROW_BYTES] = fixed
            target[at + _GEOMETRY : at + _GEOMETRY + _PLACE.size] = self._place(transform)
            first, second, third = channels(image.layout, planes)
            _POINTERS.pack_into(target, at, first, second, third)
            paired = paired and third - second == 1 and not (second | strides[-1][0] | strides[-1][1]) & 1
            at += ROW_BYTES
        return paired

    def _place(self, transform: ImageTransform) -> bytes:
        # By identity: hashing all numbers costs more than packing them. The entry keeps its transform alive.
        kept = self._geometry.get(id(transform))
        if kept is None:
            if len(self._geometry) >= KEPT:
                self._geometry.clear()
            kept = self._geometry[id(transform)] = transform, _PLACE.pack(*geometry(transform))
        return kept[1]


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
    return np.asarray(span, np.uint8)[offset].astype(np.float32)
