"""Draws on a picture in CUDA memory: what ``Canvas`` does at once is noted down here, and one kernel does it at the end.

Small things are made on the host with the same OpenCV calls as on the CPU (strokes and dots as coverage, words as tiles),
so that both ways give the same picture but for rounding. Pixels of the picture never come to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gstinfer.image import Image
from gstinfer.overlay.canvas import FRACTION, fixed_points, made_tiles
from gstinfer.overlay.color import RGB, plane_values
from gstinfer.overlay.cuda_table import ALIGN, BOX, COVER, MAP, TILE, TINT, Drawing

__all__ = ["CudaCanvas", "Engine", "PackedTiles"]

Pixels = NDArray[np.uint8]
Values = tuple[int, int, int]


class Engine(Protocol):
    """Carries drawings out."""

    def draw(self, image: Image, drawing: Drawing) -> None:
        """Ordered after all that wrote the picture; whoever holds its planes learns when it is done (``keep_until``)."""


class PackedTiles(list[Pixels]):
    """A tile per plane, all views of one array.

    Attributes:
        flat: The bytes of all of them.
        starts: Where each begins.
        width: Pixels.
        height: Pixels.
    """

    def __init__(self, tiles: Sequence[Pixels]) -> None:
        starts, size = [], 0
        for tile in tiles:
            starts.append(size)
            size += -(-tile.size // ALIGN) * ALIGN
        self.flat = np.zeros(size, np.uint8)
        self.starts = (*starts, 0, 0)[:3]
        self.height, self.width = tiles[0].shape[:2]
        views = [self.flat[start : start + tile.size].reshape(tile.shape) for start, tile in zip(starts, tiles)]
        for view, tile in zip(views, tiles):
            view[...] = tile
        super().__init__(views)


class CudaCanvas:
    """A picture in CUDA memory to draw on; a context manager: all is drawn when it is left without an exception.

    Methods are those of ``Canvas``, which see.

    Args:
        image: Of a format with one byte a sample, or the upper bytes of P010.
        engine: Draws.
    """

    def __init__(self, image: Image, engine: Engine) -> None:
        self._image, self._engine, self._drawing = image, engine, Drawing()
        self.width, self.height = image.size
        self.format, self.color = image.format, image.color
        layout = image.layout
        self._shapes = layout.plane_shapes(self.width, self.height)
        self._shifts = [int(layout.is_yuv and number > 0) for number in range(len(self._shapes))]
        self._channels = [shape[2] if len(shape) == 3 else 0 for shape in self._shapes]
        self._all = (1 << len(self._shapes)) - 1
        self.step = 2 if layout.is_yuv else 1

    def __enter__(self) -> CudaCanvas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and len(self._drawing):
            self._engine.draw(self._image, self._drawing)

    def _value(self, rgb: RGB) -> Values:
        return _packed(self.format, self.color, rgb)

    def fill(self, x1: int, y1: int, x2: int, y2: int, rgb: RGB) -> None:
        x1, y1, x2, y2 = max(0, x1), max(0, y1), min(self.width, x2), min(self.height, y2)
        if x2 > x1 and y2 > y1:
            self._drawing.add(BOX, self._all, (x1, y1, x2, y2), self._value(rgb))

    def box(self, x1: int, y1: int, x2: int, y2: int, width: int, rgb: RGB) -> None:
        if 2 * width >= min(x2 - x1, y2 - y1):
            self.fill(x1, y1, x2, y2, rgb)
        else:
            self._drawing.add(BOX, self._all, (x1, y1, x2, y2), self._value(rgb), border=width)

    def lines(self, points: NDArray[np.float32], width: int, rgb: RGB, *, closed: bool = False) -> None:
        import cv2

        if not len(points):
            return
        for plane, s in enumerate(self._shifts):
            fixed, thick = fixed_points(points, s), width + 2 * s >> s
            # Half of the stroke, one pixel of smoothing, and one for rounding.
            low = (fixed.reshape(-1, 2).min(0) >> FRACTION) - thick - 2
            high = (fixed.reshape(-1, 2).max(0) >> FRACTION) + thick + 3
            left, top = np.maximum(low, 0).tolist()
            right, bottom = np.minimum(high, self._shapes[plane][1::-1]).tolist()
            if right <= left or bottom <= top:
                continue
            coverage, full = self._coverage(plane, right - left, bottom - top)
            fixed -= np.array([left, top], np.int32) << FRACTION
            strokes = list(fixed) if fixed.ndim == 3 else [fixed]
            cv2.polylines(coverage, strokes, closed, full, thick, cv2.LINE_AA, FRACTION)
            self._cover(plane, left, top, coverage, rgb)

    def dots(self, points: NDArray[np.float32], radius: int, rgb: RGB) -> None:
        whole, value, drawing = (1 << FRACTION) - 1, self._value(rgb), self._drawing
        for plane, s in enumerate(self._shifts):
            height, width = self._shapes[plane][:2]
            size, channels, bit = (radius << FRACTION) >> s, self._channels[plane], 1 << plane
            half = _half(size)
            for x, y in fixed_points(points, s).tolist():
                left, top = (x >> FRACTION) - half, (y >> FRACTION) - half
                right, bottom = left + 2 * half + 1, top + 2 * half + 1
                if right > 0 and left < width and bottom > 0 and top < height:
                    at = drawing.data(_stamp(size, x & whole, y & whole, channels))
                    drawing.add(COVER, bit, (left << s, top << s, right << s, bottom << s), value, (at, at, at))

    def _coverage(self, plane: int, width: int, height: int) -> tuple[Pixels, tuple[int, ...]]:
        """Empty coverage with as many channels as the plane, for which OpenCV has ways of their own, and its full value."""
        channels = self._channels[plane]
        return np.zeros((height, width, channels) if channels else (height, width), np.uint8), (255,) * max(1, channels)

    def _cover(self, plane: int, left: int, top: int, coverage: Pixels, rgb: RGB) -> None:
        if coverage.ndim == 3:
            coverage = np.ascontiguousarray(coverage[..., 0])
        s, (height, width) = self._shifts[plane], coverage.shape
        box = left << s, top << s, left + width << s, top + height << s
        at = self._drawing.data(coverage)
        self._drawing.add(COVER, 1 << plane, box, self._value(rgb), (at, at, at))

    def tint(self, x: int, y: int, bitmap: NDArray[np.bool_], rgb: RGB, alpha: float) -> None:
        left, top = max(0, -x), max(0, -y)
        bitmap = bitmap[top : max(top, self.height - y), left : max(left, self.width - x)]
        x, y = x + left, y + top
        if not bitmap.size:
            return
        height, width = bitmap.shape
        at = self._drawing.data(np.ascontiguousarray(bitmap).view(np.uint8))
        self._drawing.add(
            TINT,
            self._all,
            (x, y, x + width, y + height),
            self._value(rgb),
            (at, at, at),
            grid=(width, height),
            share=round(alpha * 65536),
        )

    def tint_map(self, numbers: NDArray[np.uint8], colors: list[RGB], alpha: float) -> None:
        palette = np.zeros((3, 256), np.int32)
        for number, rgb in enumerate(colors, 1):
            palette[:, number] = self._value(rgb)
        at = self._drawing.data(np.ascontiguousarray(numbers)), self._drawing.data(palette.view(np.uint8)), 0
        box = 0, 0, self.width, self.height
        rows, columns = numbers.shape
        share = round(alpha * 65536)
        self._drawing.add(MAP, self._all, box, (0, 0, 0), at, grid=(columns, rows), share=share)

    def tiles(self, coverage: Pixels, ink: RGB, paper: RGB) -> PackedTiles:
        values = zip(plane_values(self.format, self.color, paper), plane_values(self.format, self.color, ink))
        flat = [not channels for channels in self._channels]
        return PackedTiles(made_tiles(coverage, self.step, list(zip(self._shifts, flat, values))))

    def paste(self, x: int, y: int, tiles: Any) -> None:
        x, y = max(0, x) // self.step * self.step, max(0, y) // self.step * self.step
        base, (first, second, third) = self._drawing.data(tiles.flat), tiles.starts
        at = base + first, base + second, base + third
        self._drawing.add(TILE, self._all, (x, y, x + tiles.width, y + tiles.height), (0, 0, 0), at)


@lru_cache(maxsize=4096)
def _packed(format: str, color: Any, rgb: RGB) -> Values:
    """A colour's values of up to three planes, each as the bytes of a signed word."""
    words = [int.from_bytes(bytes((*value, 0, 0, 0))[:4], "little", signed=True) for value in plane_values(format, color, rgb)]
    first, second, third = (*words, 0, 0)[:3]
    return first, second, third


def _half(radius: int) -> int:
    """Pixels from the middle of a stamp to its edge: the disc, a fraction and the smoothing."""
    return (radius >> FRACTION) + 3


@lru_cache(maxsize=4096)
def _stamp(radius: int, x: int, y: int, channels: int) -> Pixels:
    """Coverage ``[n,n]`` of a disc whose centre lies (x, y) fractions of a pixel off the middle pixel."""
    import cv2

    half = _half(radius)
    side = 2 * half + 1
    made: Pixels = np.zeros((side, side, channels) if channels else (side, side), np.uint8)
    place = (half << FRACTION) + x, (half << FRACTION) + y
    cv2.circle(made, place, radius, (255,) * max(1, channels), cv2.FILLED, cv2.LINE_AA, FRACTION)
    return np.ascontiguousarray(made[..., 0]) if channels else made
