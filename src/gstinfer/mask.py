"""Bitmaps of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform

__all__ = ["Mask"]


@dataclass(frozen=True)
class Mask:
    """A boolean bitmap in frame pixels, placed at an integer origin; nothing is set outside of it.

    Attributes:
        x: Left column of the bitmap in the frame.
        y: Top row of the bitmap in the frame.
        bitmap: bool ``[h,w]``.
    """

    x: int
    y: int
    bitmap: NDArray[np.bool_]

    def to_frame(self, width: int, height: int) -> NDArray[np.bool_]:
        """The whole frame as bool ``[height,width]``."""
        out = np.zeros((height, width), bool)
        h, w = self.bitmap.shape
        x1, y1, x2, y2 = max(0, self.x), max(0, self.y), min(width, self.x + w), min(height, self.y + h)
        if x2 > x1 and y2 > y1:
            out[y1:y2, x1:x2] = self.bitmap[y1 - self.y : y2 - self.y, x1 - self.x : x2 - self.x]
        return out

    def rle(self, width: int, height: int) -> dict[str, Any]:
        """COCO's uncompressed run-length code of the whole frame: column-major counts, zeros first."""
        x1, y1 = max(0, self.x), max(0, self.y)
        part = self.bitmap[y1 - self.y : max(0, height - self.y), x1 - self.x : max(0, width - self.x)]
        columns, rows = np.nonzero(part.T)
        # Only set pixels are walked: a run begins and ends where their column-major index jumps.
        index = (columns + x1) * height + rows + y1
        jumps = np.flatnonzero(np.diff(index) != 1)
        if index.size:
            starts, ends = index[np.concatenate([[0], jumps + 1])], index[np.concatenate([jumps, [-1]])] + 1
            edges = np.stack([starts, ends], 1).ravel()
        else:
            edges = index
        counts = np.diff(np.concatenate([[0], edges, [width * height]])).tolist()
        if len(counts) > 1 and counts[-1] == 0:
            counts.pop()
        return {"size": [height, width], "counts": counts}

    @classmethod
    def from_frame(cls, mask: NDArray[Any], box: Sequence[float] | None = None) -> Mask:
        """Cuts a whole-frame mask ``[H,W]`` to a box (x1,y1,x2,y2), or to what is set."""
        mask = np.asarray(mask, bool)
        if box is None:
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            if not rows.size:
                return cls(0, 0, np.zeros((0, 0), bool))
            x1, y1, x2, y2 = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        else:
            x1, y1 = max(0, int(np.floor(box[0]))), max(0, int(np.floor(box[1])))
            x2, y2 = max(x1, int(np.ceil(box[2]))), max(y1, int(np.ceil(box[3])))
        return cls(int(x1), int(y1), mask[y1:y2, x1:x2].copy())

    def placed(self, transform: ImageTransform) -> Mask:
        """A bitmap in pixels of a network's input, or of a crop, as one of the frame; by nearest neighbour."""
        height, width = self.bitmap.shape
        if not transform.angle and transform.scale == (1, 1) and transform.pad == (0, 0):
            return Mask(self.x + int(transform.origin[0]), self.y + int(transform.origin[1]), self.bitmap)
        if not self.bitmap.size:
            return self
        place = np.array([self.x, self.y])
        corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32) + place
        placed = transform.points_to_frame(corners)
        (x1, y1), (x2, y2) = np.floor(placed.min(0)).astype(int), np.ceil(placed.max(0)).astype(int)
        xs, ys = np.meshgrid(np.arange(x1, x2) + 0.5, np.arange(y1, y2) + 0.5)
        inside = np.floor(transform.points_to_input(np.stack([xs, ys], -1))).astype(int) - place
        columns, rows = inside[..., 0], inside[..., 1]
        good = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
        bitmap = np.zeros(good.shape, bool)
        bitmap[good] = self.bitmap[rows[good], columns[good]]
        return Mask(int(x1), int(y1), bitmap)
