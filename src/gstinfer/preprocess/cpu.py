"""Preprocessing in host memory with OpenCV: resize in the source format first, convert the small picture after."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.image import ColorInfo, Image, PixelFormat
from gstinfer.preprocess import reference

if TYPE_CHECKING:
    from gstinfer.preprocess import Preprocessing

__all__ = ["prepare", "to_array"]

Pixels = NDArray[np.uint8]

SMALL = 16
"""Pictures with a shorter side are converted first: half a chroma pixel at an odd edge would show."""


class _Scratch(threading.local):
    """Buffers of one thread by use, grown and kept: fresh pages cost more than the work on them."""

    def __init__(self) -> None:
        self.buffers: dict[str, Pixels] = {}

    def take(self, use: str, shape: tuple[int, ...], itemsize: int = 1) -> NDArray[Any]:
        """An array of uint8, or of uint16 for an item size of 2."""
        count = math.prod(shape) * itemsize
        buffer = self.buffers.get(use)
        if buffer is None or buffer.size < count:
            buffer = self.buffers[use] = np.empty(count, np.uint8)
        return buffer[:count].view(np.uint8 if itemsize == 1 else np.uint16).reshape(shape)


_scratch = _Scratch()


@lru_cache(maxsize=32)
def _matrix(color: ColorInfo, order: str) -> NDArray[np.float32]:
    return np.ascontiguousarray(reference.yuv_matrix(color, order), np.float32)


@lru_cache(maxsize=8)
def _luma_table(color: ColorInfo) -> Pixels:
    factor, offset = reference.luma_offset(color)
    return np.clip(np.rint(np.arange(256) * factor + offset), 0, 255).astype(np.uint8)


def to_array(image: Image, color: str = "rgb") -> Pixels:
    """One picture as H x W x 3 uint8 (``"rgb"``, ``"bgr"``) or H x W (``"gray"``).

    A view of the frame where its memory holds the channels in that order, else a new array.

    Raises:
        ConfigError: Another colour.
    """
    if color not in ("rgb", "bgr", "gray"):
        raise ConfigError(f"color={color!r} is not known", hint="use rgb, bgr or gray")
    if image.region is None:
        return _convert(image, color, (0, 0, image.width, image.height))
    if not image.region.is_slice:
        return _warped(image, color, image.region.transform())
    (x, y), (width, height) = image.region.origin, image.size
    return _convert(image, color, (int(x), int(y), int(x) + width, int(y) + height))


def _convert(image: Image, color: str, box: tuple[int, int, int, int]) -> Pixels:
    """The pixels of a box (x1, y1, x2, y2) in a colour, at full size."""
    import cv2

    x1, y1, x2, y2 = box
    layout, planes = image.layout, image.planes
    if not layout.is_yuv:
        return _recolor(planes[0][y1:y2, x1:x2], layout.order, color)
    if color == "gray":
        first = np.ascontiguousarray(_bytes(planes[0][y1:y2, x1:x2], layout))
        return first if image.color.full_range else cv2.LUT(first, _luma_table(image.color))
    # A chroma sample holds for several pixels, so the box is widened to whole samples and cut after.
    across, down = layout.subsampling
    ex, ey = x1 // across * across, y1 // down * down
    luma, *chroma = (_bytes(plane, layout) for plane in _cut(image, (ex, ey, x2, y2)))
    height, width = luma.shape
    if layout.name == "NV12" and image.color == ColorInfo() and height % 2 == 0 and width % 2 == 0:
        code = cv2.COLOR_YUV2RGB_NV12 if color == "rgb" else cv2.COLOR_YUV2BGR_NV12
        whole = cv2.cvtColorTwoPlane(luma, chroma[0], code)
    else:
        u, v = _chroma(layout.order, chroma)
        whole_size = (across * u.shape[1], down * u.shape[0])
        big = [
            cv2.resize(c, whole_size, dst=_scratch.take(use, whole_size[::-1]), interpolation=cv2.INTER_NEAREST)
            for use, c in (("u", u), ("v", v))
        ]
        merged = _scratch.take("merged", (height, width, 3))
        cv2.merge([luma, *(c[:height, :width] for c in big)], merged)
        whole = cv2.transform(merged, _matrix(image.color, color))
    return whole[y1 - ey :, x1 - ex :]


def _bytes(samples: NDArray[Any], layout: PixelFormat) -> Pixels:
    """Samples as bytes, as they are where they are bytes."""
    import cv2

    return samples if layout.depth == 8 else cv2.convertScaleAbs(samples, alpha=layout.to_byte)


def _cut(image: Image, box: tuple[int, int, int, int]) -> list[NDArray[Any]]:
    """The planes of a box whose top left is a whole chroma sample; copies where Y and chroma alternate in memory."""
    (x1, y1, x2, y2), (across, down) = box, image.layout.subsampling
    whole = (slice(y1, y2), slice(x1, x2))
    parts = (slice(y1 // down, -(-y2 // down)), slice(x1 // across, -(-x2 // across)))
    cut = [plane[whole if number == 0 else parts] for number, plane in enumerate(image.planes)]
    return _unpacked(cut, image.layout) if image.layout.packing else cut


def _unpacked(planes: list[Pixels], layout: PixelFormat) -> list[Pixels]:
    import cv2

    luma, chroma = planes
    height, width = luma.shape[0], 2 * chroma.shape[1]
    first, second = (luma, chroma) if layout.packing[0] == "Y" else (chroma, luma)
    start, other = (plane.__array_interface__["data"][0] for plane in (first, second))
    if other != start + 1 or luma.strides[1] != 2 or chroma.strides[1:] != (4, 2) or luma.strides[0] != chroma.strides[0]:
        return [np.ascontiguousarray(plane) for plane in planes]
    # One pass over the memory, which OpenCV has vector instructions for; NumPy copies every second byte one by one.
    pairs = np.lib.stride_tricks.as_strided(first, (height, width, 2), (luma.strides[0], 2, 1), writeable=False)
    taken = [_scratch.take(use, (height, width)) for use in ("unpacked-0", "unpacked-1")]
    cv2.split(pairs, taken)
    even, odd = taken
    y, uv = (even, odd) if layout.packing[0] == "Y" else (odd, even)
    return [y[:, : luma.shape[1]], uv.reshape(height, width // 2, 2)]


def _chroma(order: str, chroma: Sequence[Pixels]) -> tuple[Pixels, Pixels]:
    """U and V as planes of their own."""
    import cv2

    if len(chroma) == 1:
        shape = chroma[0].shape[:2]
        u, v = cv2.split(chroma[0], [_scratch.take("split-u", shape), _scratch.take("split-v", shape)])
    else:
        u, v = chroma
    return (u, v) if order == "UV" else (v, u)


def _recolor(pixels: Pixels, order: str, color: str) -> Pixels:
    """Packed or gray pixels in another channel order; a view where nothing has to move."""
    import cv2

    if order == "Y":
        return pixels if color == "gray" else cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    if color == "gray":
        code = cv2.COLOR_RGB2GRAY if order.startswith("RGB") else cv2.COLOR_BGR2GRAY
        return cv2.cvtColor(pixels, code) if len(order) == 3 else cv2.cvtColor(pixels[..., :3], code)
    if order[:3].lower() == color:
        return pixels[..., :3]
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR if len(order) == 3 else cv2.COLOR_RGBA2BGR)


def prepare(images: Sequence[Image], spec: Preprocessing, transforms: Sequence[ImageTransform], out: Any) -> Any:
    """All pictures as one array of ``spec.input_shape(len(images))``; see ``gstinfer.preprocess.prepare``.

    Raises:
        ConfigError: ``out`` has another type or shape, or is not contiguous.
    """
    shape = spec.input_shape(len(images))
    if out is None:
        out = np.empty(shape, spec.dtype)
    elif out.dtype != spec.dtype or out.shape[1:] != shape[1:] or len(out) < len(images) or not out.flags.c_contiguous:
        raise ConfigError(
            f"out must be a contiguous {spec.dtype} array of {list(shape)}, got {out.dtype} {list(out.shape)}"
        )
    write = _Writer.of(spec)
    for row, image, transform in zip(out, images, transforms):
        write(row, _picture(image, spec, transform), transform)
    return out[: len(images)]


def _picture(image: Image, spec: Preprocessing, transform: ImageTransform) -> Pixels:
    """The transform's rectangle at the size of its content, in the colour of the input."""
    import cv2

    width, height = transform.content
    if not transform.is_slice:
        return _warped(image, spec.color, transform)
    if spec.resize == "crop" and spec.quality == "exact":
        return reference.middle(to_array(image, spec.color), spec.size)
    x, y = map(int, transform.origin)
    w, h = map(int, transform.region)
    box = (x, y, x + w, y + h)
    layout = image.layout
    fast = spec.quality == "fast" and width * height < w * h
    if not layout.is_yuv:
        if layout.order != "Y" and spec.color == "gray" and not fast:
            return _resized(_convert(image, "gray", box), (width, height), "resized")
        small = _resized(image.planes[0][y : y + h, x : x + w], (width, height), "resized")
        return _recolor(small, layout.order, spec.color)
    across, down = layout.subsampling
    if not fast or x % across or y % down or min(w, h, width, height) < SMALL:
        return _resized(_convert(image, spec.color, box), (width, height), "resized")
    first, *others = _cut(image, (x, y, x + w, y + h))
    luma = _bytes(_resized(first, (width, height), "luma"), layout)
    if spec.color == "gray":
        return luma if image.color.full_range else cv2.LUT(luma, _luma_table(image.color))
    planes = [
        _bytes(_resized(plane, (width, height), use), layout) for use, plane in zip(("chroma-0", "chroma-1"), others)
    ]
    merged = _scratch.take("merged", (height, width, 3))
    cv2.merge([luma, *_chroma(layout.order, planes)], merged)
    return cv2.transform(merged, _matrix(image.color, spec.color), dst=_scratch.take("picture", (height, width, 3)))


