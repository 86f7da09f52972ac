# SPDX-License-Identifier: Apache-2.0
"""Models for the tests of pyinfer on DeepStream: each says the same of every frame, whatever it sees, but for Mean."""

from __future__ import annotations

import numpy as np

from gstinfer import (
    Classifications,
    Detections,
    Mask,
    Model,
    SegmentationMap,
    Tensors,
    Text,
    option,
)

CHINESE = "交通信号灯" * 14  # 70 characters, 210 bytes


class Fixed(Model):
    """Gives ``say(width, height)`` for each frame."""

    def predict(self, batch):
        return [self.say(frame.width, frame.height) for frame in batch]


class Mean(Model):
    """The class is the mean of red, the box tells the frame's size, the confidence the batch's."""

    def predict(self, batch):
        pictures = batch.images("rgb")
        return [
            Detections([[0, 0, p.shape[1] / 2, p.shape[0] / 2]], [len(batch) / 100], [round(float(p[..., 0].mean()))])
            for p in pictures
        ]


class Detect(Fixed):
    labels = ("person", "car")

    def say(self, width, height):
        return Detections([[10, 20, 50, 60], [70.5, 30.25, 90, 100]], [0.9, 0.6], [1, 0])


class Rotated(Fixed):
    """The second leaves the frame when it is not turned."""

    labels = ("ship",)

    def say(self, width, height):
        return Detections(None, [0.8, 0.7], obb=[[80, 60, 40, 20, 0.5], [150, 60, 90, 16, 1.5]])


class Masked(Fixed):
    labels = ("cell",)

    def say(self, width, height):
        mask = np.zeros((height, width), bool)
        mask[30:40, 10:20] = mask[35:50, 15:30] = True
        return Detections([[10.5, 30, 30, 50], [0, 0, 4, 4]], mask=[Mask.from_frame(mask), Mask(0, 0, np.ones((2, 3), bool))])


class Classify(Fixed):
    def say(self, width, height):
        return Classifications([3, 1], [0.75, 0.125], ["sun|ny", "rain"])


class Segment(Fixed):
    def say(self, width, height):
        class_map = np.zeros((6, 8), np.int32)
        class_map[2:, 4:] = 2
        class_map[0, 0] = -1
        return SegmentationMap(class_map, ["road", "grass", "sky"], np.full((6, 8), 0.5, np.float32))


class Caption(Fixed):
    def say(self, width, height):
        return Text("两只猫 on a | sofa", data={"cats": 2}, start=0, end=40_000_000, prompt_id="p", model="vlm", tokens=7)


class Nothing(Fixed):
    def say(self, width, height):
        return None


class Crowd(Fixed):
    count = option(int, 300, "Objects")

    def say(self, width, height):
        corner = np.stack(np.divmod(np.arange(self.count), 20), 1)[:, ::-1] * [7, 6] + [1.5, 1.25]
        box = np.concatenate([corner, corner + np.array([6.5, 5.5])], 1)
        return Detections(box, np.linspace(0.3, 0.9, self.count), np.arange(self.count) % 80)


class Chinese(Fixed):
    def say(self, width, height):
        return Detections([[10, 20, 50, 60]], label=[CHINESE])


class Edges(Fixed):
    """Past every edge, and wholly outside."""

    def say(self, width, height):
        w, h = width, height
        return Detections(
            [
                [-20, 10, 30, 40],
                [10, -20, 40, 30],
                [w - 20, 10, w + 50, 40],
                [10, h - 20, 40, h + 50],
                [-9, -9, w + 9, h + 9],
                [w, 0, w + 5, 5],
                [5, 5, 5, 9],
            ],
            class_id=range(7),
        )


class Pose(Fixed):
    """One with 17 keypoints of which one is not seen, and an embedding; one with none seen."""

    labels = ("person",)

    def say(self, width, height):
        points = np.zeros((2, 17, 3), np.float32)
        points[0, :, 0], points[0, :, 1], points[0, :, 2] = 20 + np.arange(17) * 3, 30 + np.arange(17) * 2, 0.9
        points[0, 4, 2] = 0.1
        points[1, :, 2] = -1
        return Detections(
            [[15, 25, 80, 70], [100, 10, 120, 40]], keypoints=points, data={"embedding": [np.arange(4, dtype=np.float32), None]}
        )


class Raw(Fixed):
    def say(self, width, height):
        return Tensors({"scores": np.arange(6, dtype=np.float32).reshape(2, 3), "ids": np.arange(3, dtype=np.int64)})


class Several(Fixed):
    """Every kind at once."""

    def say(self, width, height):
        return (Detect().say(width, height), Classify().say(width, height), Caption().say(width, height))


class Raises(Model):
    """On its third batch."""

    number = 0

    def predict(self, batch):
        self.number += 1
        if self.number == 3:
            raise ValueError("the third batch is cursed")
        return [Detections([[0, 0, 9, 9]]) for _ in batch]


class Unwritable(Fixed):
    """A column that no meta can carry, behind one that can."""

    def say(self, width, height):
        return Detections([[0, 0, 9, 9], [9, 9, 20, 20]], data={"what": [1, object()]})


class Color(Model):
    """Second stage: what colour an object has."""

    def predict(self, batch):
        return [Classifications([7], [0.5], ["red" if p[..., 0].mean() > 127 else "dark"]) for p in batch.images("rgb")]


class Plate(Model):
    """Second stage: an object on each object."""

    labels = ("plate",)

    def predict(self, batch):
        return [Detections([[1, 2, 9, 8]], [0.4]) for _ in batch]


class All(Fixed):
    """Every kind of result and every column in one answer."""

    labels = ("person", "car")

    def say(self, width, height):
        crowd = Masked().say(width, height)
        found = Pose().say(width, height)
        found.mask = crowd.mask
        found.obb = np.array([[80, 60, 40, 20, 0.5], [150, 60, 90, 16, 1.5]], np.float32)
        found.label = [CHINESE, "a|b"]
        return (found, *(kind().say(width, height) for kind in (Classify, Segment, Caption, Raw)))


class Alternate(Model):
    """All columns, then plain objects, then a class of the frame with objects: each batch its own kind."""

    number = -1

    def predict(self, batch):
        self.number += 1
        kind = (All, Detect, Several)[self.number % 3]()
        found = [kind.say(frame.width, frame.height) for frame in batch]
        return [each.named(kind.labels) if isinstance(each, Detections) else each for each in found]
