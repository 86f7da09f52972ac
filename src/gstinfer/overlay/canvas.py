"""Draws on the planes of a picture in host memory in place, whatever its format: full-size planes and half-size chroma alike.

Planes that OpenCV cannot draw on (samples of 10 bits, Y and chroma that alternate in one plane, chroma halved one way only)
are drawn as 8-bit copies; of those, what the drawing changed is written back, and every other sample stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.image import Image, PixelFormat
from gstinfer.overlay.color import RGB, plane_values

__all__ = ["FRACTION", "Canvas", "fixed_points", "made_tiles"]

Pixels = NDArray[np.uint8]

FRACTION = 4
"""Bits of a pixel that lines are placed to."""

FAR = 1 << 14
"""Points further out than this many pixels are pulled in, so that fixed-point coordinates never overflow."""


class _Plane(NamedTuple):
    pixels: Pixels
    shift: int


class _Copy:
    """Bytes to draw on in a plane's place.

    Args:
        plane: Samples.
        layout: Their format.
        size: (width, height) of the picture, where the plane is smaller by a factor other than two both ways.
    """

    def __init__(self, plane: NDArray[Any], layout: PixelFormat, size: tuple[int, int] | None) -> None:
        import cv2

        self.plane, self.factor, self.halved = plane, layout.to_byte, size is not None
        made = np.empty(plane.shape, plane.dtype)
        # Channel by channel: NumPy is slow where the last axis is short and not contiguous.
        for target, source in zip(_channels(made), _channels(plane)):
            target[...] = source
        if layout.depth > 8:
            # Rounded down, so that going back never overflows.
            made = (made >> (layout.depth - 8 + layout.shift)).astype(np.uint8)
        if size is not None:
            # Chroma halved across, the only other kind there is.
            double = (2 * made.shape[1], made.shape[0])
            made = cv2.resize(made, double, interpolation=cv2.INTER_NEAREST).reshape(*double[::-1], *made.shape[2:])
        self.before: Pixels = made
        self._drawn = made.copy()
        self.pixels = self._drawn if size is None else self._drawn[:, : size[0]]

    def write(self) -> None:
        """Brings what was drawn into the plane."""
        import cv2

        drawn, changed = self._drawn, cv2.compare(self._drawn, self.before, cv2.CMP_NE).reshape(self._drawn.shape)
        count = 1 if self.plane.ndim == 2 else self.plane.shape[2]
        x, y, width, height = cv2.boundingRect(changed.reshape(len(changed), -1))
        if not width:
            return
        # Whole pixels, and pairs of them.
        left, right = x // (2 * count) * 2, -(-(x + width) // (2 * count)) * 2
        rows = slice(y, y + height)
        drawn, changed = drawn[rows, left:right], changed[rows, left:right]
        if self.halved:
            left, right = left // 2, right // 2
        for now, marks, plane in zip(_channels(drawn), _channels(changed), _channels(self.plane)):
            if self.halved:
                now = cv2.addWeighted(np.ascontiguousarray(now[:, ::2]), 0.5, np.ascontiguousarray(now[:, 1::2]), 0.5, 0)
                marks = marks[:, ::2] | marks[:, 1::2]
            chosen = marks > 0
            values = now[chosen]
            plane[rows, left:right][chosen] = values if self.factor == 1 else np.rint(values / self.factor)


def _channels(plane: NDArray[Any]) -> list[NDArray[Any]]:
    return [plane] if plane.ndim == 2 else [plane[..., n] for n in range(plane.shape[2])]


class Canvas:
    """A picture to draw on; a context manager, as copies are written back at its end.

    Coordinates are pixels of the picture; what lies outside is left out.

    Raises:
        ConfigError: The picture is not in host memory.
    """

    def __init__(self, image: Image) -> None:
        if image.device.is_cuda:
            raise ConfigError(f"a picture in {image.device} memory cannot be drawn on here", hint="see cuda_canvas")
        self.width, self.height = image.size
        self.format, self.color = image.format, image.color
        layout = image.layout
        halved = layout.is_yuv and layout.subsampling == (2, 2)
        self.step = 2 if halved else 1
        self._colors: dict[RGB, tuple[tuple[int, ...], ...]] = {}
        self._back: list[_Copy] = []
        self._planes = [_Plane(self._drawable(p, layout), int(halved and i > 0)) for i, p in enumerate(image.planes)]

    def __enter__(self) -> Canvas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for copy in self._back:
            copy.write()

    def _drawable(self, plane: NDArray[Any], layout: PixelFormat) -> Pixels:
        """The plane, or a copy where it is none that OpenCV writes through."""
        channels = plane.shape[2] if plane.ndim == 3 else 1
        inner = plane.strides[1:] == ((channels, 1) if plane.ndim == 3 else (1,))
        whole = plane.shape[:2] == (self.height, self.width) or self.step == 2
        if layout.depth == 8 and inner and plane.strides[0] >= plane.shape[1] * channels and whole:
            return plane
        copy = _Copy(plane, layout, (self.width, self.height) if not whole else None)
        self._back.append(copy)
        return copy.pixels

    def _values(self, rgb: RGB) -> tuple[tuple[int, ...], ...]:
        values = self._colors.get(rgb)
        if values is None:
            values = self._colors[rgb] = plane_values(self.format, self.color, rgb)
        return values

    def _with(self, rgb: RGB) -> Iterator[tuple[_Plane, tuple[int, ...]]]:
        return zip(self._planes, self._values(rgb))

    def fill(self, x1: int, y1: int, x2: int, y2: int, rgb: RGB) -> None:
        """Fills columns x1..x2-1 of rows y1..y2-1."""
        x1, y1, x2, y2 = max(0, x1), max(0, y1), min(self.width, x2), min(self.height, y2)
        if x2 > x1 and y2 > y1:
            for (pixels, s), value in self._with(rgb):
                _fill(pixels, x1 >> s, y1 >> s, x2 + s >> s, y2 + s >> s, value)

    def box(self, x1: int, y1: int, x2: int, y2: int, width: int, rgb: RGB) -> None:
        """The border of columns x1..x2-1 and rows y1..y2-1, drawn inwards; the box lies inside the picture."""
        if 2 * width >= min(x2 - x1, y2 - y1):
            self.fill(x1, y1, x2, y2, rgb)
            return
        for (pixels, s), value in self._with(rgb):
            left, top, right, bottom = x1 >> s, y1 >> s, x2 + s >> s, y2 + s >> s
            inner_left, inner_top = x1 + width + s >> s, y1 + width + s >> s
            inner_right, inner_bottom = x2 - width >> s, y2 - width >> s
            _fill(pixels, left, top, right, inner_top, value)
            _fill(pixels, left, inner_bottom, right, bottom, value)
            _fill(pixels, left, inner_top, inner_left, inner_bottom, value)
            _fill(pixels, inner_right, inner_top, right, inner_bottom, value)

    def lines(self, points: NDArray[np.float32], width: int, rgb: RGB, *, closed: bool = False) -> None:
        """Strokes between points.

        Args:
            points: ``[K,2]`` (x, y), one after another; or ``[L,2,2]``, L strokes of their own.
            width: Pixels.
            rgb: Colour.
            closed: Whether the last point joins the first.
        """
        import cv2

        if not len(points):
            return
        for (pixels, s), value in self._with(rgb):
            fixed = fixed_points(points, s)
            strokes = list(fixed) if fixed.ndim == 3 else [fixed]
            # Chroma a little wider than luma: a stroke without colour at its edge looks torn.
            cv2.polylines(pixels, strokes, closed, value, width + 2 * s >> s, cv2.LINE_AA, FRACTION)

    def dots(self, points: NDArray[np.float32], radius: int, rgb: RGB) -> None:
        """Discs at points ``[K,2]`` (x, y)."""
        import cv2

        for (pixels, s), value in self._with(rgb):
            size = (radius << FRACTION) >> s
            for x, y in fixed_points(points, s).tolist():
                cv2.circle(pixels, (x, y), size, value, cv2.FILLED, cv2.LINE_AA, FRACTION)

    def tint(self, x: int, y: int, bitmap: NDArray[np.bool_], rgb: RGB, alpha: float) -> None:
        """Mixes a colour into the pixels that a bitmap sets; its top left lies at (x, y)."""
        import cv2

        left, top = max(0, -x), max(0, -y)
        bitmap = bitmap[top : max(top, self.height - y), left : max(left, self.width - x)]
        x, y = x + left, y + top
        for (pixels, s), value in self._with(rgb):
            column, row = x + s >> s, y + s >> s
            mask = np.ascontiguousarray(bitmap[(row << s) - y :: 1 << s, (column << s) - x :: 1 << s], np.uint8)
            if not mask.size:
                continue
            region = pixels[row : row + mask.shape[0], column : column + mask.shape[1]]
            cv2.copyTo(cv2.LUT(region, _mix(value, alpha)), mask, region)

    def tint_map(self, numbers: NDArray[np.uint8], colors: list[RGB], alpha: float) -> None:
        """Mixes ``colors[n - 1]`` into the pixels where a map says n; it spans the picture at any size, 0 is left."""
        import cv2

        tables = [self._values(rgb) for rgb in [(0, 0, 0), *colors]]
        for k, (pixels, _) in enumerate(self._planes):
            sized = cv2.resize(numbers, pixels.shape[1::-1], interpolation=cv2.INTER_NEAREST)
            table = np.zeros((256, len(tables[0][k])), np.uint8)
            table[: len(tables)] = [entry[k] for entry in tables]
            color = cv2.merge([cv2.LUT(sized, np.ascontiguousarray(channel)) for channel in table.T])
            mixed = cv2.addWeighted(pixels, 1 - alpha, color.reshape(pixels.shape), alpha, 0)
            cv2.copyTo(mixed.reshape(pixels.shape), sized, pixels)

    def tiles(self, coverage: Pixels, ink: RGB, paper: RGB) -> list[Pixels]:
        """A rectangle of paper with ink where ``coverage`` ``[h,w]`` says so, made for each plane; see ``paste``.

        Sides are multiples of ``step``."""
        values = zip(self._values(paper), self._values(ink))
        planes = [(s, pixels.ndim == 2, pair) for (pixels, s), pair in zip(self._planes, values)]
        return made_tiles(coverage, self.step, planes)

    def paste(self, x: int, y: int, tiles: list[Pixels]) -> None:
        """Puts tiles down with their top left at (x, y), on even pixels where chroma is half-size."""
        x, y = max(0, x) // self.step * self.step, max(0, y) // self.step * self.step
        for (pixels, s), tile in zip(self._planes, tiles):
            region = pixels[y >> s : (y >> s) + tile.shape[0], x >> s : (x >> s) + tile.shape[1]]
            region[...] = tile if region.shape == tile.shape else tile[: region.shape[0], : region.shape[1]]


def _fill(pixels: Pixels, x1: int, y1: int, x2: int, y2: int, value: tuple[int, ...]) -> None:
    import cv2

    if pixels.ndim == 2:
        pixels[y1:y2, x1:x2] = value[0]
    elif x2 > x1 and y2 > y1:
        cv2.rectangle(pixels, (x1, y1), (x2 - 1, y2 - 1), value, cv2.FILLED)


def fixed_points(points: NDArray[np.float32], shift: int) -> NDArray[np.int32]:
    """Points in a plane's own fixed-point coordinates; the centre of a chroma pixel lies between four luma pixels."""
    placed = np.clip(np.nan_to_num(points), -FAR, FAR).astype(np.float64)
    placed = (placed - 0.5) / 2 if shift else placed
    return np.rint(placed * (1 << FRACTION)).astype(np.int32)


