"""Which objects of a stream are asked about, and what was said about them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

import numpy as np

from gstinfer.geometry import clip_boxes
from gstinfer.image import Image
from gstinfer.results import Attribute, Classifications, Detections, Text

__all__ = ["ObjectQuestions"]

REMEMBERED = 10_000
"""Most objects of a stream that are remembered; the one not seen for longest goes first."""

MARGIN = 0.1
"""Part of an object's sides that is shown around it."""

LONGEST = 120
"""Letters of an answer that become an attribute."""


@dataclass
class _Known:
    """One object: the PTS of the last question, whether its answer is awaited, and what was said."""

    asked: int
    waiting: bool = True
    said: tuple[Attribute, ...] = ()


class ObjectQuestions:
    """The objects of one stream; not thread-safe.

    Args:
        labels: Classes that are asked about, separated by commas; empty for all.
        min_size: Least side of an object, pixels.
        ask_again: Seconds after which an object is asked about again; 0 for never.
    """

    def __init__(self, labels: str = "", min_size: int = 32, ask_again: float = 0.0) -> None:
        self.wanted = frozenset(filter(None, (part.strip().lower() for part in labels.split(","))))
        self.min_size, self.again = min_size, round(ask_again * 1e9)
        self.known: OrderedDict[int, _Known] = OrderedDict()
        self.untracked = False
        self._counts: Counter[str] = Counter()

    def choose(self, found: Detections, pts: int) -> list[int]:
        """Rows of the objects that are to be asked about now."""
        if found.tracker_id is None:
            self.untracked = True
            self._counts["objects-untracked"] += len(found)
            return []
        labels = found.named(None).label or []
        predicted = found.data.get("predicted")
        rows = []
        for row, track in enumerate(found.tracker_id.tolist()):
            if self.wanted and labels[row].lower() not in self.wanted:
                continue
            if track < 0:
                self._counts["objects-untracked"] += 1
                continue
            entry = self.known.get(track)
            if entry is not None:
                self.known.move_to_end(track)
                if entry.waiting or not (self.again and pts - entry.asked >= self.again):
                    continue
            if predicted is not None and predicted[row]:
                continue
            rows.append(row)
        return rows

    def crop(self, image: Image, found: Detections, row: int) -> Image | None:
        """The picture of an object with a margin around it; None where it is too small, which is counted."""
        box = clip_boxes(found.xyxy[row : row + 1], image.width, image.height)[0]
        sides = box[2:] - box[:2]
        if sides.min() < self.min_size:
            self._counts["objects-too-small"] += 1
            return None
        limits = np.array([image.width, image.height])
        low = np.floor(np.maximum(box[:2] - MARGIN * sides, 0)).astype(int)
        high = np.ceil(np.minimum(box[2:] + MARGIN * sides, limits)).astype(int)
        if image.layout.is_yuv:
            low &= ~1
            high = np.minimum(high + high % 2, limits)
        (x1, y1), (x2, y2) = low.tolist(), high.tolist()
        return image.crop((x1, y1), (x2 - x1, y2 - y1))

    def asked(self, tracker_id: int, pts: int) -> None:
        """A question about an object goes out."""
        entry = self.known.get(tracker_id)
        self.known[tracker_id] = _Known(pts, said=entry.said if entry is not None else ())
        while len(self.known) > REMEMBERED:
            self.known.popitem(last=False)

    def answered(self, tracker_id: int, text: Text, classes: list[Classifications], component_id: int) -> None:
        """An answer came: the classes in it, else its first line, become attributes of the object."""
        entry = self.known.get(tracker_id)
        if entry is None:
            return
        entry.waiting = False
        if classes:
            entry.said = tuple(attribute for part in classes for attribute in part.attributes())
        elif text.text.strip() and not text.invalid:
            line = text.text.strip().splitlines()[0][:LONGEST]
            entry.said = (Attribute(line, 0, 1.0, component_id),)

    def unanswered(self, tracker_id: int) -> None:
        """A question was dropped or failed: the object may be asked about again."""
        entry = self.known.get(tracker_id)
        if entry is None:
            return
        if entry.said:
            entry.waiting = False
        else:
            del self.known[tracker_id]

    def attach(self, found: Detections | None, component_id: int) -> Detections | None:
        """The objects with what was said about them; None where nothing was said about any."""
        if found is None or found.tracker_id is None:
            return None
        said = {
            row: entry.said
            for row, track in enumerate(found.tracker_id.tolist())
            if (entry := self.known.get(track)) is not None and entry.said
        }
        if not said:
            return None
        attributes: list[tuple[Attribute, ...]] = list(found.attributes or [()] * len(found))
        for row, words in said.items():
            kept = tuple(word for word in attributes[row] if word.component_id != component_id)
            attributes[row] = (*kept, *words)
        return found.with_columns(attributes=attributes)

    def take_counts(self) -> Counter[str]:
        """Objects left out by reason, since the last time."""
        counts, self._counts = self._counts, Counter()
        return counts
