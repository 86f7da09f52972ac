"""Two models compared on the same frames."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from gstinfer import Detections, Model
from gstinfer.frames import FrameBatch
from gstinfer.model import LoadedModel
from gstinfer.results import Classifications
from gstinfer.shadow import Shadow, compare, release_shadow, share_shadow

BOX = [10, 10, 30, 30]


def wait_for(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_objects_are_paired_by_overlap():
    mine = (Detections([BOX, [50, 50, 60, 60]], [0.9, 0.8], [1, 2]),)
    other = (Detections([[200, 0, 210, 10], [10, 10, 30, 20], [50, 50, 60, 60]], [0.5, 0.7, 0.6], [1, 1, 3]),)
    counts = compare(mine, other)
    assert (counts["matched"], counts["only-running"], counts["only-shadow"]) == (2, 0, 1)
    assert counts["iou"] == pytest.approx(1.5) and counts["score-difference"] == pytest.approx(0.4)
    assert counts["class-differences"] == 1


def test_each_object_is_paired_once_and_the_best_pair_first():
    mine = (Detections([BOX, [10, 10, 30, 28]]),)
    counts = compare(mine, (Detections([BOX]),))
    assert (counts["matched"], counts["only-running"], counts["iou"]) == (1, 1, pytest.approx(1.0))


def test_nothing_against_nothing_and_against_something():
    assert compare((), ()) == {"only-running": 0, "only-shadow": 0, "class-differences": 0}
    assert compare((), (Detections([BOX]),))["only-shadow"] == 1
    assert compare((Detections([BOX]),), ())["only-running"] == 1


def test_classes_are_compared_by_name():
    one, two = Classifications([0, 1], [0.9, 0.1], ["cat", "dog"]), Classifications([5], [0.5], ["cat"])
    assert compare((one,), (two,))["class-differences"] == 0
    assert compare((one,), (Classifications([0], [0.5], ["cow"]),))["class-differences"] == 1


class Echo(Model):
    """Boxes the brightest column; waits for leave."""

    gate = threading.Event()
    seen: list[float] = []  # noqa: RUF012

    def predict(self, batch):
        self.gate.wait(10)
        self.seen += [float(p.mean()) for p in batch.images("rgb")]
        return [Detections([BOX]) for _ in batch]


def loaded(model: Model) -> LoadedModel:
    found = LoadedModel(model, "shadow")
    found.load()
    return found


def frame(value: int):
    return FrameBatch.of([np.full((40, 40, 3), value, np.uint8)])[0]


def test_a_share_of_the_frames_is_copied_and_nobody_waits():
    Echo.gate.clear()
    Echo.seen.clear()
    reports: list[dict] = []
    shadow = Shadow("shadow", lambda: loaded(Echo()), pytest.fail, reports.append)
    try:
        wait_for(lambda: shadow._ready)
        frames = [frame(i) for i in range(20)]
        began = time.monotonic()
        for item in frames:
            shadow.offer(item, (Detections([BOX]),), 0.25)
            item.image.planes[0][:] = 255
        assert time.monotonic() - began < 1
        Echo.gate.set()
        wait_for(lambda: shadow.stats()["frames"] == 2)
        # Of the five that were due two found room; their pixels are those of the moment.
        assert shadow.stats()["missed"] == 3 and Echo.seen == [3.0, 7.0]
        assert shadow.stats()["matched"] == 2 and shadow.stats()["iou"] == pytest.approx(1)
        assert reports and reports[0]["frames"] == 1
    finally:
        Echo.gate.set()
        shadow.close()
    assert not shadow._thread.is_alive()


class Broken(Model):
    def predict(self, batch):
        raise ValueError("no")


def test_a_model_that_fails_is_told_once_and_counted():
    problems: list[BaseException] = []
    shadow = Shadow("broken", lambda: loaded(Broken()), problems.append, lambda stats: None)
    wait_for(lambda: shadow._ready)
    for number in range(3):
        shadow.offer(frame(1), (), 1.0)
        wait_for(lambda n=number: shadow.stats()["errors"] == n + 1)
    shadow.close()
    assert len(problems) == 1 and "ValueError: no" in str(problems[0])


def test_a_model_that_does_not_load_is_told_and_left_out():
    problems: list[BaseException] = []

    def load() -> LoadedModel:
        raise RuntimeError("weights are gone")

    shadow = Shadow("gone", load, problems.append, lambda stats: None)
    wait_for(lambda: bool(problems))
    shadow.offer(frame(1), (), 1.0)
    shadow.close()
    assert "shadow-model=gone is not used" in str(problems[0]) and shadow.stats()["missed"] == 1


def test_streams_of_one_id_share_one():
    def make() -> Shadow:
        return Shadow("shadow", lambda: loaded(Broken()), lambda error: None, lambda stats: None)

    one, two = (share_shadow("id", "shadow", make) for _ in range(2))
    assert one is two and share_shadow("", "shadow", make) is not one
    release_shadow("id", one)
    assert one._thread.is_alive()
    release_shadow("id", two)
    assert not one._thread.is_alive()
