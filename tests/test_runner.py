"""Batching over streams, fairness, flushing and failures of the runner."""

from __future__ import annotations

import threading
import time

import pytest
from runners import Echo, frame, start

from gstinfer import Detections, Model
from gstinfer.errors import ConfigError, PredictError, ResultError
from gstinfer.frames import Flushed, Frame
from gstinfer.model import LoadedModel
from gstinfer.runner import RunnerConfig
from gstinfer.shared import release, share


def test_each_frame_gets_its_own_result():
    model = Echo(0.001)
    runner = start(model)
    answers: dict[str, list[int]] = {}

    def stream(name: str, offset: int, count: int) -> None:
        lane = runner.attach()
        for i in range(count):
            (result,) = lane.submit([frame(name, offset + i)]).result()
            answers.setdefault(name, []).append(int(result[0].class_id[0]))
        lane.close()

    threads = [threading.Thread(target=stream, args=(f"s{n}", 50 * n, 30 + n)) for n in range(4)]
    [t.start() for t in threads]
    [t.join(10) for t in threads]
    assert not any(t.is_alive() for t in threads)
    assert answers == {f"s{n}": [50 * n + i for i in range(30 + n)] for n in range(4)}
    assert runner.stats()["frames"] == sum(30 + n for n in range(4))
    assert runner.stats()["batch-fill"] > 1.5
    runner.stop()


def test_batches_take_one_frame_of_each_stream_in_turn():
    model = Echo(0.05)
    runner = start(model, batch_size=2)
    a, b = runner.attach(), runner.attach()
    first = a.submit([frame("a", 0)])
    time.sleep(0.02)
    tickets = [a.submit([frame("a", i)]) for i in range(1, 4)] + [b.submit([frame("b", i)]) for i in range(2)]
    [t.result() for t in [first, *tickets]]
    assert all(len(set(batch)) == len(batch) for batch in model.batches[1:3])
    runner.stop()


@pytest.mark.parametrize(("depth", "batches"), [(1, [1, 1, 1, 1, 1, 1]), (3, [1, 1, 1, 1, 1, 1]), (8, [1, 4, 1])])
def test_half_of_the_frames_in_flight_share_a_batch(depth, batches):
    model = Echo(0.05)
    runner = start(model)
    lane = runner.attach(depth)
    first = lane.submit([frame("a", 0)])
    time.sleep(0.02)
    [t.result() for t in [first, *(lane.submit([frame("a", i)]) for i in range(1, 6))]]
    assert [len(batch) for batch in model.batches] == batches
    runner.stop()


def test_a_stalled_stream_stops_holding_the_others():
    model = Echo()
    runner = start(model, batch_timeout=0.05)
    a, b = runner.attach(), runner.attach()
    for lane in (a, b):
        lane.submit([frame("x", 1)]).result()
    a.submit([frame("a", 2)]).result()
    began = time.monotonic()
    for i in range(5):
        a.submit([frame("a", i)]).result()
    # b is silent: only the first wait may take the timeout.
    assert time.monotonic() - began < 5 * 0.05
    runner.stop()


def test_a_batch_of_frames_is_split_at_batch_size():
    model = Echo()
    runner = start(model, batch_size=3)
    lane = runner.attach()
    results = lane.submit([frame("a", i) for i in range(8)]).result()
    assert [int(r[0].class_id[0]) for r in results] == list(range(8))
    assert [len(b) for b in model.batches] == [3, 3, 2]
    runner.stop()


def test_flush_releases_what_waits():
    runner = start(Echo(0.2))
    lane = runner.attach()
    running = lane.submit([frame("a", 1)])
    time.sleep(0.05)
    waiting = lane.submit([frame("a", 2)])
    began = time.monotonic()
    lane.flush()
    with pytest.raises(Flushed):
        waiting.result()
    assert time.monotonic() - began < 0.1
    assert len(running.result()) == 1
    runner.stop()


