"""Questions wait, are asked, asked again, called off; each ends once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gstinfer.errors import ConfigError, ModelLoadError
from gstinfer.results import Text
from gstinfer.vlm import Backend, BackendOptions, Call, Dispatcher, Segment, Trouble, as_backend
from gstinfer.vlm.dispatcher import release, share


class Scripted(Backend):
    """Answers with what a function gives for the number of the call."""

    name = "scripted"

    def __init__(self, answer: Callable[[int], Any] = str, delay: float = 0.0, max_batch: int = 1) -> None:
        self.answer, self.delay, self.max_batch = answer, delay, max_batch
        self.asked: list[list[str]] = []
        self.closed = False
        self.now = self.most = 0
        self.lock = threading.Lock()

    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        with self.lock:
            number = len(self.asked)
            self.asked.append([call.segment.stream_id for call in calls])
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.delay)
        with self.lock:
            self.now -= 1
        said = self.answer(number)
        if isinstance(said, Exception) and not isinstance(said, Trouble):
            raise said
        return [said if isinstance(said, Trouble) else Text(str(said)) for _ in calls]

    def close(self) -> None:
        self.closed = True


class Ends:
    """Calls, and how they ended."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ended: list[Call] = []

    def call(self, stream: str = "s", timeout: float = 10.0) -> Call:
        call = Call(Segment(stream, 0, 0, (np.zeros((1, 1, 3), np.uint8),), (0,)), timeout, self.ended.append)
        self.calls.append(call)
        return call

    def wait(self, seconds: float = 5.0) -> list[str]:
        limit = time.monotonic() + seconds
        while len(self.ended) < len(self.calls) and time.monotonic() < limit:
            time.sleep(0.005)
        assert len(self.ended) == len(self.calls), "a question was lost"
        return [f"{c.state} {c.reason}".strip() for c in self.calls]


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_many_are_asked_at_once_and_no_more(ends: Ends) -> None:
    backend = Scripted(delay=0.05)
    dispatcher = Dispatcher(backend, size=100, max_inflight=3)
    for _ in range(12):
        dispatcher.put(ends.call())
    assert ends.wait() == ["answered"] * 12 and backend.most == 3
    dispatcher.close()
    assert backend.closed


def test_a_full_mailbox_drops_the_oldest_of_the_busiest_stream(ends: Ends) -> None:
    dispatcher = Dispatcher(Scripted(delay=0.3), size=3, max_inflight=1)
    dispatcher.put(ends.call("first"))
    time.sleep(0.1)
    for stream in ("quiet", "busy", "busy", "busy"):
        dispatcher.put(ends.call(stream))
    assert ends.wait() == ["answered", "answered", "dropped full", "answered", "answered"]
    dispatcher.close()


def test_a_full_mailbox_may_drop_the_newest(ends: Ends) -> None:
    dispatcher = Dispatcher(Scripted(delay=0.3), size=1, max_inflight=1)
    dispatcher.put(ends.call())
    time.sleep(0.1)
    for _ in range(2):
        dispatcher.put(ends.call(), "drop-newest")
    assert ends.wait() == ["answered", "answered", "dropped full"]
    dispatcher.close()


def test_waiting_for_room_can_be_given_up(ends: Ends) -> None:
    dispatcher = Dispatcher(Scripted(delay=0.2), size=1, max_inflight=1)
    for _ in range(4):
        assert dispatcher.put(ends.call(), "wait")
    assert ends.wait() == ["answered"] * 4
    stop = threading.Event()
    for _ in range(2):
        dispatcher.put(ends.call(), "wait")
    threading.Timer(0.05, stop.set).start()
    extra = ends.call()
    assert not dispatcher.put(extra, "wait", stop.is_set)
    extra.finish("dropped", "flushed")
    assert ends.wait()[-1] == "dropped flushed"
    dispatcher.close()


def test_faults_that_may_pass_are_tried_again_with_growing_pauses(ends: Ends) -> None:
    times: list[float] = []

    def answer(number: int) -> Any:
        times.append(time.monotonic())
        return Trouble("busy", "later", again=True) if number < 2 else "fine"

    dispatcher = Dispatcher(Scripted(answer), retries=2, backoff=0.1)
    dispatcher.put(ends.call())
    assert ends.wait() == ["answered"] and ends.calls[0].retries == 2
    assert times[1] - times[0] >= 0.1 and times[2] - times[1] >= 0.2
    dispatcher.close()


def test_the_server_may_ask_for_a_longer_pause(ends: Ends) -> None:
    dispatcher = Dispatcher(
        Scripted(lambda number: Trouble("busy", "later", again=True, after=0.3) if not number else "fine"), backoff=0.01
    )
    began = time.monotonic()
    dispatcher.put(ends.call())
    assert ends.wait() == ["answered"] and time.monotonic() - began >= 0.3
    dispatcher.close()


