"""Crops of objects, and what was found on them put onto the objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gstinfer.errors import ResultError
from gstinfer.frames import Frame
from gstinfer.geometry import clip_boxes
from gstinfer.results import Attribute, Classifications, Detections, Result, SegmentationMap, Tensors, Text

__all__ = ["Crop", "attach"]

LEAST = 2
"""Pixels that a side of a crop has at least."""

ROUNDING = 1e-3
"""What differs from a whole number by so little does so by rounding alone."""


@dataclass(eq=False)
class Crop:
    """One object of one frame as a picture.

    Attributes:
        number: Which frame of the batch.
        row: Which object of the frame.
        frame: The crop as a frame; its picture is a region of the frame's.
        sides: (width, height) of the object's box, of a rotated one along its own axes.
        key: Stream and tracker id, or None where it is not tracked.
        result: What the model said, in pixels of the crop, or None while it has not.
    """

    number: int
    row: int
    frame: Frame
    sides: tuple[float, float]
    key: tuple[str, int] | None = None
    result: tuple[Result, ...] | None = None

    @classmethod
    def of(cls, number: int, row: int, frame: Frame, found: Detections) -> Crop | None:
        """The crop of one object; None where less than two pixels a side are left of it.

        An upright box is clipped to the frame and brought to whole pixels; where pixels share chroma samples, to whole samples
        inside of the box, as nvinfer does. A rotated box is cut out along its own axes.
        """
        image, angle = frame.image, 0.0
        if found.obb is not None:
            cx, cy, width, height, angle = found.obb[row].tolist()
            angle = math.remainder(angle, math.tau)
        if abs(angle) > 1e-4:
            sides = width, height
            size = round(width), round(height)
            origin: tuple[float, float] = (cx - size[0] / 2, cy - size[1] / 2)
        else:
            angle = 0.0
            x1, y1, x2, y2 = clip_boxes(found.xyxy[row : row + 1], image.width, image.height)[0].tolist()
            sides = x2 - x1, y2 - y1
            across, down = image.layout.subsampling if image.layout.is_yuv else (1, 1)
            left, right = _whole(x1, x2, across, image.width)
            top, bottom = _whole(y1, y2, down, image.height)
            origin, size = (left, top), (right - left, bottom - top)
        if min(size) < LEAST:
            return None
        picture = Frame(
            image.crop(origin, size, angle), frame.stream_id, frame.pts, frame.sequence, frame.time, source=frame.source
        )
        return cls(number, row, picture, sides)

    def close(self) -> None:
        """Lets go of the frame's pixels."""
        self.frame.image.planes = ()

    def attributes(self, best: int) -> tuple[Attribute, ...]:
        """What was said about the object itself: the best classes of each answer, and texts.

        Raises:
            ResultError: A kind of result that an object cannot carry.
        """
        said: list[Attribute] = []
        for part in self.result or ():
            if isinstance(part, Classifications):
                said += part.attributes()[:best]
            elif isinstance(part, Text):
                said.append(Attribute(part.text, 0, 1.0, part.component_id))
            elif isinstance(part, SegmentationMap):
                raise ResultError(
                    "a segmentation map of an object cannot be carried",
                    hint="use process-mode=1, or a model that gives instance masks (Detections.mask)",
                )
        return tuple(said)


def _whole(low: float, high: float, step: int, end: int) -> tuple[int, int]:
    """The whole steps inside of a stretch; the last pixels of a frame count as one though they may be less."""
    first, last = math.ceil(low / step - ROUNDING), math.floor(high / step + ROUNDING)
    return first * step, end if high >= end else last * step


def attach(
    found: Detections, words: Mapping[int, tuple[Attribute, ...]], crops: Sequence[Crop], component_id: int
) -> Detections:
    """A frame's objects with what was found on them.

    Args:
        found: The frame's objects; not changed.
        words: New attributes by row; they replace older ones of the same element.
        crops: Those of this frame that have results.
        component_id: unique-id of the element.
    """
    attributes, data = found.attributes, dict(found.data)
    if words:
        attributes = list(attributes) if attributes is not None else [()] * len(found)
        for row, said in words.items():
            kept = tuple(word for word in attributes[row] if word.component_id != component_id)
            attributes[row] = (*kept, *said)
    for crop in crops:
        for part in crop.result or ():
            if isinstance(part, Tensors):
                for name, array in part.outputs.items():
                    column = data.setdefault(f"tensor:{component_id}:{name}", [None] * len(found))
                    column[crop.row] = array
    found = found.with_columns(attributes=attributes, data=data)
    children, rows = [], []
    for crop in crops:
        for part in crop.result or ():
            if isinstance(part, Detections) and len(part):
                region = crop.frame.image.region
                assert region is not None
                children.append(part.placed(region.transform()))
                rows += [crop.row] * len(part)
    if not children:
        return found
    parent = np.full(len(found), -1, np.int64) if found.parent is None else found.parent
    merged = Detections.merge([found, *children])
    return merged.with_columns(parent=np.concatenate([parent, np.array(rows, np.int64)]))
