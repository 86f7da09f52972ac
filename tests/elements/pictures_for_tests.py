"""Models that say what they saw."""

from __future__ import annotations

import numpy as np

from gstinfer import Classifications, Detections, Model


def cells(picture: np.ndarray, side: int = 4) -> list[int]:
    """Means of up to side x side cells, channel by channel."""
    picture = picture.reshape(*picture.shape[:2], -1)
    rows = np.array_split(picture, min(side, len(picture)))
    return [int(cell.mean((0, 1))[c]) for row in rows for cell in np.array_split(row, min(side, row.shape[1]), 1)
            for c in range(cell.shape[2])]  # fmt: skip


class Cells(Model):
    """The means of 4 x 4 cells of each picture, as the label of its class."""

    color = "rgb"

    def predict(self, batch):
        return [Classifications([0], [1.0], [" ".join(map(str, cells(p)))]) for p in batch.images(self.color)]


class GrayCells(Cells):
    color = "gray"


class Letterboxed(Model):
    """The same of a 64 x 64 network input."""

    def predict(self, batch):
        inputs, _ = batch.letterbox(64, scale=1.0, resize="stretch")
        return [Classifications([0], [1.0], [" ".join(map(str, cells(row.transpose(1, 2, 0))))]) for row in inputs]


class Brightness(Model):
    """The class is the grey level of the top left pixel."""

    def predict(self, batch):
        return [Detections([[0, 0, 1, 1]], class_id=[int(p[0, 0])]) for p in batch.images("gray")]


class Dirty(Model):
    """One good object among everything that a network may give."""

    labels = ("thing",)

    def predict(self, batch):
        nan, inf = float("nan"), float("inf")
        rows = [
            ([4, 4, 20, 20], 0.9, 0), ([nan, 4, 20, 20], 0.9, 0), ([4, 4, inf, 20], 0.9, 0), ([20, 20, 4, 4], 0.9, 0),
            ([4, 4, 20, 20], 1.5, 0), ([4, 4, 20, 20], nan, 0), ([0, 0, 0, 0], 0.0, 0), ([900, 900, 950, 950], 0.9, 0),
            ([8, 8, 30, 30], 0.8, 77), ([60, 60, 80, 80], 0.7, 0),
        ]  # fmt: skip
        return [Detections(*map(list, zip(*rows))) for _ in batch]
