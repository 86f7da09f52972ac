"""When a busy model needs its next batch."""

from __future__ import annotations

import queue
import threading
import time

import pytest
from runners import Echo, frame, start

from gstinfer.pace import Pace


def test_the_end_of_what_was_given_is_expected_from_batches_of_its_size():
    pace = Pace()
    assert pace.left(5.0) == 0
    pace.given(8, 10.0, 10.0)
    # Nothing is known of batches of eight yet.
    assert pace.left(10.0) == 0
    pace.finished(10.0, 10.5)
    assert pace.left(10.5) == 0
    pace.given(8, 11.0, 11.0)
    pace.given(8, 11.0, 11.0)
    assert pace.left(11.1) == pytest.approx(0.9)
    # The first took longer: the second begins where it ended.
    pace.finished(11.0, 11.7)
    assert pace.left(11.7) == pytest.approx(0.52)
    pace.finished(11.0, 12.0)
    assert pace.left(12.0) == 0
    # Shorter counts at once, longer only slowly.
    pace.given(8, 13.0, 13.0)
    assert pace.left(13.0) == pytest.approx(0.3)


def test_giving_takes_time_as_well():
    pace = Pace()
    pace.given(1, 0.0, 0.0)
    pace.finished(0.0, 1.0)
    for n in range(40):
        pace.given(1, 10.0 * n + 9.8, 10.0 * n + 10)
        pace.finished(10.0 * n + 10, 10.0 * n + 11)
    pace.given(1, 500.0, 500.2)
    assert pace.left(500.2) == pytest.approx(0.8, abs=0.01)


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


@pytest.mark.parametrize(("depth", "batches"), [(8, [1, 1, 3]), (1, [1, 1, 1, 1, 1])])
def test_frames_that_come_while_the_model_is_busy_share_its_next_batch(depth, batches):
    model = Machine(0.3)
    runner = start(model)
    lane = runner.attach(depth)
    # How long a batch of one takes is learnt from the first.
    lane.submit([frame("a", 0)]).result()
    tickets = []
    for number in range(1, 5):
        tickets.append(lane.submit([frame("a", number)]))
        time.sleep(0.03)
    assert [int(ticket.result()[0][0].class_id[0]) for ticket in tickets] == [1, 2, 3, 4]
    assert [len(batch) for batch in model.batches] == batches
    runner.stop()
