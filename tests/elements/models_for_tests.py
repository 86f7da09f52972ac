"""Models as a user would write them."""

from __future__ import annotations

import time

import numpy as np

from gstinfer import Detections, Model, option


class MeanColor(Model):
    """Class: red mean of the picture; box: fixed."""

    labels = ("a", "b")

    def predict(self, batch):
        return [Detections([[1, 2, 11, 12]], class_id=[int(p[..., 0].mean())]) for p in batch.images("rgb")]


class RaisesOnThird(Model):
    number = 0

    def predict(self, batch):
        self.number += len(batch)
        if self.number == 3:
            raise ValueError("the third frame is cursed")
        return [None] * len(batch)


class WrongCount(Model):
    def predict(self, batch):
        return []


class NotANumber(Model):
    def predict(self, batch):
        return [Detections([[np.nan, 0, 5, 5], [0, 0, 5, 5]]) for _ in batch]


class Options(Model):
    size = option(int, 10, "Side of the box", minimum=1)
    word = option(str, "x", "Label of the box")

    def predict(self, batch):
        return [Detections([[0, 0, self.size, self.size]], label=[self.word]) for _ in batch]


class Slow(Model):
    seconds = option(float, 0.1, "Time of one batch")

    def predict(self, batch):
        time.sleep(self.seconds)
        return [Detections.empty() for _ in batch]


class Number(Model):
    """The label is the given word, at class 0."""

    word = option(str, "one", "Label")

    def predict(self, batch):
        return [Detections([[0, 0, 4, 4]], label=[self.word]) for _ in batch]


def function(batch):
    return [Detections([[0, 0, f.width / 2, f.height / 2]]) for f in batch]


def unchanged(frame, results):
    """A callback."""


class Hangs(Model):
    """Works on its third batch for a second."""

    number = 0

    def predict(self, batch):
        self.number += 1
        if self.number == 3:
            time.sleep(1)
        return [None] * len(batch)


class Moves(Model):
    """One object that moves by three pixels a frame; a frame with another's number is an error."""

    def predict(self, batch):
        time.sleep(0.002)
        numbers = [round(frame.pts * 30 / 1e9) for frame in batch]
        for frame, number in zip(batch, numbers):
            if frame.sequence != number:
                raise ValueError(f"frame {number} says that it is the {frame.sequence}th")
        return [Detections([[10 + 3 * n, 20, 40 + 3 * n, 60]]) for n in numbers]
