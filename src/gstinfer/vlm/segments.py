"""Which frames of a stream are kept, and where one segment ends and the next begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.image import Image
from gstinfer.preprocess import Preprocessing, prepare

__all__ = ["Cut", "SamplingPlan", "Segment", "StreamSampler", "shrink", "thumbnail"]

THUMBNAIL = (32, 18)
"""Size of the picture that scene changes are looked for on."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A question about a span of one stream: what a model is given.

    Attributes:
        stream_id: Which stream.
        start: PTS of the first frame of the span, ns.
        end: PTS of the last one, ns.
        images: RGB pictures, uint8 ``[h,w,3]``, oldest first; copies that may be kept.
        timestamps: PTS of each picture, ns.
        prompt: The question, placeholders filled in.
        system_prompt: What the model is told before it, or empty.
        prompt_id: Which prompt it is.
        schema: JSON Schema that the answer must fit, or None.
        objects: Most objects of each label that were seen on one frame of the span.
        tracker_id: The object that the one picture shows, or None where pictures are whole frames.
    """

    stream_id: str
    start: int
    end: int
    images: tuple[NDArray[np.uint8], ...]
    timestamps: tuple[int, ...]
    prompt: str = ""
    system_prompt: str = ""
    prompt_id: str = ""
    schema: Mapping[str, Any] | None = None
    objects: Mapping[str, int] = field(default_factory=dict)
    tracker_id: int | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the pictures."""
        return sum(image.nbytes for image in self.images)


@dataclass(frozen=True)
class SamplingPlan:
    """When a frame is kept.

    Attributes:
        segment: Length of a segment, ns.
        overlap: Part of it that the next one shows again, ns; less than ``segment``.
        interval: Time between two frames that are kept, ns.
        every: Keep each N-th frame instead; 0 for ``interval``.
        scene: Keep a frame only where the picture differs from the last kept one by this much: the mean difference of
            pixels, 0..1. 0 for always.
        most: Most frames of a segment; where there would be more, every second one is let go.
    """

    segment: int
    overlap: int = 0
    interval: int = 500_000_000
    every: int = 0
    scene: float = 0.0
    most: int = 16


@dataclass(frozen=True, eq=False)
class Cut:
    """A finished span of a stream.

    Attributes:
        start: PTS of its first frame, ns.
        end: PTS of its last frame, ns.
        samples: (PTS, picture) of the frames kept.
        objects: Most objects of each label on one frame.
        wanted: Whether the condition held on any frame.
    """

    start: int
    end: int
    samples: tuple[tuple[int, NDArray[np.uint8]], ...]
    objects: Counter[str]
    wanted: bool


@dataclass
class _Note:
    """What was seen on frames up to one of PTS ``last``."""

    last: int
    objects: Counter[str]
    wanted: bool