def made_tiles(
    coverage: Pixels, step: int, planes: Sequence[tuple[int, bool, tuple[tuple[int, ...], tuple[int, ...]]]]
) -> list[Pixels]:
    """A rectangle of paper with ink, for each plane.

    Args:
        coverage: ``[h,w]``, sides multiples of ``step``.
        step: Pixels across that share a chroma sample.
        planes: Of each: 1 where it is half-size, whether it has one channel and no axis for it, and (paper, ink).
    """
    import cv2

    half = (coverage.shape[1] // 2, coverage.shape[0] // 2)
    small = cv2.resize(coverage, half, interpolation=cv2.INTER_AREA) if step > 1 else coverage
    made = []
    for s, flat, (paper, ink) in planes:
        tile = _ramp(paper, ink)[small if s else coverage]
        made.append(tile[..., 0] if flat else tile)
    return made


@lru_cache(maxsize=1024)
def _mix(value: tuple[int, ...], alpha: float) -> Pixels:
    """Look-up table ``[1,256,C]`` of pixels with a colour mixed in."""
    before = np.arange(256)[:, None]
    return np.rint(before + (np.array(value) - before) * alpha).astype(np.uint8)[None]


@lru_cache(maxsize=1024)
def _ramp(paper: tuple[int, ...], ink: tuple[int, ...]) -> Pixels:
    """Look-up table ``[256,C]`` from paper to ink by coverage."""
    share = np.arange(256)[:, None] / 255
    table: Pixels = np.rint(np.array(paper) + (np.array(ink) - np.array(paper)) * share).astype(np.uint8)
    return table
