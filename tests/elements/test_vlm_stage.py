"""pyvlm's stage: many streams, faults, triggers, objects; every segment is accounted for."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "vlm"))
from standin import COLORS, StandIn, pictures, question

from gstinfer.elements.vlm.settings import VlmSettings
from gstinfer.elements.vlm.stage import VlmStage
from gstinfer.errors import ConfigError, GstInferError
from gstinfer.frames import Flushed, Frame, FrameBatch
from gstinfer.image import Image
from gstinfer.results import Attribute, Detections, FrameResults, Text
from gstinfer.stage import Stage

SECOND = 1_000_000_000
FPS = 10


def frame(color: str, stream: str, number: int, detections: Detections | None = None) -> Frame:
    pixels = np.empty((36, 64, 3), np.uint8)
    pixels[:] = COLORS[color]
    results = FrameResults(detections=detections)
    return Frame(Image.from_array(pixels), stream, number * SECOND // FPS, number, results=results)


class Running:
    """A started stage that is fed frames; it keeps what came back."""

    def __init__(self, **settings: Any) -> None:
        self.warnings: list[BaseException] = []
        self.answers: list[tuple[str, Text]] = []
        self.texts: list[tuple[str, int, Text]] = []
        self.frames: list[Frame] = []
        self.longest = 0.0
        values = {"prompt": "Which colours?", "segment": 1.0, "fps": 4.0, "backoff": 0.02, **settings}
        self.stage = VlmStage(VlmSettings(**values), None, self.warnings.append, lambda s, t: self.answers.append((s, t)))
        self.stage.start()

    def feed(self, *frames: Frame) -> None:
        began = time.perf_counter()
        self.stage.process(FrameBatch(frames))
        self.longest = max(self.longest, time.perf_counter() - began)
        for one in frames:
            self.frames.append(one)
            self.texts += [(one.stream_id, one.pts or 0, text) for text in one.results.texts]

    def settle(self, seconds: float = 5.0) -> dict[str, Any]:
        """Waits until no question is on its way."""
        limit = time.monotonic() + seconds
        while True:
            stats = self.stage.stats()
            # A question that is called off leaves the dispatcher a moment before it is counted.
            even = stats["segments"] == stats["answered"] + stats["dropped"] + stats["failed"]
            if (even and not stats["waiting"] + stats["in-flight"]) or time.monotonic() > limit:
                assert even, stats
                return stats
            time.sleep(0.01)


@pytest.fixture
def running() -> Iterator[Any]:
    made: list[Running] = []

    def make(**settings: Any) -> Running:
        made.append(Running(**settings))
        return made[-1]

    yield make
    for one in made:
        one.stage.stop()


def test_is_a_stage_and_answers_carry_everything(running: Any) -> None:
    with StandIn() as standin:
        r = running(model=standin.spec, system_prompt="Say {num_frames} colours.")
        assert isinstance(r.stage, Stage)
        for number in range(11):
            r.feed(frame("red" if number < 5 else "blue", "gate", number))
        r.settle()
        r.feed(frame("blue", "gate", 11))
    ((stream, pts, text),) = r.texts
    assert (stream, pts, text.text) == ("gate", 1_100_000_000, "red red blue blue")
    assert (text.start, text.end, text.prompt_id, text.model) == (0, 900_000_000, "prompt", "color-vlm")
    assert text.tokens == 4 and text.finish_reason == "stop" and text.component_id == 17
    assert text.latency is not None and 0 < text.latency < 5 * SECOND
    assert standin.requests[0]["messages"][0]["content"] == "Say 4 colours."
    assert r.answers == [("gate", text)]


def test_eight_streams_stay_apart_whatever_the_batch_order(running: Any) -> None:
    """Each stream has its own colour in each second, so that a mixed, late or reordered answer shows in the text."""
    names, colors = [f"cam{n}" for n in range(8)], list(COLORS)
    shuffle = np.random.default_rng(1)
    with StandIn(delay=0.05) as standin:
        r = running(model=standin.spec, max_inflight=8, queue_size=64)
        for number in range(41):
            second = number // FPS
            batch = [frame(colors[(k + second) % 8], name, number) for k, name in enumerate(names)]
            r.feed(*(batch[i] for i in shuffle.permutation(8)))
            if number % FPS == 5:
                r.settle()
        r.settle()
        r.feed(*(frame("red", name, 41) for name in names))
        stats = r.settle()
    assert stats["segments"] == stats["answered"] == 32 and standin.most > 1
    for k, name in enumerate(names):
        mine = [(pts, text) for stream, pts, text in r.texts if stream == name]
        assert [text.text for _, text in mine] == [" ".join([colors[(k + s) % 8]] * 4) for s in range(4)]
        assert [text.start for _, text in mine] == [s * SECOND for s in range(4)]
        assert all(text.end < pts for pts, text in mine)


def test_faults_of_all_kinds_are_accounted_for(running: Any) -> None:
    script = ["429", "500", None, "cut", "malformed", "400", None, "endless", None, "hang"]
    with StandIn(lambda number: script[number % len(script)], delay=0.01) as standin:
        r = running(model=standin.spec, timeout=0.6, retries=2, segment=0.5, queue_size=4)
        for number in range(200):
            for k in range(4):
                r.feed(frame(list(COLORS)[k], f"cam{k}", number))
            time.sleep(0.005)
        stats = r.settle()
        r.feed(*(frame(list(COLORS)[k], f"cam{k}", 200) for k in range(4)))
    assert stats["segments"] == 4 * 39 and stats["answered"] and stats["failed"] and stats["retries"]
    assert stats["failed-http-400"] and stats["failed-deadline"]
    assert len(r.texts) == stats["answered"]
    for stream, _, text in r.texts:
        assert set(text.text.split()) == {list(COLORS)[int(stream[-1])]}
    # One warning a reason, however often it came.
    assert len(r.warnings) == len({str(w.__cause__.reason) for w in r.warnings})  # type: ignore[union-attr]


def test_a_slow_model_never_holds_frames_and_memory_stays_bounded(running: Any) -> None:
    with StandIn(delay=1.0) as standin:
        r = running(model=standin.spec, segment=0.2, fps=10, max_inflight=2, queue_size=3, on_full="drop-oldest")
        most = 0
        for number in range(200):
            r.feed(frame("green", "cam", number))
            most = max(most, r.stage.stats()["bytes"])
        assert r.longest < 0.8  # a frame that waited for the model would have taken a second
        stats = r.stage.stats()
        assert stats["dropped-full"] >= 90 and stats["bytes-cam"] == stats["bytes"]
        # Two asked, three that wait and the open one, of two pictures each.
        assert most <= 6 * 2 * 36 * 64 * 3


def test_a_full_mailbox_may_hold_the_stream(running: Any) -> None:
    with StandIn(delay=0.05) as standin:
        r = running(model=standin.spec, segment=0.2, fps=10, max_inflight=1, queue_size=1, on_full="wait")
        for number in range(41):
            r.feed(frame("green", "cam", number))
        r.stage.finish()
        stats = r.settle()
    assert stats["segments"] == stats["answered"] == 21


def test_a_stream_that_is_held_is_let_go_by_a_flush(running: Any) -> None:
    with StandIn(lambda number: "hang") as standin:
        r = running(model=standin.spec, segment=0.2, fps=10, max_inflight=1, queue_size=1, on_full="wait")
        threading.Timer(0.5, r.stage.interrupt).start()
        began = time.monotonic()
        with pytest.raises(Flushed):
            for number in range(41):
                r.feed(frame("green", "cam", number))
        assert 0.4 < time.monotonic() - began < 5
        stats = r.settle()
        assert stats["segments"] == stats["dropped-flushed"] == 3


def test_the_last_segment_is_asked_at_the_end_and_drain_timeout_bounds_it(running: Any) -> None:
    with StandIn(delay=0.2) as standin:
        r = running(model=standin.spec)
        for number in range(5):
            r.feed(frame("cyan", "cam", number))
        r.stage.finish()
        assert r.stage.stats()["answered"] == 1 and r.answers[0][1].text == "cyan cyan"
        # The frame that is kept back for it takes the answer.
        last = frame("cyan", "cam", 4)
        r.stage.deliver(FrameBatch((last,)))
        assert [text.text for text in last.results.texts] == ["cyan cyan"]
    with StandIn(lambda number: "hang") as standin:
        r = running(model=standin.spec, drain_timeout=0.2)
        r.feed(frame("cyan", "cam", 0))
        began = time.monotonic()
        r.stage.finish()
        assert 0.15 < time.monotonic() - began < 5
        assert r.settle()["dropped-drained"] == 1


def test_flush_and_stop_are_immediate_and_nothing_late_arrives(running: Any) -> None:
    with StandIn(delay=1.0) as standin:
        r = running(model=standin.spec)
        for number in range(11):
            r.feed(frame("red", "cam", number))
        began = time.monotonic()
        r.stage.interrupt()
        with pytest.raises(Flushed):
            r.feed(frame("red", "cam", 11))
        r.stage.clear()
        assert time.monotonic() - began < 0.8
        r.feed(frame("blue", "cam", 0))
        time.sleep(1.2)
        r.feed(frame("blue", "cam", 1))
        assert r.texts == [] and r.settle()["dropped-flushed"] == 1
        for number in range(2, 12):
            r.feed(frame("blue", "cam", number))
        r.settle()
        r.feed(frame("blue", "cam", 12))
        assert [text.text for _, _, text in r.texts] == ["blue blue blue blue"]
        for number in range(13, 22):
            r.feed(frame("blue", "cam", number))
        began = time.monotonic()
        r.stage.stop()
        assert time.monotonic() - began < 0.8


def test_one_stream_of_several_may_end_or_begin_anew(running: Any) -> None:
    with StandIn(delay=0.2) as standin:
        r = running(model=standin.spec)
        for number in range(5):
            r.feed(frame("red", "a", number), frame("blue", "b", number), frame("green", "c", number))
        r.stage.end("a")
        r.stage.reset("b")
        r.stage.reset("nobody")
        for number in range(5, 11):
            r.feed(frame("white", "b", number), frame("green", "c", number))
        stats = r.settle()
        assert stats["segments"] == stats["answered"] == 2
        r.stage.finish()
    assert sorted((stream, text.text) for stream, text in r.answers) == [
        ("a", "red red"), ("b", "white white white"), ("c", "green"), ("c", "green green green green")
    ]  # fmt: skip


def person(*ids: int, label: str = "person") -> Detections:
    boxes = [[4 + 30 * k, 2, 30 + 30 * k, 34] for k in range(len(ids))]
    return Detections(boxes, label=[label] * len(ids), tracker_id=list(ids))


def test_a_condition_decides_what_is_asked_and_cools_down(running: Any) -> None:
    with StandIn() as standin:
        r = running(model=standin.spec, only_on="person>=2", cooldown=2.0, prompt="{objects}; {labels}?")
        for number in range(71):
            # Two people in one frame of the seconds 1, 2, 3 and 5.
            busy = number % FPS == 3 and number // FPS in (1, 2, 3, 5)
            r.feed(frame("red", "cam", number, person(1, 2) if busy else person(1, label="dog")))
        stats = r.settle()
        asked = [question(request) for request in standin.requests]
    assert asked == ["2 person, 1 dog; dog, person?"] * 3
    assert (stats["segments"], stats["not-asked"], stats["cooling-down"]) == (3, 3, 1)
    assert [text.start for _, text in sorted(r.answers, key=lambda a: a[1].start or 0)] == [
        SECOND, 3 * SECOND, 5 * SECOND
    ]  # fmt: skip


def test_prompts_of_single_streams_are_read_again_when_the_file_changes(running: Any, tmp_path: Path) -> None:
    file = tmp_path / "prompts.toml"
    file.write_text('[streams.gate]\nprompt = "Is {stream_id} open?"\n')
    with StandIn() as standin:
        r = running(model=standin.spec, prompts=str(file))

        def asked(start: int) -> list[str]:
            standin.requests.clear()
            for number in range(start, start + FPS):
                r.feed(frame("red", "gate", number), frame("red", "yard", number))
            r.feed(frame("red", "gate", start + FPS), frame("red", "yard", start + FPS))
            r.settle()
            return sorted(question(request) for request in standin.requests)

        assert asked(0) == ["Is gate open?", "Which colours?"]
        file.write_text('[streams.gate]\nprompt = "{oops}"\n')
        limit = time.monotonic() + 5
        while not r.warnings and time.monotonic() < limit:
            time.sleep(0.05)
        assert "unknown placeholder {oops}" in str(r.warnings[0])
        assert asked(FPS) == ["Is gate open?", "Which colours?"]
        file.write_text('[streams.gate]\nprompt = "Shut?"\nid = "shut"\n')
        while not r.stage.stats().get("prompts-read") and time.monotonic() < limit:
            time.sleep(0.05)
        assert asked(2 * FPS) == ["Shut?", "Which colours?"]
    assert {text.prompt_id for _, text in r.answers} == {"gate", "prompt", "shut"}


SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "blue"], "x-gstinfer": "class"}},
    "required": ["color"],
}


def test_structured_answers_become_data_and_classes_and_others_are_marked(running: Any, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))

    def answer(colors: list[str], request: dict[str, Any]) -> str:
        return json.dumps({"color": colors[0]}) if colors[0] != "green" else "It is green."

    with StandIn(answer=answer) as standin:
        r = running(model=standin.spec, response_schema=str(file))
        for number in range(31):
            r.feed(frame(["blue", "green", "yellow"][min(number // FPS, 2)], "cam", number))
        stats = r.settle()
        r.feed(frame("red", "cam", 31))
    by_start = {text.start: text for _, _, text in r.texts}
    assert by_start[0].data == {"color": "blue"} and not by_start[0].invalid
    assert by_start[SECOND].data is None and "not JSON" in by_start[SECOND].invalid
    assert by_start[SECOND].text == "It is green."
    assert by_start[2 * SECOND].data is None and "'yellow' is not one of" in by_start[2 * SECOND].invalid
    assert stats["invalid"] == 2 and stats["answered"] == 3
    classes = [c for f in r.frames for c in f.results.classifications]
    assert [(c.label, c.class_id.tolist(), c.component_id) for c in classes] == [(["blue"], [1], 17)]


def test_objects_are_asked_about_once_and_keep_the_answer(running: Any) -> None:
    with StandIn() as standin:
        r = running(model=standin.spec, on="objects", labels="person", min_size=8, prompt="Which colour is this {labels}?")
        for number in range(30):
            found = Detections.merge([person(1, 2), person(9, label="dog"), person(-1)])
            r.feed(frame("magenta", "cam", number, found))
            if number == 5:
                r.settle()
        stats = r.settle()
        assert len(standin.requests) == 2 and stats["answered"] == 2 and stats["objects-untracked"] == 30
        assert {question(request) for request in standin.requests} == {"Which colour is this person?"}
        assert all(pictures(request) == ["magenta"] for request in standin.requests)
    assert sorted(text.tracker_id for _, _, text in r.texts) == [1, 2]
    said = r.frames[-1].results.detections.attributes
    assert said == [(Attribute("magenta", 0, 1.0, 17),), (Attribute("magenta", 0, 1.0, 17),), (), ()]


def test_objects_are_asked_about_again_and_untracked_ones_never(running: Any) -> None:
    with StandIn() as standin:
        r = running(model=standin.spec, on="objects", min_size=8, ask_again=1.0)
        for number in range(31):
            r.feed(frame("red", "cam", number, person(5)))
            r.settle()
        assert r.stage.stats()["segments"] == 4
        r = running(model=standin.spec, on="objects", min_size=8)
        for number in range(3):
            r.feed(frame("red", "cam", number, Detections([[0, 0, 30, 30]])))
        assert r.stage.stats()["segments"] == 0 and "put pytrack before pyvlm" in str(r.warnings[0])
        assert len(r.warnings) == 1


def test_frames_without_a_timestamp_are_told_once(running: Any) -> None:
    with StandIn() as standin:
        r = running(model=standin.spec)
        for _ in range(3):
            one = frame("red", "cam", 0)
            one.pts = None
            r.feed(one)
    assert len(r.warnings) == 1 and r.stage.stats()["untimed"] == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompt": ""}, "no prompt is set"),
        ({"prompt": "{oops}"}, "unknown placeholder {oops}"),
        ({"only_on": "person>"}, "only-on=.*expected a number"),
        ({"cooldown": 1}, "cooldown needs a condition"),
        ({"overlap": 2, "segment": 2}, "overlap=2 must be less"),
        ({"prompts": "none.toml"}, "does not exist"),
        ({"response_schema": "none.json"}, "does not exist"),
        ({"model": ""}, "no model is set"),
        ({"model": "openai:http://127.0.0.1:9/v1#x"}, "no server answers"),
    ],
)
def test_what_cannot_be_used_is_one_line_at_start(settings: dict[str, Any], words: str) -> None:
    stage = VlmStage(VlmSettings(**{"prompt": "What?", "model": "openai:http://127.0.0.1:9/v1#x", **settings}))
    with pytest.raises(GstInferError, match=words) as caught:
        stage.start()
    assert "\n" not in str(caught.value)
    stage.stop()


def test_elements_that_share_a_model_must_agree(running: Any) -> None:
    with StandIn() as standin:
        running(model=standin.spec, model_instance_id="one")
        running(model=standin.spec, model_instance_id="one", prompt="Another question?")
        with pytest.raises(ConfigError, match="model-instance-id=one"):
            running(model=standin.spec, model_instance_id="one", retries=7)