@pytest.mark.parametrize(
    ("outcome", "tries", "state"),
    [
        (Trouble("busy", "x", again=True), 3, "failed busy"),
        (Trouble("http-400", "x"), 1, "failed http-400"),
        (RuntimeError("oops"), 1, "failed exception"),
    ],
)
def test_a_fault_that_stays_fails(ends: Ends, outcome: Exception, tries: int, state: str) -> None:
    backend = Scripted(lambda number: outcome)
    dispatcher = Dispatcher(backend, retries=2, backoff=0.01)
    dispatcher.put(ends.call("gate"))
    assert ends.wait() == [state] and len(backend.asked) == tries
    assert "'gate'" in str(ends.calls[0].error)
    dispatcher.close()


def test_deadlines_end_what_waits_and_what_hangs(ends: Ends) -> None:
    dispatcher = Dispatcher(Scripted(delay=2.0), max_inflight=1)
    for _ in range(2):
        dispatcher.put(ends.call(timeout=0.2))
    began = time.monotonic()
    assert ends.wait() == ["failed deadline", "dropped late"] and time.monotonic() - began < 1.9
    dispatcher.close()


def test_closing_is_quick_and_the_model_is_closed_by_the_last_worker(ends: Ends) -> None:
    backend = Scripted(delay=3.0)
    dispatcher = Dispatcher(backend, max_inflight=1)
    for _ in range(3):
        dispatcher.put(ends.call())
    time.sleep(0.1)
    began = time.monotonic()
    dispatcher.close()
    assert time.monotonic() - began < 2.5 and not backend.closed
    assert ends.wait(0.1) == ["dropped stopped"] * 3
    limit = time.monotonic() + 10
    while not backend.closed and time.monotonic() < limit:
        time.sleep(0.05)
    assert backend.closed
    dispatcher.put(late := ends.call())
    assert late.state == "dropped"


def test_a_pause_ends_when_its_question_is_called_off(ends: Ends) -> None:
    backend = Scripted(lambda number: Trouble("busy", "x", again=True) if not number else "fine")
    dispatcher = Dispatcher(backend, max_inflight=1, backoff=5)
    dispatcher.put(first := ends.call())
    time.sleep(0.1)
    dispatcher.drop([first], "flushed")
    dispatcher.put(ends.call())
    assert ends.wait(2) == ["dropped flushed", "answered"]
    dispatcher.close()


def test_what_waits_goes_in_one_batch(ends: Ends) -> None:
    backend = Scripted(delay=0.2, max_batch=4)
    backend.workers = 1
    dispatcher = Dispatcher(backend, max_inflight=8)
    for number in range(6):
        dispatcher.put(ends.call(str(number)))
        time.sleep(0.01)
    assert ends.wait() == ["answered"] * 6
    assert backend.asked == [["0"], ["1", "2", "3", "4"], ["5"]]
    dispatcher.close()


def test_elements_of_one_id_share() -> None:
    backend = Scripted()
    first, agreed = share("id", "x", lambda: Dispatcher(backend))
    second, also = share("id", "x", lambda: pytest.fail("made twice"))
    assert first is second and agreed and also
    _, different = share("id", "y", lambda: pytest.fail("made twice"))
    assert not different
    release("id", first)
    assert not backend.closed
    release("id", second)
    assert backend.closed


USER = """
from gstinfer import Text

class Counts:
    def __init__(self, word="frames"):
        self.word = word

    def answer(self, segment):
        return Text(f"{len(segment.images)} {self.word} of {segment.stream_id}")

def plain(segment):
    return {"frames": len(segment.images)}

def broken(segment):
    return 3

nothing = 7
"""


def test_a_class_or_function_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USER)

    def said(name: str, **arguments: Any) -> Any:
        backend = as_backend(f"{file}:{name}", BackendOptions(arguments))
        backend.open()
        return backend.ask([Call(Segment("s", 0, 0, (np.zeros((1, 1, 3), np.uint8),), (0,)), 1, lambda c: None)])[0]

    assert said("Counts").text == "1 frames of s" and said("Counts", word="pictures").text == "1 pictures of s"
    assert said("plain") == Text('{"frames": 1}', data={"frames": 1})
    assert "returned a int" in str(said("broken"))
    with pytest.raises(ModelLoadError, match="answers nothing"):
        said("nothing")
    with pytest.raises(ModelLoadError, match=r"could not be made.*wrd"):
        said("Counts", wrd=1)
    with pytest.raises(ConfigError, match="is no class"):
        said("plain", word="x")
    with pytest.raises(ModelLoadError, match="has no 'Count'"):
        said("Count")
