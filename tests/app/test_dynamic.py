"""Streams that come and go while a session runs, and a model that changes under them."""

from __future__ import annotations

import json
import threading

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]
pytest.importorskip("gi")

from sessions import Gaps, running, wait_for

from gstinfer.app.session import Job, Session
from gstinfer.errors import ConfigError, GstInferError, HostError, ModelLoadError, UnknownNameError

SMALL = "width=64&height=64"
LIVE = f"{SMALL}&live=1&fps=30"


def test_a_source_that_ends_and_returns_again_and_again(cases, tmp_path):
    """The others have no gap; each return begins at 0 with new ids, and every frame of it is there."""
    job = Job(
        [f"test:red?{LIVE}", f"test:green?{LIVE}", f"test:blue?{SMALL}&frames=10"],
        f"{cases}/models/oracle_dyn.onnx", settings=["head=yolo-e2e"], publish=[f"file:{tmp_path}/all.jsonl"],
    )  # fmt: skip
    session, gaps = Session(job), Gaps()
    red, green, _ = session.branches
    returns = 4
    with running(session, gaps) as outcome:
        for number in range(returns):
            wait_for(lambda: session.find("blue").state == "ended")
            assert red.running and green.running
            if number < returns - 1:
                session.add_source(f"test:blue?{SMALL}&frames=10")
        before = red.counts.frames
        wait_for(lambda: red.counts.frames > before + 10)
    assert outcome == [True]
    assert max(gaps.longest[name] for name in ("red", "green")) < 1.5
    messages = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    blue = [m for m in messages if m["stream_id"] == "blue"]
    assert [m["sequence"] for m in blue] == [*range(10)] * returns
    assert [m["pts"] for m in blue if m["sequence"] == 0] == [0] * returns
    # A tracker that remembered the stream would give the later returns other ids.
    assert {o["tracker_id"] for m in blue for o in m["objects"]} == {1}
    boxes = {"red": [4, 4, 52, 20], "green": [4, 4, 20, 52], "blue": [4, 4, 20, 20]}
    # A busy machine may skip frames of the live ones.
    for message in (m for m in messages if m["inferred"]):
        assert message["objects"][0]["bbox"] == pytest.approx(boxes[message["stream_id"]], abs=0.6)
    assert len(messages) == red.counts.frames + green.counts.frames + 10 * returns


def test_sources_are_added_and_removed_with_their_files(model, tmp_path):
    session = Session(Job([f"test:red?{LIVE}"], f"{model}:box", output=f"{tmp_path}/made/"))
    with running(session) as outcome:
        added = session.add_source(f"test:blue?{LIVE}", "door")
        assert added.source.stream_id == "door" and session.find("door") is added
        wait_for(lambda: added.counts.frames > 5)
        session.remove_source("door")
        wait_for(lambda: added.state == "ended")
        assert added.written and (tmp_path / "made/door.mp4").stat().st_size
        again = session.add_source(f"test:blue?{LIVE}", "door")
        assert again.output == tmp_path / "made/door-2.mp4"
        second = session.add_source(f"test:red?{LIVE}")
        assert second.source.stream_id == "red-2"
        wait_for(lambda: again.counts.frames > 5 and second.counts.frames > 5)
    assert outcome == [True] and all(b.written for b in session.branches)
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == ["door-2.mp4", "door.mp4", "red-2.mp4", "red.mp4"]


def test_what_cannot_be_added_or_removed_is_said_and_the_others_go_on(model, tmp_path, cases):
    session = Session(Job([f"test:red?{LIVE}"], f"{model}:box", output=f"{tmp_path}/one.mp4"))
    with pytest.raises(ConfigError, match="does not run"):
        session.add_source("test:red")
    red = session.branches[0]
    with running(session) as outcome:
        wait_for(lambda: red.counts.frames > 3)
        for text, error, words in (
            ("gopher://x", UnknownNameError, "no kind of input"),
            ("test:wite", UnknownNameError, "did you mean 'white'"),
            ("rtsp://", ConfigError, "no address of a camera"),
            ("test:blue", ConfigError, "start with --output DIR/"),
        ):
            with pytest.raises(error, match=words):
                session.add_source(text)
        session.job.output = None
        for name, words in (("zero.mp4", "empty"), ("trunc.mp4", "before its index"), ("gone.mp4", "no such file")):
            with pytest.raises(HostError, match=words):
                session.add_source(str(cases / "media" / name))
        with pytest.raises(ConfigError, match="running already"):
            session.add_source("test:blue", "red")
        with pytest.raises(UnknownNameError, match="no stream 'nope'; available: red"):
            session.remove_source("nope")
        before = red.counts.frames
        wait_for(lambda: red.counts.frames > before + 10)
    assert outcome == [True] and len(session.branches) == 1


