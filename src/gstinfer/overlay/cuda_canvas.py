"""Draws on a picture in CUDA memory: what ``Canvas`` does at once is noted down here, and one kernel does it at the end.

Small things are made on the host with the same OpenCV calls as on the CPU (strokes and dots as coverage, words as tiles),
so that both ways give the same picture but for rounding. Pixels of the picture never come to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from types import TracebackType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gstinfer.image import Image
from gstinfer.mask import Mask
from gstinfer.overlay.canvas import FRACTION, Dots, fixed_points
from gstinfer.overlay.color import RGB
from gstinfer.overlay.cuda_table import BOX, COVER, MAP, OPERATION, TILE, TINT, WHOLE, Drawing, operation
from gstinfer.overlay.palette import Tile, palette_of

__all__ = ["CudaCanvas", "Engine"]

Pixels = NDArray[np.uint8]
Fixed = NDArray[np.int32]

NOWHERE = 1 << 30
"""Beyond every point."""


class Engine(Protocol):
    """Carries drawings out."""

    def draw(self, image: Image, drawing: Drawing) -> None:
        """Ordered after all that wrote the picture; whoever holds its planes learns when it is done (``keep_until``)."""


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
        self.palette = palette_of(image.format, image.color)
        self._shapes = image.layout.plane_shapes(self.width, self.height)
        self._all = (1 << len(self._shapes)) - 1

    def __enter__(self) -> CudaCanvas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and len(self._drawing):
            self._engine.draw(self._image, self._drawing)

    def fill(self, x1: int, y1: int, x2: int, y2: int, rgb: RGB) -> None:
        x1, y1, x2, y2 = max(0, x1), max(0, y1), min(self.width, x2), min(self.height, y2)
        if x2 > x1 and y2 > y1:
            self._drawing.rows += operation(BOX, self._all, (x1, y1, x2, y2), self.palette.words(rgb))

    def box(self, x1: int, y1: int, x2: int, y2: int, width: int, rgb: RGB) -> None:
        border = 0 if 2 * width >= min(x2 - x1, y2 - y1) else width
        self._drawing.rows += operation(BOX, self._all, (x1, y1, x2, y2), self.palette.words(rgb), border=border)

    def polygons(self, points: NDArray[np.float32], width: int, colors: Sequence[RGB]) -> None:
        drawn = np.ones((len(points), 1), bool)
        for plane, shift in enumerate(self.palette.shifts):
            strokes = fixed_points(points, shift)[:, None]
            self._drawing.rows += b"".join(self._strokes(plane, strokes, drawn, width, colors, closed=True))

    def keypoints(
        self,
        points: NDArray[np.float32],
        seen: NDArray[np.bool_],
        bones: NDArray[np.int64],
        width: int,
        dots: Dots,
        colors: Sequence[RGB],
    ) -> None:
        drawn = seen[:, bones[:, 0]] & seen[:, bones[:, 1]]
        for plane, shift in enumerate(self.palette.shifts):
            fixed = fixed_points(points, shift)
            strokes = self._strokes(plane, fixed[:, bones], drawn, width, colors)
            over = self._dots(plane, fixed, seen, dots, colors)
            self._drawing.rows += b"".join(chain.from_iterable(zip(strokes, over)))

    def _strokes(
        self,
        plane: int,
        strokes: Fixed,
        drawn: NDArray[np.bool_],
        width: int,
        colors: Sequence[RGB],
        *,
        closed: bool = False,
    ) -> list[bytes]:
        """Coverage of the strokes ``[N,L,K,2]`` of N objects, those of ``drawn`` ``[N,L]``; an operation each or none."""
        import cv2

        shape, s = self._shapes[plane], self.palette.shifts[plane]
        thick, shown = width + 2 * s >> s, drawn[..., None, None]
        # Half of the stroke, one pixel of smoothing, and one for rounding.
        low = (strokes.min((1, 2), where=shown, initial=NOWHERE) >> FRACTION) - thick - 2
        high = (strokes.max((1, 2), where=shown, initial=-NOWHERE) >> FRACTION) + thick + 3
        low, high = np.maximum(low, 0), np.minimum(high, shape[1::-1])
        strokes = strokes - (low << FRACTION)[:, None, None]
        full, found = (255,) * (shape[2] if len(shape) == 3 else 1), []
        one_by_one, ends = list(strokes[drawn]), drawn.sum(1).cumsum().tolist()
        for (left, top), (right, bottom), start, end, rgb in zip(low.tolist(), high.tolist(), [0, *ends], ends, colors):
            if right <= left or bottom <= top:
                found.append(b"")
                continue
            # As many channels as the plane has: OpenCV has ways of their own for them.
            coverage: Pixels = np.zeros((bottom - top, right - left, *shape[2:]), np.uint8)
            cv2.polylines(coverage, one_by_one[start:end], closed, full, thick, cv2.LINE_AA, FRACTION)
            at = self._drawing.data(cv2.extractChannel(coverage, 0) if len(shape) == 3 else coverage)
            box = left << s, top << s, right << s, bottom << s
            found.append(operation(COVER, 1 << plane, box, self.palette.words(rgb), (at, at, at)))
        return found

    def _dots(
        self, plane: int, centers: Fixed, seen: NDArray[np.bool_], dots: Dots, colors: Sequence[RGB]
    ) -> list[bytes]:
        """Discs at the points ``[N,K,2]`` of N objects, those of ``seen`` ``[N,K]``; the operations of each."""
        shape, s = self._shapes[plane], self.palette.shifts[plane]
        rows = np.zeros((len(centers), len(dots), centers.shape[1]), OPERATION)
        rows["kind"], rows["planes"], rows["share"] = COVER, 1 << plane, WHOLE
        kept = np.empty(rows.shape, bool)
        whole, part = centers >> FRACTION, centers & (1 << FRACTION) - 1
        (x, y), number = np.moveaxis(whole, -1, 0), (part[..., 1] << FRACTION) + part[..., 0]
        for n, (radius, other) in enumerate(dots):
            size = (radius << FRACTION) >> s
            half = _half(size)
            kept[:, n] = seen & (x >= -half) & (y >= -half) & (x < shape[1] + half) & (y < shape[0] + half)
            stamps = _stamps(size, shape[2] if len(shape) == 3 else 0)
            used = np.zeros(len(stamps), bool)
            used[number[kept[:, n]]] = True
            at = self._drawing.data(stamps[used]) + (used.cumsum() - 1)[number] * stamps.shape[1]
            rows["box"][:, n, :, :2], rows["box"][:, n, :, 2:] = whole - half << s, whole + half + 1 << s
            rows["at"][:, n] = at[..., None]
            values = np.array([self.palette.words(other or rgb) for rgb in colors], np.uint32)
            rows["value"][:, n] = values.view(np.int32)[:, None]
        bytes_of = rows.reshape(-1).compress(kept.reshape(-1)).tobytes()
        ends = (kept.sum((1, 2)).cumsum() * OPERATION.itemsize).tolist()
        return [bytes_of[start:end] for start, end in zip([0, *ends], ends)]

    def masks(self, masks: Sequence[Mask], colors: Sequence[RGB], alpha: float) -> None:
        share = round(alpha * WHOLE)
        for mask, rgb in zip(masks, colors):
            left, top = max(0, -mask.x), max(0, -mask.y)
            bitmap = mask.bitmap[top : max(top, self.height - mask.y), left : max(left, self.width - mask.x)]
            if bitmap.size:
                x, y, (height, width), value = mask.x + left, mask.y + top, bitmap.shape, self.palette.words(rgb)
                at = self._drawing.data(np.ascontiguousarray(bitmap).view(np.uint8))
                box, grid = (x, y, x + width, y + height), (width, height)
                self._drawing.rows += operation(TINT, self._all, box, value, (at, at, at), grid=grid, share=share)

    def tint_map(self, numbers: NDArray[np.uint8], colors: list[RGB], alpha: float) -> None:
        palette = np.zeros((3, 256), np.uint32)
        palette[:, 1 : len(colors) + 1] = np.array([self.palette.words(rgb) for rgb in colors], np.uint32).T
        at = self._drawing.data(np.ascontiguousarray(numbers)), self._drawing.data(palette.view(np.uint8)), 0
        box = 0, 0, self.width, self.height
        rows, columns = numbers.shape
        self._drawing.rows += operation(MAP, self._all, box, (0, 0, 0), at, grid=(columns, rows), share=round(alpha * WHOLE))

    def paste(self, x: int, y: int, tiles: Sequence[Tile]) -> None:
        drawing = self._drawing
        for tile in tiles:
            base, (first, second, third), right = drawing.kept(tile.data), tile.starts, x + tile.width
            at = base + first, base + second, base + third
            drawing.rows += operation(TILE, self._all, (x, y, right, y + tile.height), (0, 0, 0), at)
            x = right


def _half(radius: int) -> int:
    """Pixels from the middle of a stamp to its edge: the disc, a fraction and the smoothing."""
    return (radius >> FRACTION) + 3


@lru_cache(maxsize=16)
def _stamps(radius: int, channels: int) -> Pixels:
    """Coverage ``[F*F,n*n]`` of a disc whose centre lies (x, y) fractions of a pixel off the middle pixel, in row y*F + x."""
    import cv2

    half, fractions = _half(radius), 1 << FRACTION
    side = 2 * half + 1
    made = np.zeros((fractions * fractions, side, side, max(1, channels)), np.uint8)
    for number, stamp in enumerate(made):
        place = (half << FRACTION) + number % fractions, (half << FRACTION) + number // fractions
        cv2.circle(stamp, place, radius, (255,) * max(1, channels), cv2.FILLED, cv2.LINE_AA, FRACTION)
    return np.ascontiguousarray(made[..., 0]).reshape(len(made), -1)
