"""Draws on the planes of a picture in host memory in place, whatever its format: full-size planes and half-size chroma alike.

Planes that OpenCV cannot draw on (samples of 10 bits, Y and chroma that alternate in one plane, chroma halved one way only)
are drawn as 8-bit copies; of those, what the drawing changed is written back, and every other sample stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.image import Image, PixelFormat
from gstinfer.mask import Mask
from gstinfer.overlay.color import RGB
from gstinfer.overlay.palette import Tile, palette_of

__all__ = ["FRACTION", "Canvas", "Dots", "fixed_points"]

Pixels = NDArray[np.uint8]

Dots = Sequence[tuple[int, RGB | None]]
"""Discs at a point, one over the other: radius and colour, None for the object's."""

FRACTION = 4
"""Bits of a pixel that lines are placed to."""

FAR = 1 << 14
"""Points further out than this many pixels are pulled in, so that fixed-point coordinates never overflow."""


class _Plane:
    """Samples to draw on.

    Attributes:
        pixels: ``[h,w]`` or ``[h,w,C]``.
        shift: 1 where the plane is half-size.
        words: ``[h,w]``, the channels of a pixel as one number; None where there are three.
    """

    __slots__ = ("pixels", "shift", "words")

    def __init__(self, pixels: Pixels, shift: int) -> None:
        self.pixels, self.shift = pixels, shift
        self.words: NDArray[Any] | None = pixels
        if pixels.ndim == 3:
            word = {2: "<u2", 4: "<u4"}.get(pixels.shape[2])
            self.words = pixels.view(word)[..., 0] if word else None

    def fill(self, x1: int, y1: int, x2: int, y2: int, value: tuple[int, ...], word: int) -> None:
        """Fills columns x1..x2-1 of rows y1..y2-1 of the plane."""
        if self.words is not None:
            self.words[y1:y2, x1:x2] = word
        elif x2 > x1 and y2 > y1:
            import cv2

            cv2.rectangle(self.pixels, (x1, y1), (x2 - 1, y2 - 1), value, cv2.FILLED)


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
        self.palette = palette_of(image.format, image.color)
        self._back: list[_Copy] = []
        self._planes = [
            _Plane(self._drawable(plane, image.layout), shift) for plane, shift in zip(image.planes, self.palette.shifts)
        ]

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
        whole = plane.shape[:2] == (self.height, self.width) or self.palette.step == 2
        if layout.depth == 8 and inner and plane.strides[0] >= plane.shape[1] * channels and whole:
            return plane
        copy = _Copy(plane, layout, (self.width, self.height) if not whole else None)
        self._back.append(copy)
        return copy.pixels

    def _with(self, rgb: RGB) -> Iterator[tuple[_Plane, tuple[int, ...], int]]:
        return zip(self._planes, self.palette.values(rgb), self.palette.words(rgb))

    def fill(self, x1: int, y1: int, x2: int, y2: int, rgb: RGB) -> None:
        """Fills columns x1..x2-1 of rows y1..y2-1."""
        x1, y1, x2, y2 = max(0, x1), max(0, y1), min(self.width, x2), min(self.height, y2)
        if x2 > x1 and y2 > y1:
            for plane, value, word in self._with(rgb):
                s = plane.shift
                plane.fill(x1 >> s, y1 >> s, x2 + s >> s, y2 + s >> s, value, word)

    def box(self, x1: int, y1: int, x2: int, y2: int, width: int, rgb: RGB) -> None:
        """The border of columns x1..x2-1 and rows y1..y2-1, drawn inwards; the box lies inside the picture."""
        if 2 * width >= min(x2 - x1, y2 - y1):
            self.fill(x1, y1, x2, y2, rgb)
            return
        for plane, value, word in self._with(rgb):
            s = plane.shift
            left, top, right, bottom = x1 >> s, y1 >> s, x2 + s >> s, y2 + s >> s
            inner_left, inner_top = x1 + width + s >> s, y1 + width + s >> s
            inner_right, inner_bottom = x2 - width >> s, y2 - width >> s
            plane.fill(left, top, right, inner_top, value, word)
            plane.fill(left, inner_bottom, right, bottom, value, word)
            plane.fill(left, inner_top, inner_left, inner_bottom, value, word)
            plane.fill(inner_right, inner_top, right, inner_bottom, value, word)

    def polygons(self, points: NDArray[np.float32], width: int, colors: Sequence[RGB]) -> None:
        """The edges of N polygons.

        Args:
            points: ``[N,K,2]`` (x, y).
            width: Pixels of a stroke.
            colors: N of them.
        """
        for number, plane in enumerate(self._planes):
            for points_of, rgb in zip(fixed_points(points, plane.shift), colors):
                _strokes(plane, [points_of], width, self.palette.values(rgb)[number], closed=True)

    def keypoints(
        self,
        points: NDArray[np.float32],
        seen: NDArray[np.bool_],
        bones: NDArray[np.int64],
        width: int,
        dots: Dots,
        colors: Sequence[RGB],
    ) -> None:
        """Points of N objects with strokes between them, one object after another.

        Args:
            points: ``[N,K,2]`` (x, y).
            seen: ``[N,K]``, those that are drawn.
            bones: ``[B,2]``, indices of points between which strokes are drawn if both are seen.
            width: Pixels of a stroke.
            dots: Drawn at each point, over the strokes.
            colors: N of them.
        """
        import cv2

        drawn = seen[:, bones[:, 0]] & seen[:, bones[:, 1]]
        for number, plane in enumerate(self._planes):
            fixed = fixed_points(points, plane.shift)
            for places, shown, strokes, rgb in zip(fixed, seen, drawn, colors):
                if strokes.any():
                    _strokes(plane, list(places[bones[strokes]]), width, self.palette.values(rgb)[number])
                centers = places[shown].tolist()
                for radius, other in dots:
                    size, value = (radius << FRACTION) >> plane.shift, self.palette.values(other or rgb)[number]
                    for center in centers:
                        cv2.circle(plane.pixels, center, size, value, cv2.FILLED, cv2.LINE_AA, FRACTION)

    def masks(self, masks: Sequence[Mask], colors: Sequence[RGB], alpha: float) -> None:
        """Mixes the colour of each object into the pixels of its mask."""
        for mask, rgb in zip(masks, colors):
            self._tint(mask.x, mask.y, mask.bitmap, rgb, alpha)

    def _tint(self, x: int, y: int, bitmap: NDArray[np.bool_], rgb: RGB, alpha: float) -> None:
        import cv2

        left, top = max(0, -x), max(0, -y)
        bitmap = bitmap[top : max(top, self.height - y), left : max(left, self.width - x)]
        x, y = x + left, y + top
        for plane, value in zip(self._planes, self.palette.values(rgb)):
            s = plane.shift
            column, row = x + s >> s, y + s >> s
            mask = np.ascontiguousarray(bitmap[(row << s) - y :: 1 << s, (column << s) - x :: 1 << s], np.uint8)
            if not mask.size:
                continue
            region = plane.pixels[row : row + mask.shape[0], column : column + mask.shape[1]]
            cv2.copyTo(cv2.LUT(region, _mix(value, alpha)), mask, region)

    def tint_map(self, numbers: NDArray[np.uint8], colors: list[RGB], alpha: float) -> None:
        """Mixes ``colors[n - 1]`` into the pixels where a map says n; it spans the picture at any size, 0 is left."""
        import cv2

        tables = [self.palette.values(rgb) for rgb in [(0, 0, 0), *colors]]
        for k, plane in enumerate(self._planes):
            pixels = plane.pixels
            sized = cv2.resize(numbers, pixels.shape[1::-1], interpolation=cv2.INTER_NEAREST)
            table = np.zeros((256, len(tables[0][k])), np.uint8)
            table[: len(tables)] = [entry[k] for entry in tables]
            color = cv2.merge([cv2.LUT(sized, np.ascontiguousarray(channel)) for channel in table.T])
            mixed = cv2.addWeighted(pixels, 1 - alpha, color.reshape(pixels.shape), alpha, 0)
            cv2.copyTo(mixed.reshape(pixels.shape), sized, pixels)

    def paste(self, x: int, y: int, tiles: Sequence[Tile]) -> None:
        """Puts tiles side by side, the top left of the first at (x, y) in the picture; even where chroma is half-size."""
        for tile in tiles:
            fits = x + tile.width <= self.width and y + tile.height <= self.height
            for plane, piece in zip(self._planes, tile.planes):
                left, top = x >> plane.shift, y >> plane.shift
                if not fits:
                    piece = piece[: plane.pixels.shape[0] - top, : max(0, plane.pixels.shape[1] - left)]
                plane.pixels[top : top + piece.shape[0], left : left + piece.shape[1]] = piece
            x += tile.width


def _strokes(
    plane: _Plane, points: list[NDArray[np.int32]], width: int, value: tuple[int, ...], *, closed: bool = False
) -> None:
    import cv2

    # Chroma a little wider than luma: a stroke without colour at its edge looks torn.
    thick = width + 2 * plane.shift >> plane.shift
    cv2.polylines(plane.pixels, points, closed, value, thick, cv2.LINE_AA, FRACTION)


def fixed_points(points: NDArray[np.float32], shift: int) -> NDArray[np.int32]:
    """Points in a plane's own fixed-point coordinates; the centre of a chroma pixel lies between four luma pixels."""
    placed = np.where(np.isnan(points), 0, points).clip(-FAR, FAR).astype(np.float64)
    placed = (placed - 0.5) / 2 if shift else placed
    return np.rint(placed * (1 << FRACTION)).astype(np.int32)


@lru_cache(maxsize=1024)
def _mix(value: tuple[int, ...], alpha: float) -> Pixels:
    """Look-up table ``[1,256,C]`` of pixels with a colour mixed in."""
    before = np.arange(256)[:, None]
    return np.rint(before + (np.array(value) - before) * alpha).astype(np.uint8)[None]
