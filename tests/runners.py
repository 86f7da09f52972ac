"""A runner with a model that shows a mixed-up frame."""

from __future__ import annotations

import time

import numpy as np

from gstinfer import Detections, Model
from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.model import LoadedModel
from gstinfer.runner import ModelRunner, RunnerConfig


def frame(stream: str, number: int) -> Frame:
    picture = np.full((4, 4, 3), number % 256, np.uint8)
    return Frame(Image.from_array(picture), stream_id=stream, pts=number, sequence=number)


class Echo(Model):
    """Puts the mean of the picture into the class, so that a mixed-up frame shows."""

    def __init__(self, seconds: float = 0.0, fail_on: int = -1) -> None:
        super().__init__()
        self.seconds, self.fail_on, self.batches = seconds, fail_on, []

    def predict(self, batch):
        self.batches.append([f.stream_id for f in batch])
        time.sleep(self.seconds)
        found = []
        for item, picture in zip(batch, batch.images("rgb")):
            if item.pts == self.fail_on:
                raise RuntimeError("the fan is off")
            found.append(Detections([[0, 0, 2, 2]], class_id=[int(picture.mean())]))
        return found


def start(model: Model, **config) -> ModelRunner:
    def load() -> LoadedModel:
        loaded = LoadedModel(model, "echo")
        loaded.load("cpu")
        return loaded

    runner = ModelRunner(load, RunnerConfig("echo", **config))
    runner.start()
    return runner