def test_a_broken_file_in_company_fails_alone(model, cases):
    bad = [str(cases / "media" / name) for name in ("zero.mp4", "exo_invalid-bitstream.webm", "th_no_cover.mp3")]
    session = Session(Job([f"test:red?{SMALL}&frames=40", *bad, f"test:blue?{SMALL}&frames=30"], f"{model}:box"))
    assert not session.run()
    assert [b.counts.frames for b in session.branches] == [40, 0, 0, 0, 30]
    assert [b.source.text for b in session.failed] == bad and all(b.error for b in session.failed)


def test_the_model_is_exchanged_under_all_streams(model):
    session = Session(Job([f"test:red?{LIVE}", f"test:blue?{LIVE}"], f"{model}:box"))
    red, blue = session.branches
    with running(session) as outcome:
        wait_for(lambda: red.counts.frames > 5 and blue.counts.frames > 5)
        for spec, error, words in (
            (f"{model}:NoLoad", ModelLoadError, "weights are gone"),
            (f"{model}:Nope", GstInferError, "Nope"),
            ("gone.onnx", GstInferError, "gone.onnx"),
        ):
            with pytest.raises(error, match=words):
                session.swap(spec, 30)
        assert session.model == f"{model}:box"
        session.swap(f"{model}:other", 30)
        assert session.model == session.report()["model"] == f"{model}:other"
        wait_for(lambda: red.counts.objects["other"] and blue.counts.objects["other"])
        # One that comes later joins the new model.
        added = session.add_source(f"test:green?{LIVE}")
        wait_for(lambda: added.counts.objects["other"])
        assert added.counts.objects["thing"] == 0
    assert outcome == [True]


def test_a_swap_whose_stream_ends_meanwhile_is_told_by_another(model, tmp_path):
    slow = f"{tmp_path}/slow.py"
    with open(slow, "w") as file:
        file.write("import time\ntime.sleep(1)\ndef slow(batch):\n    return [None] * len(batch)\n")
    session = Session(Job([f"test:red?{LIVE}", f"test:blue?{LIVE}"], f"{model}:box", stay=True))
    with running(session) as outcome:
        wait_for(lambda: all(branch.counts.frames for branch in session.branches))
        threading.Timer(0.3, session.remove_source, ["red"]).start()
        session.swap(f"{slow}:slow", 20)
        assert session.find("red").state == "ended" and session.model == f"{slow}:slow"
    assert outcome == [True]


def test_a_session_stays_without_sources_until_it_is_stopped(model):
    session = Session(Job([], f"{model}:box", stay=True))
    with running(session) as outcome:
        session.swap(f"{model}:other")
        added = session.add_source(f"test:red?{SMALL}&frames=5")
        wait_for(lambda: added.state == "ended")
        assert added.counts.objects == {"other": 5} and not outcome
    assert outcome == [True]
    with pytest.raises(ConfigError, match="no input"):
        Session(Job([], f"{model}:box"))


def test_states_of_a_source(model, monkeypatch):
    monkeypatch.setattr("gstinfer.app.branch.STALL_SECONDS", 0.3)
    session = Session(Job([f"test:red?{LIVE}"], f"{model}:box"))
    branch = session.branches[0]
    assert branch.state == "ready"
    with running(session):
        wait_for(lambda: branch.state == "playing")
        pad = branch._queue.get_static_pad("sink")
        from gi.repository import Gst

        block = pad.add_probe(Gst.PadProbeType.BLOCK_DOWNSTREAM, lambda pad, info: Gst.PadProbeReturn.OK)
        wait_for(lambda: branch.state == "stalled")
        pad.remove_probe(block)
        wait_for(lambda: branch.state == "playing")
    assert branch.state == "ended"
    assert "gstinfer" not in " ".join(thread.name for thread in threading.enumerate())
