"""When a busy model needs its next batch."""

from __future__ import annotations

import queue
import threading
import time

import pytest
from runners import Echo, frame, start

from gstinfer.pace import Pace


def learnt(size: int, seconds: float, at: float) -> Pace:
    """From two batches that were there together."""
    pace = Pace()
    pace.given(size, at, at)
    pace.given(size, at, at)
    pace.finished(at, at + 9)
    assert pace.left(at + 9) == 0
    pace.finished(at, at + 9 + seconds)
    return pace


def test_the_end_of_what_was_given_is_expected_from_batches_of_its_size():
    pace = learnt(8, 0.5, 0.0)
    assert pace.left(10.5) == 0
    pace.given(8, 11.0, 11.0)
    pace.given(8, 11.0, 11.0)
    assert pace.left(11.1) == pytest.approx(0.9)
    # The second begins where the first ended.
    pace.finished(11.0, 11.7)
    assert pace.left(11.7) == pytest.approx(0.5)
    # Shorter counts at once, longer only slowly.
    pace.finished(11.0, 12.0)
    assert pace.left(12.0) == 0
    pace.given(8, 13.0, 13.0)
    pace.given(8, 13.0, 13.0)
    pace.finished(13.0, 13.4)
    pace.finished(13.0, 14.7)
    pace.given(8, 15.0, 15.0)
    assert pace.left(15.0) == pytest.approx(0.4)
    # Nothing is known of other sizes.
    assert learnt(8, 0.5, 0.0).left(9.5) == 0
    pace = learnt(8, 0.5, 0.0)
    pace.given(4, 11.0, 11.0)
    assert pace.left(11.0) == 0


def test_giving_takes_time_as_well():
    pace = learnt(1, 1.0, 0.0)
    for n in range(2, 40):
        pace.given(1, 10.0 * n + 9.8, 10.0 * n + 10)
        pace.finished(10.0 * n + 10, 10.0 * n + 11)
    pace.given(1, 500.0, 500.2)
    assert pace.left(500.2) == pytest.approx(0.8, abs=0.01)


def test_a_model_that_works_on_several_at_a_time_is_not_made_to_wait():
    pace = Pace()
    at = 0.0
    for _ in range(30):
        # Each takes 100 ms, two at a time.
        pace.given(4, at, at)
        pace.given(4, at, at + 0.005)
        pace.finished(at, at + 0.1)
        pace.finished(at + 0.005, at + 0.105)
        at += 0.1
    pace.given(4, at + 1, at + 1)
    assert pace.left(at + 1) <= 0.0051


class Machine(Echo):
    """Works on one batch after another in a thread of its own, like a GPU: each takes the same time, whatever its size."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.work: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            batch, answer = self.work.get()
            answer.put(self.predict(batch))

    def submit(self, batch):
        answer: queue.SimpleQueue = queue.SimpleQueue()
        self.work.put((batch, answer))
        return Answer(answer)


class Answer:
    def __init__(self, answer) -> None:
        self.answer = answer

    def result(self):
        return self.answer.get()


def pause(then):
    time.sleep(0.03)
    return [then()]


@pytest.mark.parametrize(("depth", "batches"), [(8, [1, 3]), (1, [1, 1, 1, 1])])
def test_frames_that_come_while_the_model_is_busy_share_its_next_batch(depth, batches):
    model = Machine(0.3)
    runner = start(model)
    lane = runner.attach(depth)
    # How long a batch of one takes is learnt from two of which one waits for the other.
    [ticket.result() for ticket in [lane.submit([frame("a", 0)]), *pause(lambda: lane.submit([frame("a", 0)]))]]
    model.batches.clear()
    tickets = []
    for number in range(1, 5):
        tickets.append(lane.submit([frame("a", number)]))
        time.sleep(0.03)
    assert [int(ticket.result()[0][0].class_id[0]) for ticket in tickets] == [1, 2, 3, 4]
    assert [len(batch) for batch in model.batches] == batches
    runner.stop()
