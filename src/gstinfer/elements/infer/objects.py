"""Inference on objects: crops of what earlier elements found go to the runner, results come back onto the objects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.elements.infer.attach import Crop, attach
from gstinfer.elements.infer.settings import InferSettings, class_ids
from gstinfer.elements.infer.stage import InferStage, Pending
from gstinfer.errors import ConfigError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.results import Attribute, Detections
from gstinfer.ticket import Ticket

__all__ = ["ObjectStage"]

CROPS = 16
"""Most crops in a batch where ``batch-size`` is 0."""

GROWTH = 1.2
"""A tracked object is inferred again when its area is this many times that of the last time: nvinfer's rule."""

REMEMBERED = 8192
"""Most tracked objects whose classes are kept; the one not seen for longest goes first."""

UNMATCHED = 50
"""Frames whose objects all come from other elements before a warning."""


@dataclass
class _Known:
    """What was found out about a tracked object.

    Attributes:
        sequence: Number of the frame that it was inferred on last.
        area: Of its box there, pixels.
        attributes: What was said then.
        waiting: Whether a crop of it is on its way.
        lasting: Whether the answer holds for later frames: classes do, objects found on it do not.
    """

    sequence: int
    area: float
    attributes: tuple[Attribute, ...] = ()
    waiting: bool = True
    lasting: bool = True


class _Pending(Pending):
    """Objects on their way.

    Attributes:
        crops: What was submitted, in the order of the ticket.
        known: For each frame, the tracked objects that have classes of their own, as (row, key).
    """

    __slots__ = ("crops", "known")

    def __init__(
        self,
        stage: ObjectStage,
        batch: FrameBatch,
        ticket: Ticket | None,
        crops: list[Crop],
        known: list[tuple[int, int, tuple[str, int]]],
    ) -> None:
        super().__init__(stage, batch, ticket)
        self.crops, self.known = crops, known

    def wait(self) -> None:
        super().wait()
        self._close()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self._close()

    def _close(self) -> None:
        # A thread that still holds the last batch must not hold the buffer's memory: others want to write there.
        for crop in self.crops:
            crop.close()