def _resized(pixels: NDArray[Any], size: tuple[int, int], use: str) -> NDArray[Any]:
    import cv2

    if pixels.shape[1::-1] == size:
        return pixels
    target = _scratch.take(use, (size[1], size[0], *pixels.shape[2:]), pixels.itemsize)
    return cv2.resize(pixels, size, dst=target, interpolation=cv2.INTER_LINEAR)


def _warped(image: Image, color: str, transform: ImageTransform) -> Pixels:
    """A rotated rectangle, or one off the pixel grid or over the frame's edge: sampled from the frame."""
    import cv2

    width, height = transform.content
    left, top = transform.pad
    edge, bottom = left + width, top + height
    corners = np.array([[left, top], [edge, top], [edge, bottom], [left, bottom]], np.float64)
    x, y = transform.points_to_frame(corners).T
    # The hull and one pixel around it, at least one pixel of the frame.
    (frame_w, frame_h) = transform.frame_size
    x1, y1 = (int(np.clip(math.floor(v.min()) - 1, 0, n - 1)) for v, n in ((x, frame_w), (y, frame_h)))
    x2 = int(np.clip(math.ceil(x.max()) + 1, x1 + 1, frame_w))
    y2 = int(np.clip(math.ceil(y.max()) + 1, y1 + 1, frame_h))
    pixels = _convert(image, color, (x1, y1, x2, y2))
    corner = np.array([x[0], y[0]], np.float64) - (x1, y1)
    right = np.array([x[1] - x[0], y[1] - y[0]], np.float64) / width
    down = np.array([x[3] - x[0], y[3] - y[0]], np.float64) / height
    matrix = np.column_stack([right, down, corner + (right + down) / 2 - 0.5])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(pixels, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)