def test_stop_releases_everything_and_refuses_more():
    runner = start(Echo(0.05))
    lane = runner.attach()
    tickets = [lane.submit([frame("a", i)]) for i in range(5)]
    runner.stop()
    outcomes = []
    for ticket in tickets:
        try:
            outcomes.append(len(ticket.result()))
        except Flushed:
            outcomes.append("flushed")
    assert "flushed" in outcomes
    with pytest.raises(Flushed):
        lane.submit([frame("a", 9)])


def test_an_exception_reaches_every_frame_of_the_batch_and_the_next_batch_runs():
    runner = start(Echo(fail_on=3))
    lane = runner.attach()
    with pytest.raises(PredictError, match="RuntimeError: the fan is off") as caught:
        lane.submit([frame("a", 3)]).result()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert len(lane.submit([frame("a", 4)]).result()) == 1
    runner.stop()


def test_a_wrong_count_is_named():
    class Short(Model):
        def predict(self, batch):
            return [None] * (len(batch) - 1)

    runner = start(Short())
    with pytest.raises(ResultError, match=r"returned 0 results for a batch of 1.*one result per frame"):
        runner.attach().submit([frame("a", 0)]).result()
    runner.stop()


def test_runners_are_shared_by_key_and_closed_by_the_last_user():
    closed = []

    class Closing(Echo):
        def close(self) -> None:
            closed.append(True)

    def load() -> LoadedModel:
        loaded = LoadedModel(Closing(), "echo")
        loaded.load("cpu")
        return loaded

    config = RunnerConfig("echo")
    one, two = share("k", config, load), share("k", config, load)
    assert one is two
    with pytest.raises(ConfigError, match="batch_size: 0 there, 4 here"):
        share("k", RunnerConfig("echo", batch_size=4), load)
    release("k", one)
    assert not closed
    release("k", two)
    assert closed == [True]
    assert share("", config, load) is not share("", config, load)


def test_users_of_a_key_may_ask_for_what_runs_there_or_did():
    first, second = Echo(), Echo()

    def load(model: Echo = first) -> LoadedModel:
        loaded = LoadedModel(model, "echo")
        loaded.load("cpu")
        return loaded

    began = RunnerConfig("echo")
    runner = share("k", began, load)
    runner.adapt("confidence_threshold", "0.5")
    runner.exchange(load(second), "other")
    for config in (
        began,
        RunnerConfig("other"),
        RunnerConfig("echo", arguments={"confidence_threshold": "0.5"}),
        RunnerConfig("other", arguments={"confidence_threshold": "0.5"}),
    ):
        assert share("k", config, load) is runner
        release("k", runner)
    with pytest.raises(ConfigError, match=r"spec: other there, third here, confidence_threshold: 0\.5 there, 0\.1 here"):
        share("k", RunnerConfig("third", arguments={"confidence_threshold": "0.1"}), load)
    with pytest.raises(ConfigError, match="labels: unset there, 'a' here"):
        share("k", RunnerConfig("other", arguments={"labels": "'a'"}), load)
    release("k", runner)


