"""pypublish in pipelines."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

import gstinfer
from gstinfer.elements.compat import Gst

MODEL = """
import numpy as np
from gstinfer import Detections

def box(batch):
    return [Detections(np.array([[1, 2, 3, 4]], np.float32)) for _ in batch]
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.py").write_text(MODEL)
    return f"{tmp_path}/m.py:box"


def play(text: str):
    """Plays until EOS or an error; gives the pipeline, still playing, and the first error's text."""
    gstinfer.register()
    pipeline = Gst.parse_launch(text)
    if pipeline.set_state(Gst.State.PLAYING) == Gst.StateChangeReturn.FAILURE:
        message = pipeline.get_bus().timed_pop_filtered(0, Gst.MessageType.ERROR)
    else:
        message = pipeline.get_bus().timed_pop_filtered(20 * Gst.SECOND, Gst.MessageType.ERROR | Gst.MessageType.EOS)
    assert message is not None, "neither EOS nor an error"
    return pipeline, message.parse_error()[0].message if message.type == Gst.MessageType.ERROR else ""


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_everything_is_written_at_eos_before_the_pipeline_stops(tmp_path, model):
    path = tmp_path / "o.jsonl"
    pipeline, error = play(
        "videotestsrc num-buffers=50 ! video/x-raw,width=64,height=48,framerate=25/1 "
        f"! pyinfer model={model} stream-id=cam ! pypublish name=p url=file:{path} ! fakesink"
    )
    assert not error
    found = lines(path)
    stats = pipeline.get_by_name("p").get_property("stats")
    assert stats.get_value("published") == 50 and stats.get_value("dropped") == 0
    pipeline.set_state(Gst.State.NULL)
    assert [(m["sequence"], m["pts"], m["stream_id"]) for m in found] == [
        (n, n * 40_000_000, "cam") for n in range(50)
    ]
    assert all(m["objects"][0]["bbox"] == [1, 2, 3, 4] for m in found)
    assert lines(path) == found


def test_elements_with_one_url_share_one_file(tmp_path, model):
    path = tmp_path / "o.jsonl"
    branch = "videotestsrc num-buffers=40 ! video/x-raw,width=64,height=48 ! pyinfer model={} stream-id={} ! {} ! fakesink "
    publish = f"pypublish url=file:{path}"
    pipeline, error = play(" ".join(branch.format(model, name, publish) for name in "abc"))
    pipeline.set_state(Gst.State.NULL)
    assert not error
    found = lines(path)
    assert len(found) == 120
    for name in "abc":
        assert [m["sequence"] for m in found if m["stream_id"] == name] == list(range(40))


def test_buffers_pass_untouched():
    gstinfer.register()
    pipeline = Gst.parse_launch(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=48 ! tee name=t "
        "t. ! queue ! pypublish url=file:/dev/null ! appsink name=a t. ! queue ! appsink name=b"
    )
    pipeline.set_state(Gst.State.PLAYING)
    a, b = pipeline.get_by_name("a"), pipeline.get_by_name("b")
    for _ in range(3):
        one, two = (sink.emit("try-pull-sample", 5 * Gst.SECOND).get_buffer() for sink in (a, b))
        assert one.pts == two.pts
        assert hash(one) == hash(two), "pypublish must pass the very buffer on"
    pipeline.set_state(Gst.State.NULL)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:/nope/gone/o.jsonl", "make it first"),
        ("o.jsonl", "has no scheme"),
        ("pigeon:x", "no publisher 'pigeon'"),
        ("file:/dev/full", "No space left"),
    ],
)
def test_errors_reach_the_bus(url, words):
    pipeline, error = play(f"videotestsrc num-buffers=500 ! pypublish url={url} ! fakesink sync=false")
    pipeline.set_state(Gst.State.NULL)
    assert words in error


def test_without_inference_the_message_says_so(tmp_path):
    path = tmp_path / "o.jsonl"
    pipeline, error = play(f"videotestsrc num-buffers=2 ! pypublish url=file:{path} ! fakesink")
    pipeline.set_state(Gst.State.NULL)
    assert not error
    assert [(m["inferred"], m["model"], "objects" in m) for m in lines(path)] == [(False, None, False)] * 2


def test_behind_a_crop_no_message_says_that_nothing_was_found(tmp_path, model):
    path = tmp_path / "o.jsonl"
    pipeline, error = play(
        f"videotestsrc num-buffers=2 ! video/x-raw,width=64,height=48 ! pyinfer model={model} ! videocrop left=8 ! pytrack "
        f"! pypublish url=file:{path} ! fakesink"
    )
    pipeline.set_state(Gst.State.NULL)
    assert not error
    assert [(m["inferred"], "objects" in m, m["width"]) for m in lines(path)] == [(False, False, 56)] * 2


def test_the_reason_is_on_the_bus_before_the_stream_can_end(monkeypatch):
    gstinfer.register()
    element, seen = Gst.ElementFactory.make("pypublish"), []
    monkeypatch.setattr("gstinfer.elements.publish.element.report", lambda element, error: seen.append(element.failed))
    for _ in range(2):
        element.target_failed(gstinfer.PublishError("the disk is full"))
    assert seen == [False] and element.failed