class _Writer:
    """Normalises a uint8 picture straight into a row of the input, and fills the padding around it."""

    def __init__(self, spec: Preprocessing) -> None:
        self.channels, self.planar = spec.channels, spec.layout == "NCHW"
        factor, offset = reference.affine(spec)
        self.float32 = spec.dtype == "float32" and self.planar
        self.factor, self.offset = factor.astype(np.float32), offset.astype(np.float32)
        table = reference.normalise(np.arange(256)[:, None], spec)
        self.pad = table[spec.pad_value]
        self.identity = bool((factor == 1).all() and (offset == 0).all())
        # cv2.LUT knows no float16: its bits travel as uint16.
        self.bits = np.uint16 if spec.dtype == "float16" else None
        table = np.ascontiguousarray(table).view(self.bits) if self.bits else table
        self.tables = [np.ascontiguousarray(table[:, c]) for c in range(self.channels)]
        self.table = np.ascontiguousarray(table[None])

    @staticmethod
    @lru_cache(maxsize=64)
    def of(spec: Preprocessing) -> _Writer:
        return _Writer(spec)

    def __call__(self, row: NDArray[Any], picture: Pixels, transform: ImageTransform) -> None:
        import cv2

        (left, top), (width, height) = transform.pad, transform.content
        bottom, right = top + height, left + width
        pad = self.pad[:, None, None] if self.planar else self.pad
        whole = row if self.planar else row[None]
        for band in (whole[:, :top], whole[:, bottom:], whole[:, top:bottom, :left], whole[:, top:bottom, right:]):
            if band.size:
                band[...] = pad
        content = whole[:, top:bottom, left:right]
        if not self.planar:
            content = content[0]
            source = picture[..., None] if picture.ndim == 2 else picture
            if self.identity:
                np.copyto(content, source, casting="unsafe")
            else:
                target = content.view(self.bits) if self.bits else content
                np.copyto(target, cv2.LUT(source, self.table).reshape(target.shape))
            return
        planes: Sequence[Pixels] = [picture]
        if picture.ndim == 3:
            planes = list(_scratch.take("planes", (3, height, width)))
            cv2.split(picture, planes)
        for channel, plane in enumerate(planes):
            target = content[channel]
            if self.float32:
                np.multiply(plane, self.factor[channel], out=target, dtype=np.float32)
                if self.offset[channel]:
                    target += self.offset[channel]
            elif self.identity:
                np.copyto(target, plane, casting="unsafe")
            else:
                target = target.view(self.bits) if self.bits else target
                np.copyto(target, cv2.LUT(plane, self.tables[channel]))
