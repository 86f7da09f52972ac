"""Models for objects, as a user would write them. Lists of this module record what they were given."""

from __future__ import annotations

import numpy as np

from gstinfer import Classifications, Detections, Mask, Model, SegmentationMap, Tensors, Text

SEEN: list[list] = []
"""One entry per predict: its pictures."""


class Recorder(Model):
    labels = ("plain",)

    def predict(self, batch):
        SEEN.append([p.copy() for p in batch.images("rgb")])
        return [self.answer(p) for p in SEEN[-1]]

    def answer(self, picture):
        return Classifications([0], [0.75])


class FirstPixel(Recorder):
    """Class: red of the first pixel. A second, less likely class is twice that."""

    labels = None

    def answer(self, picture):
        red = int(picture[0, 0, 0])
        return Classifications([red, 2 * red], [0.75, 0.25])


class Inner(Recorder):
    """An object in the right lower quarter of each picture, with everything on it."""

    labels = ("inner",)

    def answer(self, picture):
        h, w = picture.shape[:2]
        mask = Mask(w // 2, h // 2, np.ones((h - h // 2, w - w // 2), bool))
        return Detections([[w / 2, h / 2, w, h]], [0.5], keypoints=[[[w / 2, h / 2, 0.9]]], mask=[mask])


class Keeps(Recorder):
    """Records the frames themselves."""

    def predict(self, batch):
        SEEN.append(list(batch))
        return [None] * len(batch)


class Words(Recorder):
    def answer(self, picture):
        return Text("AB 123"), Tensors({"embedding": np.arange(4) + picture.shape[0]})


class Map(Recorder):
    def answer(self, picture):
        return SegmentationMap(np.zeros((2, 2)))


class Fails(Recorder):
    """Raises when a picture begins with a red of 100."""

    def answer(self, picture):
        if picture[0, 0, 0] == 100:
            raise ValueError("a hundred")
        return Classifications([0], [0.75])


class Tint(Model):
    """Class 0, 1 or 2: which of red, green and blue is most, by mean."""

    labels = ("red", "green", "blue")

    def predict(self, batch):
        return [Classifications([int(np.argmax(p.mean((0, 1))))], [0.9]) for p in batch.images("rgb")]


class Finder(Model):
    """The bright part of a picture as one object of class 2, by the rows and columns that are over half."""

    labels = ("a", "b", "bright")

    def predict(self, batch):
        return [self.find(p) for p in batch.images("gray")]

    def find(self, picture):
        rows, columns = np.flatnonzero((picture > 128).any(1)), np.flatnonzero((picture > 128).any(0))
        if not len(rows):
            return None
        return Detections([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], [0.8], [2])


class Corners(Model):
    """Two objects, left top and right bottom."""

    def predict(self, batch):
        return [
            Detections([[0, 0, f.width / 2, f.height / 2], [f.width / 2, f.height / 2, f.width, f.height]])
            for f in batch
        ]
