"""pyvlm in pipelines."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")
sys.path.insert(0, str(Path(__file__).parents[1] / "vlm"))
from standin import COLORS, StandIn, color_of

import gstinfer
from gstinfer.elements.compat import Gst, structure_of
from gstinfer.testing import run_pipeline

VIDEO = "video/x-raw,format={},width=160,height=120,framerate=30/1"
SECOND = 1_000_000_000


def texts(run: Any) -> list[tuple[int, str, int, int]]:
    """(PTS of the frame, text, start, end) of every text."""
    return [(pts, t.text, t.start, t.end) for pts, r in zip(run.pts, run.results) if r for t in r.texts]


@pytest.mark.parametrize("format", ["RGB", "NV12", "I420", "BGRx"])
def test_every_segment_is_answered_and_the_last_on_the_last_frame(format: str) -> None:
    with StandIn() as standin:
        run = run_pipeline(
            f"videotestsrc pattern=blue num-buffers=75 ! {VIDEO.format(format)} ! "
            # One question at a time: several in flight may be answered in any order.
            f'pyvlm name=vlm model={standin.spec} prompt="Which colours?" segment=1 fps=2 stream-id=gate max-inflight=1 ! '
            "fakesink name=sink"
        )
    assert run.eos and not run.warnings and len(run.pts) == 75 and len(set(run.pts)) == 75
    found = texts(run)
    assert [(text, start) for _, text, start, _ in found] == [("blue blue", 0), ("blue blue", SECOND), ("blue", 2 * SECOND)]
    assert found[-1][0] == run.pts[-1] and all(end <= pts for pts, _, _, end in found)
    assert run.messages.count("gstinfer-text") == 3


def test_the_last_answers_of_a_file_reach_its_last_frame(bikes: Path) -> None:
    """A real decoder sends tags among the frames, and tells the end of a group of streams before the end."""
    with StandIn(answer=lambda colors, request: f"{len(colors)} pictures", delay=0.2) as standin:
        run = run_pipeline(
            f"filesrc location={bikes} ! decodebin ! videoconvert ! "
            f"pyvlm on-full=wait model={standin.spec} prompt=What? ! fakesink name=sink"
        )
    found = texts(run)
    assert len(run.pts) == 250 and [text for _, text, _, _ in found] == ["8 pictures", "8 pictures", "4 pictures"]
    assert found[-1][0] == run.pts[-1]


def test_an_application_gets_each_frame_as_soon_as_it_pushed_it() -> None:
    with StandIn(delay=0.2) as standin:
        gstinfer.register()
        pipeline = Gst.parse_launch(
            f"appsrc name=src format=time caps={VIDEO.format('RGB')} ! "
            f"pyvlm model={standin.spec} prompt=hi segment=0.1 fps=10 ! appsink name=out sync=false"
        )
        source, sink = pipeline.get_by_name("src"), pipeline.get_by_name("out")
        pipeline.set_state(Gst.State.PLAYING)
        for number in range(5):
            buffer = Gst.Buffer.new_wrapped(bytes(160 * 120 * 3))
            buffer.pts = number * SECOND // 30
            source.emit("push-buffer", buffer)
            sample = sink.emit("try-pull-sample", 5 * Gst.SECOND)
            assert sample is not None and sample.get_buffer().pts == number * SECOND // 30
        pipeline.set_state(Gst.State.NULL)


def test_a_slow_model_leaves_a_live_picture_at_its_rate() -> None:
    """A model of two seconds on 30 frames a second: the sink gets each frame on time."""
    times: list[float] = []
    with StandIn(delay=2.0) as standin:
        run = run_pipeline(
            f"videotestsrc is-live=true pattern=green num-buffers=150 ! {VIDEO.format('I420')} ! "
            f'pyvlm model={standin.spec} prompt="?" segment=1 fps=4 drain-timeout=0.1 ! fakesink name=sink sync=true',
            on_buffer=lambda pipeline, number: times.append(time.monotonic()),
        )
    assert len(run.pts) == 150
    rate = 149 / (times[-1] - times[0])
    assert 29 < rate < 31
    late = [t - times[0] - (pts - run.pts[0]) / SECOND for t, pts in zip(times, run.pts)]
    # A frame lasts 33 ms; the machine may be busy with other things for as long.
    assert float(np.median(np.abs(late))) < 0.034
    found = texts(run)
    assert [text for _, text, _, _ in found] == ["green green green green"] * len(found) and len(found) >= 2
    for pts, _, start, end in found:
        assert 0.9 * SECOND <= end - start < SECOND and 2.0 * SECOND <= pts - end < 4 * SECOND


def test_signal_and_message_tell_of_each_answer() -> None:
    signals: list[tuple[Any, ...]] = []
    with StandIn() as standin:
        gstinfer.register()
        pipeline = Gst.parse_launch(
            f"videotestsrc pattern=red num-buffers=15 ! {VIDEO.format('RGB')} ! "
            f'pyvlm name=vlm model={standin.spec} prompt="?" fps=2 stream-id=door ! fakesink'
        )
        pipeline.get_by_name("vlm").connect("result", lambda element, *arguments: signals.append(arguments))
        pipeline.set_state(Gst.State.PLAYING)
        bus, told = pipeline.get_bus(), {}
        while (message := bus.timed_pop(10 * Gst.SECOND)) and message.type not in (Gst.MessageType.EOS, Gst.MessageType.ERROR):
            if message.type == Gst.MessageType.ELEMENT:
                structure = structure_of(message)
                told = {name: structure.get_value(name) for name in ("stream-id", "text", "start", "end", "model", "data")}
        pipeline.set_state(Gst.State.NULL)
    assert signals == [("door", 0, 466_666_666, "red")]
    assert told == {
        "stream-id": "door", "text": "red", "start": 0, "end": 466_666_666, "model": "color-vlm", "data": ""
    }  # fmt: skip


def test_eight_streams_share_one_model_and_stay_apart(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    colors = {"red": "red", "green": "green", "blue": "blue", "white": "white", "black": "black"}
    names = [*colors, *("red", "green", "blue")]
    branches = " ".join(
        f"videotestsrc pattern={color} num-buffers=60 is-live=true ! {VIDEO.format('I420')} ! "
        f'pyvlm model={{0}} model-instance-id=all max-inflight=8 queue-size=64 prompt="?" segment=0.5 fps=4 '
        f"stream-id={color}-{n} ! pypublish url=file:{target} ! fakesink name={'sink' if n == 0 else f's{n}'}"
        for n, color in enumerate(names)
    )
    with StandIn(delay=0.1) as standin:
        run = run_pipeline(branches.format(standin.spec))
    assert run.eos
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(found) == 8 * 60
    said = [(m["stream_id"], t["text"], t["start"]) for m in found for t in m.get("texts", ())]
    assert len(said) >= 8 * 3 and standin.most > 1
    for stream, text, _ in said:
        assert set(text.split()) == {stream.split("-")[0]}
    assert len({(stream, start) for stream, _, start in said}) == len(said)


def test_the_picture_shows_the_newest_answer_until_it_is_old() -> None:
    """White letters on black at the bottom of a blue picture, from the answer on, for max-age after what it speaks of."""
    with StandIn(answer=lambda colors, request: "█" * 40) as standin:
        run = run_pipeline(
            f"videotestsrc pattern=blue num-buffers=60 is-live=true ! {VIDEO.format('RGB')} ! "
            f'pyvlm model={standin.spec} prompt="?" segment=0.5 fps=2 cooldown=60 only-on="not person" ! '
            "pyoverlay max-age=0.5 ! fakesink name=sink",
            keep_data=True,
        )
    (pts, _, _, end), *more = texts(run)
    assert not more
    for time_, data in zip(run.pts, run.data):
        bottom = np.frombuffer(data, np.uint8).reshape(120, 160, 3)[-12:]
        shown = color_of(bottom) != "blue"
        assert shown == (pts <= time_ <= end + SECOND // 2), (time_, pts, end)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('model=openai:http://127.0.0.1:9/v1#x prompt="?"', "no server answers"),
        ("model={0} prompt={{oops}}", "unknown placeholder {oops}"),
        ("model={0} prompt=hi prompts=none.toml", "does not exist"),
        ("model={0}x prompt=hi", "no model at http.*'color-vlmx'; available: color-vlm"),
        ("model={0} prompt=hi model-args=x=1", "model-args do not apply"),
    ],
)
def test_errors_reach_the_bus_at_start(settings: str, words: str) -> None:
    with StandIn() as standin, pytest.raises(AssertionError, match=words):
        run = run_pipeline(f"videotestsrc num-buffers=2 ! pyvlm {settings.format(standin.spec)} ! fakesink name=sink")
        raise AssertionError(run.error)


def test_a_failing_server_is_a_warning_and_frames_go_on() -> None:
    with StandIn(lambda number: "400") as standin:
        run = run_pipeline(
            f"videotestsrc num-buffers=90 ! {VIDEO.format('RGB')} ! pyvlm name=vlm model={standin.spec} prompt=hi segment=1 ! "
            "fakesink name=sink"
        )
    assert len(run.pts) == 90 and len(run.warnings) == 1 and "HTTP 400 as asked: 400" in run.warnings[0]
    assert run.stats["vlm"]["failed"] == 3 == run.stats["vlm"]["segments"]


def test_a_prompt_changes_while_it_plays() -> None:
    with StandIn() as standin:

        def change(pipeline: Any, number: int) -> None:
            if number in (20, 40):
                pipeline.get_by_name("vlm").set_property("prompt", "Second?" if number == 20 else "{wrong}")

        run = run_pipeline(
            f"videotestsrc num-buffers=90 is-live=true ! {VIDEO.format('RGB')} ! "
            f"pyvlm name=vlm model={standin.spec} prompt=First? segment=1 fps=1 ! fakesink name=sink",
            on_buffer=change,
        )
    asked = [request["messages"][-1]["content"][-1]["text"] for request in standin.requests]
    assert asked == ["Second?"] * 3 and "unknown placeholder {wrong}" in run.warnings[0]


def test_stopping_in_the_middle_is_immediate() -> None:
    with StandIn(lambda number: "hang") as standin:
        gstinfer.register()
        pipeline = Gst.parse_launch(
            f"videotestsrc is-live=true ! {VIDEO.format('RGB')} ! "
            f"pyvlm model={standin.spec} prompt=hi segment=0.2 fps=5 ! fakesink"
        )
        pipeline.set_state(Gst.State.PLAYING)
        time.sleep(1.0)
        began = time.monotonic()
        pipeline.set_state(Gst.State.NULL)
        assert time.monotonic() - began < 5
    limit = time.monotonic() + 10
    while time.monotonic() < limit and any(t.name.startswith("gstinfer:vlm") for t in threading.enumerate()):
        time.sleep(0.05)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("gstinfer:vlm")]


def test_seeks_begin_segments_anew() -> None:
    """After a flushing seek no answer about what was before it arrives."""
    with StandIn(delay=0.3) as standin:
        gstinfer.register()
        pipeline = Gst.parse_launch(
            f"videotestsrc pattern=ball num-buffers=3000 ! {VIDEO.format('RGB')} ! "
            f"pyvlm name=vlm model={standin.spec} prompt=hi segment=1 ! fakesink name=sink sync=true"
        )
        seen: list[tuple[int, int]] = []

        def probe(pad: Any, info: Any) -> Any:
            buffer = info.get_buffer()
            results = gstinfer.read(buffer)
            seen.extend((buffer.pts, text.start) for text in (results.texts if results else ()))
            return Gst.PadProbeReturn.OK

        pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
        pipeline.set_state(Gst.State.PLAYING)
        pipeline.get_state(5 * Gst.SECOND)
        time.sleep(1.1)
        assert pipeline.seek_simple(Gst.Format.TIME, Gst.SeekFlags.FLUSH, 50 * Gst.SECOND)
        time.sleep(1.8)
        pipeline.set_state(Gst.State.NULL)
    after = [(pts, start) for pts, start in seen if pts >= 50 * SECOND]
    assert after and all(start >= 50 * SECOND for _, start in after)


def test_inspecting_opens_nothing() -> None:
    """What gst-inspect-1.0 does reads no prompt, asks no server, and prints no key."""
    code = """
import gi; gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
import gstinfer; gstinfer.register()
element = Gst.ElementFactory.make("pyvlm", None)
print([(spec.name, str(element.get_property(spec.name))) for spec in element.list_properties()])
import sys; print(sorted({"cv2", "torch", "transformers", "jsonschema"} & set(sys.modules)))
"""
    import os

    environment = {**os.environ, "OPENAI_API_KEY": "open-sesame"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]" and "open-sesame" not in done.stdout


def test_the_colours_of_the_stand_in_are_those_of_videotestsrc() -> None:
    for color in ("red", "green", "blue", "white", "black"):
        run = run_pipeline(
            f"videotestsrc pattern={color} num-buffers=1 ! {VIDEO.format('RGB')} ! fakesink name=sink", keep_data=True
        )
        assert color_of(np.frombuffer(run.data[0], np.uint8).reshape(120, 160, 3)) == color and color in COLORS