class StreamSampler:
    """The open segment of one stream. Streaming thread only.

    Args:
        plan: When a frame is kept.
    """

    def __init__(self, plan: SamplingPlan) -> None:
        self.plan = plan
        self._samples: list[tuple[int, NDArray[np.uint8]]] = []
        # What was seen, a new note where it changes.
        self._notes: list[_Note] = []
        self._start: int | None = None
        self._last = 0
        self._fresh = False
        self._due: int | None = None
        self._count = 0
        self._stride, self._offered = 1, 0
        self._before: NDArray[np.int16] | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the pictures kept."""
        return sum(image.nbytes for _, image in self._samples)

    def advance(self, pts: int) -> list[Cut]:
        """Segments that are over now that a frame of this PTS came."""
        if self._start is not None and pts < self._last:
            # Time went backwards without a flush: what was kept belongs to another span.
            self.clear()
        plan, cuts = self.plan, []
        while self._start is not None and pts >= self._start + plan.segment:
            if self._fresh:
                cuts.append(self._cut())
            following = self._start + plan.segment - plan.overlap
            self._samples = [sample for sample in self._samples if sample[0] >= following]
            self._notes = [note for note in self._notes if note.last >= following]
            self._fresh, self._stride, self._offered = False, 1, 0
            # After a gap nothing is left to overlap with: the next segment begins at this frame.
            self._start = following if self._samples or pts < following + plan.segment else pts
        if self._start is None:
            self._start = pts
        self._last = pts
        return cuts

    def note(self, pts: int, objects: Counter[str], wanted: bool) -> None:
        """What was seen on a frame, and whether the condition held."""
        newest = self._notes[-1] if self._notes else None
        if newest is not None and newest.objects == objects and newest.wanted == wanted:
            newest.last = pts
        else:
            self._notes.append(_Note(pts, objects, wanted))

    def due(self, pts: int, image: Image) -> bool:
        """Whether the frame is to be kept; each frame is asked for once."""
        plan = self.plan
        self._count += 1
        if plan.every:
            due = (self._count - 1) % plan.every == 0
        else:
            due = self._due is None or pts >= self._due or pts < self._due - plan.interval
            if due:
                # On a grid, so that rounding of single frames does not add up.
                steps = 1 if self._due is None or pts < self._due else (pts - self._due) // plan.interval + 1
                first = pts if self._due is None or pts < self._due - plan.interval else self._due
                self._due = first + steps * plan.interval
        if not due:
            return False
        if plan.scene:
            now = thumbnail(image)
            if self._before is not None and np.abs(now - self._before).mean() < plan.scene * 255:
                return False
            self._before = now
        self._offered += 1
        return (self._offered - 1) % self._stride == 0

    def idle(self, pts: int) -> bool:
        """Whether a frame of this PTS neither ends a segment nor is due; it counts as seen then."""
        plan = self.plan
        if plan.every or self._start is None or self._due is None:
            return False
        if not (self._last <= pts < self._start + plan.segment and self._due - plan.interval <= pts < self._due):
            return False
        self._last = pts
        self._count += 1
        return True

    def keep(self, pts: int, picture: NDArray[np.uint8]) -> None:
        """Keeps the picture of a frame that was due."""
        if len(self._samples) >= self.plan.most:
            self._samples = self._samples[::2]
            self._stride *= 2
            self._offered = 1
        self._samples.append((pts, picture))
        self._fresh = True

    def finish(self) -> Cut | None:
        """The open segment where anything new was kept in it; the stream begins anew."""
        cut = self._cut() if self._fresh and self._samples else None
        self.clear()
        return cut

    def clear(self) -> None:
        """Forgets everything; the next frame begins a segment."""
        self._samples, self._notes, self._start, self._fresh = [], [], None, False
        self._due, self._before, self._count, self._stride, self._offered = None, None, 0, 1, 0

    def _cut(self) -> Cut:
        assert self._start is not None
        objects: Counter[str] = Counter()
        for note in self._notes:
            objects |= note.objects
        end = min(self._last, self._start + self.plan.segment - 1)
        wanted = any(note.wanted for note in self._notes)
        return Cut(min(self._start, self._samples[0][0]), end, tuple(self._samples), objects, wanted)


def shrink(image: Image, side: int) -> NDArray[np.uint8]:
    """A copy of a picture in host memory as RGB, its longer side at most ``side`` pixels.

    Resized in the picture's own format and on its own device first.
    """
    factor = min(1.0, side / max(image.size))
    size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
    return _host(image, Preprocessing(size, "stretch", color="rgb", scale=1.0, layout="NHWC", dtype="uint8"))


def thumbnail(image: Image) -> NDArray[np.int16]:
    """The grey picture that scene changes are looked for on."""
    spec = Preprocessing(THUMBNAIL, "stretch", color="gray", scale=1.0, layout="NHWC", dtype="uint8")
    return _host(image, spec).astype(np.int16)


def _host(image: Image, spec: Preprocessing) -> NDArray[np.uint8]:
    array, _ = prepare([image], spec)
    if image.device.is_cuda:
        from gstinfer.preprocess import cuda

        array = cuda.engine(image.device.index).backend.to_host(array)
    picture: NDArray[np.uint8] = np.ascontiguousarray(array[0])
    return picture