class ObjectStage(InferStage):
    """Runs a model on objects that earlier elements found (``process-mode=2``); see ``InferStage`` for the arguments.

    Classes are attached to the object as ``Attribute``, objects found on it join the frame's with ``parent`` set to its
    row. A tracked object whose answer was classes keeps them, and is inferred again only when it has grown or
    ``secondary-reinfer-interval`` has passed.
    """

    default_batch = CROPS

    def __init__(self, settings: InferSettings, *arguments: Any, **named: Any) -> None:
        super().__init__(settings, *arguments, **named)
        self._classes = class_ids(settings.infer_on_class_ids)
        self._known: OrderedDict[tuple[str, int], _Known] = OrderedDict()
        self._forget = False
        self._unmatched = 0

    def _refuse(self) -> None:
        if self.settings.tracker:
            raise ConfigError(
                "tracker follows objects of whole frames; it does not apply to process-mode=2",
                hint="set tracker on the element before, or put pytrack between the two",
            )
        low = self.settings.input_object_min_width, self.settings.input_object_min_height
        high = self.settings.input_object_max_width, self.settings.input_object_max_height
        for name, least, most in zip(("width", "height"), low, high):
            if most and most < least:
                raise ConfigError(f"input-object-max-{name}={most} is less than input-object-min-{name}={least}")

    def submit(self, batch: FrameBatch) -> Pending:
        if self._forget:
            self._forget = False
            self._known.clear()
        if self.lane is None:
            self.open(batch.device)
        skips = self.skips(batch[0].pts if len(batch) else None, len(batch))
        crops: list[Crop] = []
        known: list[tuple[int, int, tuple[str, int]]] = []
        for number, frame in enumerate(batch):
            found = frame.results.detections
            if found is not None and len(found):
                self._choose(number, frame, found, crops, known, infer=not skips)
        ticket = None
        assert self.lane is not None or skips
        if crops and self.lane is not None:
            ticket = self.lane.submit([crop.frame for crop in crops])
        elif self.lane is not None:
            # Others need not wait for crops that this stream does not have.
            self.lane.idle()
        return _Pending(self, batch, ticket, crops, known)

    def _choose(
        self,
        number: int,
        frame: Frame,
        found: Detections,
        crops: list[Crop],
        known: list[tuple[int, int, tuple[str, int]]],
        infer: bool,
    ) -> None:
        """Adds the crops of one frame, and the objects whose classes are known or will be."""
        rows = self._matching(found)
        if not len(rows):
            return
        predicted = found.data.get("predicted")
        for row in rows.tolist():
            tracker_id = -1 if found.tracker_id is None else int(found.tracker_id[row])
            key = (frame.stream_id, tracker_id)
            entry = self._known.get(key) if tracker_id >= 0 else None
            if entry is not None:
                self._known.move_to_end(key)
                known.append((number, row, key))
            if not infer or (predicted is not None and predicted[row]):
                continue
            area = _area(found, row)
            if entry is not None and not self._due(entry, frame.sequence, area):
                self.counts["kept"] += 1
                continue
            crop = Crop.of(number, row, frame, found)
            if crop is None or not self._fits(crop.sides):
                self.counts["objects-too-small" if crop is None else "objects-out-of-size"] += 1
                continue
            if tracker_id >= 0:
                if entry is None:
                    entry = self._known[key] = _Known(frame.sequence, area)
                    known.append((number, row, key))
                    while len(self._known) > REMEMBERED:
                        self._known.popitem(last=False)
                entry.sequence, entry.area, entry.waiting = frame.sequence, area, True
                crop.key = key
            crops.append(crop)

    def _matching(self, found: Detections) -> NDArray[np.int64]:
        """Rows of the element and the classes that are wanted."""
        wanted = np.ones(len(found), bool)
        source = self.settings.infer_on_gie_id
        if source >= 0:
            wanted = found.component_id == source
            if wanted.any():
                self._unmatched = -1
            elif self._unmatched >= 0:
                self._unmatched += 1
                if self._unmatched == UNMATCHED:
                    self._unmatched = -1
                    others = ", ".join(map(str, np.unique(found.component_id).tolist()))
                    self.notify(
                        ConfigError(
                            f"infer-on-gie-id={source}: none of the objects of {UNMATCHED} frames is of that element, "
                            f"they are of {others}",
                            hint="set infer-on-gie-id to the unique-id of the element that finds the objects",
                        )
                    )
        if self._classes.size:
            wanted = wanted & np.isin(found.class_id, self._classes)
        rows: NDArray[np.int64] = np.flatnonzero(wanted)
        return rows

    def _fits(self, sides: tuple[float, float]) -> bool:
        s = self.settings
        limits = (s.input_object_min_width, s.input_object_max_width), (
            s.input_object_min_height,
            s.input_object_max_height,
        )
        return all(low <= side and (not high or side <= high) for side, (low, high) in zip(sides, limits))

    def _due(self, entry: _Known, sequence: int, area: float) -> bool:
        """Whether a known object is to be inferred again."""
        if entry.waiting:
            return False
        interval = self.settings.secondary_reinfer_interval
        if interval is None and not entry.lasting:
            return True
        return area > GROWTH * entry.area or (interval is not None and sequence - entry.sequence > interval)

    def _deliver(self, pending: Pending, results: Sequence[Any], model: str) -> None:
        assert isinstance(pending, _Pending)
        for crop, result in zip(pending.crops, results):
            crop.result = tuple(self._signed(part) for part in result)
        self.counts["inferred"] += len(pending.crops)
        self._complain(model)

    def _complete(self, pending: Pending) -> None:
        """Puts what is known now onto the objects of each frame."""
        assert isinstance(pending, _Pending)
        best = self.settings.classes_per_object
        said: dict[tuple[int, int], tuple[Attribute, ...]] = {}
        for crop in pending.crops:
            if crop.result is None:
                continue
            attributes = said[crop.number, crop.row] = crop.attributes(best)
            entry = self._known.get(crop.key) if crop.key is not None else None
            if entry is not None:
                entry.attributes, entry.waiting = attributes, False
                entry.lasting = not any(isinstance(part, Detections) for part in crop.result)
        for number, row, key in pending.known:
            entry = self._known.get(key)
            if entry is not None and (number, row) not in said:
                said[number, row] = entry.attributes
        for number, frame in enumerate(pending.batch):
            mine = {row: words for (n, row), words in said.items() if n == number and words}
            crops = [crop for crop in pending.crops if crop.number == number and crop.result]
            if mine or crops:
                before = frame.results
                assert before.detections is not None
                after = attach(before.detections, mine, crops, self.settings.unique_id)
                frame.results = replace(before, detections=after)

    def _abandon(self, pending: Pending) -> None:
        """Objects whose inference failed may be tried again."""
        assert isinstance(pending, _Pending)
        for crop in pending.crops:
            entry = self._known.get(crop.key) if crop.key is not None else None
            if entry is not None and entry.waiting:
                del self._known[crop.key]  # type: ignore[arg-type]

    def _pass(self, batch: Iterable[Frame]) -> None:
        """Frames stay as they are: whether they were inferred as a whole is not this element's to say."""

    def change(self, name: str, value: Any) -> None:
        super().change(name, value)
        self._forget = True

    def _swapped(self, spec: str, error: BaseException | None) -> None:
        super()._swapped(spec, error)
        self._forget = self._forget or error is None

    def reset(self, stream_id: str) -> None:
        super().reset(stream_id)
        for key in [key for key in self._known if key[0] == stream_id]:
            del self._known[key]

    def stop(self) -> None:
        super().stop()
        self._known.clear()

    def stats(self) -> dict[str, Any]:
        """As ``InferStage``; ``inferred`` counts objects, ``kept`` those whose earlier classes were used."""
        extra = ("kept", "objects-too-small", "objects-out-of-size")
        return {**super().stats(), **{name: self.counts[name] for name in extra}, "remembered": len(self._known)}


def _area(found: Detections, row: int) -> float:
    if found.obb is not None:
        return float(found.obb[row, 2] * found.obb[row, 3])
    x1, y1, x2, y2 = found.xyxy[row].tolist()
    return (x2 - x1) * (y2 - y1)
