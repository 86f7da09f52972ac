"""A second model on a share of the frames, compared with the one that runs; it publishes nothing, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import GstInferError, ModelLoadError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.image import Image
from gstinfer.model import LoadedModel
from gstinfer.preprocess import to_array
from gstinfer.results import Classifications, Detections, Result

__all__ = ["Shadow", "compare", "copy_frame", "release_shadow", "share_shadow"]

OVERLAP = 0.5
"""Least IoU of two boxes that count as the same object."""

BACKLOG = 2
"""Copied frames that wait at most; while the second model is busy with so many, further ones are missed and counted."""

REPORT_SECONDS = 1.0
"""Between two reports."""

PATIENCE = 30.0
"""Seconds that ``close`` waits for a model that hangs."""

Answer = Sequence[Result]


def compare(mine: Answer, other: Answer) -> Counter[str]:
    """Counts of what two models say about one frame.

    Boxes are paired one to one, the best overlap first, whatever their classes.

    Returns:
        ``matched``, ``only-running`` and ``only-shadow`` objects; of the matched ``iou`` and ``score-difference`` (absolute) as
        sums and ``class-differences``, which also counts frames whose best class differs.
    """
    counts: Counter[str] = Counter()
    a, b = _objects(mine), _objects(other)
    overlaps = _iou(a.xyxy, b.xyxy)
    free_a, free_b = set(range(len(a))), set(range(len(b)))
    for place in np.argsort(-overlaps, axis=None, kind="stable").tolist():
        i, j = divmod(place, max(1, len(b)))
        if overlaps[i, j] < OVERLAP:
            break
        if i in free_a and j in free_b:
            free_a.remove(i)
            free_b.remove(j)
            counts["matched"] += 1
            counts["iou"] += float(overlaps[i, j])  # type: ignore[assignment]
            counts["score-difference"] += abs(float(a.confidence[i]) - float(b.confidence[j]))  # type: ignore[assignment]
            counts["class-differences"] += _name(a, i) != _name(b, j)
    counts["only-running"] += len(free_a)
    counts["only-shadow"] += len(free_b)
    best, others = _best(mine), _best(other)
    counts["class-differences"] += sum(x != y for x, y in zip(best, others)) + abs(len(best) - len(others))
    return counts


def _objects(answer: Answer) -> Detections:
    found = [part for part in answer if isinstance(part, Detections)]
    return Detections.merge(found) if len(found) > 1 else found[0] if found else Detections.empty()


def _name(found: Detections, row: int) -> str:
    """Names are compared where both models have them: their numbers may differ."""
    return found.label[row] if found.label is not None else str(int(found.class_id[row]))


def _best(answer: Answer) -> list[str]:
    parts = [part.attributes() for part in answer if isinstance(part, Classifications)]
    return [max(words, key=lambda word: word.confidence).label for words in parts if words]


def _iou(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.clip(high - low, 0, None).astype(np.float64).prod(-1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).astype(np.float64).prod(-1) for x in (a, b))
    union = area_a[:, None] + area_b[None, :] - shared
    overlaps: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return overlaps


class Shadow:
    """Runs the second model on a thread of its own. What it is given is copied, so that the stream's buffers go on at once.

    Args:
        spec: Of the second model.
        load: Makes and loads it; called on the thread.
        problem: Told of the first error of each kind: it does not load (and is not tried again), or it fails on a frame.
        report: Called with ``stats()`` about once a second while frames are compared.
    """

    def __init__(
        self,
        spec: str,
        load: Callable[[], LoadedModel],
        problem: Callable[[BaseException], None],
        report: Callable[[dict[str, float]], None],
    ) -> None:
        self.spec, self.problem, self.report = spec, problem, report
        self.counts: Counter[str] = Counter()
        self._load = load
        self._due = 0.0
        self._ready = self._closed = False
        self._waiting: deque[tuple[Frame, Answer]] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"gstinfer:shadow {spec}", daemon=True)
        self._thread.start()

    def offer(self, frame: Frame, answer: Answer, share: float) -> None:
        """Takes a frame and what the running model said about it, if it is its turn and there is room. Streaming thread."""
        with self._changed:
            self._due += share
            if self._due < 1 - 1e-9:
                return
            self._due -= 1
            if not self._ready or len(self._waiting) >= BACKLOG:
                self.counts["missed"] += 1
                return
        copy = copy_frame(frame)
        with self._changed:
            self._waiting.append((copy, tuple(answer)))
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            model = self._load()
        except Exception as error:  # the user's code ran
            failure = error if isinstance(error, GstInferError) else ModelLoadError(f"{type(error).__name__}: {error}")
            self.problem(ModelLoadError(f"shadow-model={self.spec} is not used: {failure}"))
            return
        try:
            self._ready = True
            self._work(model)
        finally:
            model.close()

    def _work(self, model: LoadedModel) -> None:
        reported = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                frame, answer = self._waiting[0]
            try:
                found = model.predict(FrameBatch((frame,)))[0]
                result = compare(answer, found)
            except Exception as error:  # the user's code ran
                result = Counter({"errors": 1})
                if not self.counts["errors"]:
                    self.problem(error)
            else:
                result["frames"] = 1
            with self._changed:
                self._waiting.popleft()
                self.counts.update(result)
            if time.monotonic() >= reported + REPORT_SECONDS:
                reported = time.monotonic()
                self.report(self.stats())

    def stats(self) -> dict[str, float]:
        """Frames compared and missed, and what differed so far; ``iou`` and ``score-difference`` are means over the matched."""
        counts = self.counts
        matched = counts["matched"]
        names = ("frames", "missed", "matched", "only-running", "only-shadow", "class-differences", "errors")
        found: dict[str, float] = {name: counts[name] for name in names}
        found.update({name: counts[name] / matched if matched else 0.0 for name in ("iou", "score-difference")})
        return found

    def close(self) -> None:
        """Ends after the frame that is worked on, and lets go of the model."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)


def copy_frame(frame: Frame) -> Frame:
    """A frame with pixels of its own, without results; from a GPU they come as RGB in host memory."""
    image = frame.image
    if image.device.is_cuda:
        image = Image.from_array(np.array(to_array(image, "rgb")))
    else:
        image = replace(image, planes=tuple(np.array(plane) for plane in image.planes))
    return Frame(image, frame.stream_id, frame.pts, frame.sequence, frame.time, source=frame.source)


_shared: dict[tuple[str, str], tuple[Shadow, int]] = {}
_lock = threading.Lock()


def share_shadow(key: str, spec: str, make: Callable[[], Shadow]) -> Shadow:
    """The shadow of a model-instance-id, made at first use, so that all its streams have one; an empty key is never shared.

    Pair it with ``release_shadow``.
    """
    if not key:
        return make()
    with _lock:
        shadow, users = _shared.get((key, spec)) or (make(), 0)
        _shared[key, spec] = (shadow, users + 1)
    return shadow


def release_shadow(key: str, shadow: Shadow) -> None:
    """Gives a shadow back; the last user closes it."""
    with _lock:
        held, users = _shared.get((key, shadow.spec), (shadow, 1))
        if held is shadow and users > 1:
            _shared[key, shadow.spec] = (shadow, users - 1)
            return
        if held is shadow:
            _shared.pop((key, shadow.spec), None)
    shadow.close()
