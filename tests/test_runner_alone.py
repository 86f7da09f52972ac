"""A runner of one lane, whose model runs in the thread that waits."""

from __future__ import annotations

import threading
import time

import pytest
from runners import Echo, frame, start

from gstinfer.errors import PredictError
from gstinfer.model import LoadedModel


class Job:
    """A buffer of one frame, as elements hand it over."""

    def __init__(self, name: str, number: int) -> None:
        self.frame, self.results, self.threads = frame(name, number), None, []

    def open(self):
        self.threads.append(threading.current_thread())
        return (self.frame,)

    def close(self, results, model):
        self.threads.append(threading.current_thread())
        self.results = results


def test_a_lane_alone_works_in_the_thread_that_waits():
    runner = start(Echo())
    lane = runner.attach()
    job = Job("a", 7)
    ((result,),) = lane.infer_buffer(job).result() and job.results
    assert int(result.class_id[0]) == 7
    assert set(job.threads) == {threading.current_thread()}
    # With company the worker gathers a batch.
    other, mine, theirs = runner.attach(), Job("a", 8), Job("b", 9)
    second = other.submit_buffer(theirs)
    lane.infer_buffer(mine).result()
    second.result()
    assert (int(mine.results[0][0].class_id[0]), int(theirs.results[0][0].class_id[0])) == (8, 9)
    assert threading.current_thread() not in mine.threads
    runner.stop()


def test_a_lane_alone_wakes_nobody_but_who_waits_for_its_batch(monkeypatch):
    model, calls = Echo(), []
    runner = start(model)
    lane = runner.attach()
    notify = runner._condition.notify_all
    monkeypatch.setattr(runner._condition, "notify_all", lambda: (calls.append(True), notify()))
    for number in range(10):
        lane.infer_buffer(Job("a", number)).result()
    assert calls == []
    # An exchange waits for the old model's last batch.
    began, goes_on, old = threading.Event(), threading.Event(), model.predict

    def predict(batch):
        began.set()
        goes_on.wait(10)
        return old(batch)

    model.predict = predict
    streaming = threading.Thread(target=lambda: lane.infer_buffer(Job("a", 10)).result())
    streaming.start()
    began.wait(10)
    new = LoadedModel(Echo(), "new")
    new.load("cpu")
    exchange = threading.Thread(target=runner.exchange, args=(new, "new"))
    exchange.start()
    while not runner._onlookers:
        time.sleep(0.001)
    goes_on.set()
    exchange.join(10)
    streaming.join(10)
    assert not exchange.is_alive() and len(calls) == 1 and runner._onlookers == 0
    runner.stop()


def test_a_lane_alone_waits_for_the_timeout_where_batches_are_to_be_full():
    runner = start(Echo(), batch_size=4, scheduling="throughput", batch_timeout=0.02)
    lane = runner.attach()
    for number in range(3):
        job = Job("a", number)
        lane.infer_buffer(job).result()
        assert int(job.results[0][0].class_id[0]) == number
    runner.stop()


def test_an_error_in_the_waiting_thread_reaches_the_ticket():
    runner = start(Echo(fail_on=1))
    lane = runner.attach()
    with pytest.raises(PredictError, match="fan"):
        lane.infer_buffer(Job("a", 1)).result()
    job = Job("a", 2)
    lane.infer_buffer(job).result()
    assert job.results
    runner.stop()


def test_lanes_come_and_go_while_one_works_in_its_own_thread():
    runner = start(Echo(0.002))
    stop, wrong, served = threading.Event(), [], [0, 0]

    def stream(place: int, rest: float) -> None:
        while not stop.is_set():
            lane = runner.attach()
            for number in range(20):
                job = Job(str(place), number)
                lane.infer_buffer(job).result()
                served[place] += 1
                if int(job.results[0][0].class_id[0]) != number:
                    wrong.append((place, number))
            lane.close()
            time.sleep(rest)

    threads = [threading.Thread(target=stream, args=(n, 0.03 * n)) for n in range(2)]
    [t.start() for t in threads]
    time.sleep(1)
    stop.set()
    [t.join(10) for t in threads]
    assert not any(t.is_alive() for t in threads)
    assert not wrong and min(served) >= 20
    runner.stop()


def test_a_stop_waits_for_the_model_in_another_thread():
    runner = start(Echo(0.2))
    lane = runner.attach()
    job = Job("a", 3)
    thread = threading.Thread(target=lambda: lane.infer_buffer(job).result())
    thread.start()
    while runner.busy_since() is None:
        time.sleep(0.001)
    runner.stop()
    thread.join(5)
    assert job.results is not None
