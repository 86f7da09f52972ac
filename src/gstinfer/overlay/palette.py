"""Colours and words in the samples of one format: what is the same for all pictures of it, and kept from frame to frame."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gstinfer.image import FORMATS, ColorInfo
from gstinfer.overlay.color import RGB, plane_values

__all__ = ["Palette", "Tile", "palette_of"]

Pixels = NDArray[np.uint8]
Value = tuple[int, ...]


class Tile:
    """Opaque pixels, a piece for each plane.

    Args:
        pieces: ``[h,w]`` or ``[h,w,C]`` each.

    Attributes:
        width: Pixels of the picture.
        height: Pixels of the picture.
        data: The bytes of all pieces.
        starts: Where each of up to three pieces begins; 0 where there is none.
        planes: The pieces.
    """

    __slots__ = ("data", "height", "planes", "starts", "width")

    def __init__(self, pieces: list[Pixels]) -> None:
        self.height, self.width = pieces[0].shape[:2]
        self.data = b"".join(piece.tobytes() for piece in pieces)
        starts = [sum(piece.size for piece in pieces[:number]) for number in range(len(pieces))]
        first, second, third = (*starts, 0, 0)[:3]
        self.starts = first, second, third
        self.planes: list[Pixels] = [
            np.frombuffer(self.data, np.uint8, piece.size, start).reshape(piece.shape)
            for start, piece in zip(starts, pieces)
        ]


class Palette:
    """One format with one matrix and range.

    Attributes:
        step: Pixels across and down that share a chroma sample, as far as it is drawn on.
        shifts: Of each plane 1 where it is half-size.
        flat: Of each plane whether it has one channel and no axis for it.
        values: What a colour is in each plane.
        words: The same as three numbers, a plane's first channel in the lowest byte; 0 where there is no plane.
    """

    def __init__(self, format: str, color: ColorInfo) -> None:
        layout = FORMATS[format]
        halved = layout.is_yuv and layout.subsampling == (2, 2)
        shapes = layout.plane_shapes(2, 2)
        self.step = 2 if halved else 1
        self.shifts = tuple(int(halved and number > 0) for number in range(len(shapes)))
        self.flat = tuple(len(shape) == 2 for shape in shapes)
        self.values: Callable[[RGB], tuple[Value, ...]] = lru_cache(4096)(lambda rgb: plane_values(format, color, rgb))
        self.words: Callable[[RGB], tuple[int, int, int]] = lru_cache(4096)(self._words)

    def _words(self, rgb: RGB) -> tuple[int, int, int]:
        first, second, third = (*(int.from_bytes(bytes(value), "little") for value in self.values(rgb)), 0, 0)[:3]
        return first, second, third

    def tile(self, coverage: Pixels, ink: RGB, paper: RGB) -> Tile:
        """A rectangle of paper with ink where ``coverage`` ``[h,w]`` says so; sides are multiples of ``step``."""
        import cv2

        half = (coverage.shape[1] // 2, coverage.shape[0] // 2)
        small = cv2.resize(coverage, half, interpolation=cv2.INTER_AREA) if self.step > 1 else coverage
        pieces = []
        for shift, flat, low, high in zip(self.shifts, self.flat, self.values(paper), self.values(ink)):
            piece = _ramp(low, high)[small if shift else coverage]
            pieces.append(piece[..., 0] if flat else piece)
        return Tile(pieces)


@lru_cache(maxsize=64)
def palette_of(format: str, color: ColorInfo) -> Palette:
    """The palette of a format, made once."""
    return Palette(format, color)


@lru_cache(maxsize=1024)
def _ramp(paper: Value, ink: Value) -> Pixels:
    """Look-up table ``[256,C]`` from paper to ink by coverage."""
    share = np.arange(256)[:, None] / 255
    table: Pixels = np.rint(np.array(paper) + (np.array(ink) - np.array(paper)) * share).astype(np.uint8)
    return table