@pytest.mark.parametrize("where", ["open", "close"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_any_error_of_a_buffer_concerns_that_buffer_alone(where, lanes):
    class Job:
        def __init__(self, number: int, bad: bool) -> None:
            self.number, self.bad = number, bad

        def open(self) -> tuple[Frame, ...]:
            if self.bad and where == "open":
                raise KeyError("no plane")
            return (frame("a", self.number),)

        def close(self, results: list, model: str) -> None:
            if self.bad and where == "close":
                raise KeyError("no room")

    runner = start(Echo(), batch_timeout=5.0)
    users = [runner.attach() for _ in range(lanes)]
    for round_ in range(3):
        submit = [lane.infer_buffer if lanes == 1 else lane.submit_buffer for lane in users]
        tickets = [give(Job(round_, number == 0)) for number, give in enumerate(submit)]
        with pytest.raises(KeyError):
            tickets[0].result()
        for ticket in tickets[1:]:
            assert ticket.result()[0][0].class_id.tolist() == [round_]
    for lane in users:
        lane.close()
    runner.stop()


def test_detaching_waits_for_the_frames_in_flight():
    runner = start(Echo(0.1))
    a = runner.attach()
    ticket = a.submit([frame("a", 1)])
    time.sleep(0.03)
    a.close()
    assert ticket.done
    runner.stop()


def test_a_model_with_submit_has_two_batches_in_flight_and_keeps_the_order():
    class Pending:
        def __init__(self, batch) -> None:
            self.classes = [int(p.mean()) for p in batch.images("rgb")]

        def result(self):
            time.sleep(0.02)
            return [Detections([[0, 0, 2, 2]], class_id=[c]) for c in self.classes]

    class Pipelined(Model):
        started = 0

        def submit(self, batch):
            time.sleep(0.02)
            self.started += 1
            return Pending(batch)

        def predict(self, batch):
            return self.submit(batch).result()

    runner = start(Pipelined())
    lane = runner.attach()
    began = time.monotonic()
    tickets = [lane.submit([frame("a", i)]) for i in range(10)]
    answers = [int(t.result()[0][0].class_id[0]) for t in tickets]
    elapsed = time.monotonic() - began
    assert answers == list(range(10))
    # One after another would take 10 x 40 ms.
    assert runner.stats()["model-seconds"] > elapsed
    runner.stop()


def test_an_exchange_happens_between_two_batches_and_closes_the_old_model_after_its_last():
    closed = []

    class Numbered(Echo):
        def __init__(self, number: int) -> None:
            super().__init__(0.01)
            self.number = number

        def predict(self, batch):
            assert self.number not in closed
            super().predict(batch)
            return [Detections([[0, 0, 2, 2]], class_id=[self.number]) for _ in batch]

        def close(self) -> None:
            closed.append(self.number)

    runner = start(Numbered(1))
    lane = runner.attach()
    answers = []

    def stream() -> None:
        for i in range(30):
            answers.append(int(lane.submit([frame("a", i)]).result()[0][0].class_id[0]))

    thread = threading.Thread(target=stream)
    thread.start()
    time.sleep(0.1)
    second = LoadedModel(Numbered(2), "second")
    second.load("cpu")
    runner.exchange(second, "second")
    thread.join()
    assert closed == [1]
    assert answers == sorted(answers) and set(answers) == {1, 2} and len(answers) == 30
    runner.stop()
    assert closed == [1, 2]


class TestSeveralFramesOfOneTicket:
    """Their pictures are in use until the last batch that holds one is out."""

    def test_a_failed_batch_takes_the_waiting_rest_along(self):
        model = Echo(fail_on=1)
        runner = start(model, batch_size=1)
        lane = runner.attach()
        ticket = lane.submit([frame("s", n) for n in range(5)])
        with pytest.raises(PredictError, match="the fan is off"):
            ticket.result()
        assert len(model.batches) == 2 and not lane.waiting
        assert lane.submit([frame("s", 7)]).result()[0][0].class_id.tolist() == [7]
        runner.stop()

    def test_a_flush_waits_for_the_batch_that_is_out(self):
        model = Echo(0.2)
        runner = start(model, batch_size=1)
        lane = runner.attach()
        ticket = lane.submit([frame("s", n) for n in range(5)])
        while not model.batches:
            time.sleep(0.005)
        began = time.monotonic()
        lane.flush()
        assert not ticket.done
        with pytest.raises(Flushed):
            ticket.result()
        assert 0.1 < time.monotonic() - began < 0.9
        assert len(model.batches) == 1
        runner.stop()


def test_tickets_of_an_instant_model_are_done_once():
    class Instant(Model):
        def predict(self, batch):
            return [None] * len(batch)

    runner = start(Instant())
    failures: list[BaseException] = []

    def stream() -> None:
        lane = runner.attach()
        try:
            for i in range(1500):
                lane.submit([frame("a", i)]).result()
        except BaseException as error:
            failures.append(error)
        lane.close()

    threads = [threading.Thread(target=stream) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert failures == [] and not any(t.is_alive() for t in threads)
    runner.stop()
