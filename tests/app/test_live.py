"""Cameras over RTSP, from a real server: connected, lost, found again; one never holds the others."""

from __future__ import annotations

import gc
import json
import socket
import time

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]
pytest.importorskip("gi")

from sessions import Gaps, free_port, running, wait_for

from gstinfer.app import live, sources
from gstinfer.app.entry import Entry
from gstinfer.app.pipeline import make
from gstinfer.app.session import Job, Session
from gstinfer.errors import ConfigError
from gstinfer.image import Device


def test_two_cameras_killed_and_restarted(camera, model, tmp_path):
    ports = {name: free_port() for name in ("door", "gate")}
    servers = {name: camera(port, name, "red") for name, port in ports.items()}
    job = Job(
        [f"rtsp://127.0.0.1:{port}/{name}" for name, port in ports.items()] + ["test:ball?live=1&width=64&height=48"],
        f"{model}:box", output=f"{tmp_path}/made/", publish=[f"file:{tmp_path}/all.jsonl"],
    )  # fmt: skip
    session, gaps = Session(job), Gaps()
    door, gate, other = session.branches
    with running(session, gaps) as outcome:
        wait_for(lambda: door.counts.frames > 10 and gate.counts.frames > 10)
        for name, branch in (("door", door), ("gate", gate)):
            servers[name].kill()
            servers[name].wait()
            wait_for(lambda b=branch: b.state == "connecting")
            before, others = branch.counts.frames, other.counts.frames
            wait_for(lambda n=others: other.counts.frames > n + 20)
            assert branch.counts.frames == before and branch.report()["error"]
            servers[name] = camera(ports[name], name, "green")
            wait_for(lambda b=branch, n=before: b.state == "playing" and b.counts.frames > n + 10)
            assert branch.report()["reconnects"] == 1 and branch.report()["error"] is None
        assert other.report()["lag"] < 1
    assert outcome == [True]
    assert gaps.longest[other.source.stream_id] < 2
    assert [b.state for b in session.branches] == ["ended"] * 3 and all(b.written for b in session.branches)
    assert any("trying again" in text for text in door.warnings)
    messages = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sum(m["stream_id"] == "door" for m in messages) == door.counts.frames
    # The same clock goes on over a reconnection, so the file has its order.
    pts = [m["pts"] for m in messages if m["stream_id"] == "door"]
    assert pts == sorted(pts)
    assert sources.probe(sources.parse(str(tmp_path / "made/door.mp4"))).cut_off is False


def test_an_attempt_and_a_connection_leave_nothing_behind():
    from gstinfer.elements.compat import Gst

    pipeline, gone = Gst.Pipeline.new(None), []
    entry = Entry(Device(), lambda text: None)
    connection = live.Connection(pipeline, f"rtsp://127.0.0.1:{free_port()}/x", entry, 0)
    pipeline.set_state(Gst.State.PAUSED)
    connection.open()
    connection._bin.weak_ref(gone.append, "attempt")
    connection._drop()
    # Messages hold the elements they came from.
    pipeline.get_bus().set_flushing(True)
    gc.collect()
    assert gone == ["attempt"]
    pipeline.set_state(Gst.State.NULL)
    pipeline.weak_ref(gone.append, "pipeline")
    connection.close()
    del pipeline
    gc.collect()
    assert gone == ["attempt", "pipeline"]


def test_no_such_stream_and_nobody_there_and_a_wrong_password_fail_alone(camera, model):
    port = free_port()
    camera(port, "cam", "red", "me:secret")
    urls = [
        f"rtsp://me:secret@127.0.0.1:{port}/cam",
        f"rtsp://me:secret@127.0.0.1:{port}/nope",
        f"rtsp://me:wrong@127.0.0.1:{port}/cam",
        f"rtsp://127.0.0.1:{free_port()}/x",
    ]
    session = Session(Job(urls, f"{model}:box", attempts=1, max_frames=15))
    assert not session.run()
    good, missing, refused, absent = session.branches
    assert good.state == "ended" and good.counts.frames == 15
    assert "no such stream (404)" in missing.error
    assert "401" in refused.error
    assert "no server answers" in absent.error
    assert [b.state for b in session.branches] == ["ended", "failed", "failed", "failed"]
    assert "secret" not in json.dumps([b.report() for b in session.branches])


def test_attempts_grow_further_apart_and_end(model, monkeypatch):
    monkeypatch.setattr(live, "FIRST_WAIT", 0.05)
    session = Session(Job([f"rtsp://127.0.0.1:{free_port()}/x"], f"{model}:box", attempts=5))
    assert not session.run()
    branch = session.branches[0]
    assert "after 5 attempts" in branch.error
    assert [text.partition("again in ")[2] for text in branch.warnings] == ["0.05 s", "0.1 s", "0.2 s", "0.4 s"]


def test_an_address_where_nobody_answers_is_given_up_within_seconds(model):
    # Its connections are made by the kernel, and nothing is ever said on them.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        urls = [f"rtsp://127.0.0.1:{free_port()}/nobody", f"rtsp://127.0.0.1:{mute.getsockname()[1]}/mute"]
        session = Session(Job(urls, f"{model}:box"))
        start = time.monotonic()
        assert not session.run()
        assert time.monotonic() - start < live.FIRST_SECONDS + 4
    nobody, mute_one = session.branches
    assert "no server answers there (after 3 attempts in 3 s)" in nobody.error
    assert mute_one.state == "failed" and mute_one.error


def test_a_missing_element_fails_that_camera_alone(model, monkeypatch):
    def without_rtsp(box, factory, **properties):
        if factory == "rtspsrc":
            raise ConfigError("GStreamer has no element 'rtspsrc'", hint="install it")
        return make(box, factory, **properties)

    monkeypatch.setattr(live, "make", without_rtsp)
    session = Session(Job(["rtsp://127.0.0.1:1/x", "test:red?frames=5"], f"{model}:box"))
    assert not session.run()
    assert "no element 'rtspsrc'" in session.branches[0].error and session.branches[1].counts.frames == 5


def test_stop_while_a_camera_is_sought(model):
    session = Session(Job([f"rtsp://127.0.0.1:{free_port()}/x"], f"{model}:box", attempts=0))
    with running(session) as outcome:
        wait_for(lambda: session.branches[0].warnings)
    assert outcome == [True] and session.branches[0].state == "ended"


def test_passwords_are_not_shown():
    source = sources.parse("rtsp://me:secret@camera.example:8554/a/front")
    assert source.text == "rtsp://me:***@camera.example:8554/a/front" and source.stream_id == "front"
    assert source.target.count("secret") == 1 and source.live


@pytest.mark.parametrize("text", ["rtsp://", "rtsp:///path", "rtsp://host:port/x", "rtsp://me:secret@[x/y"])
def test_addresses_without_a_host_are_refused(text):
    with pytest.raises(ConfigError, match="no address of a camera") as caught:
        sources.parse(text)
    assert "secret" not in str(caught.value)


def test_bounded_lag_with_a_slow_model(model):
    session = Session(Job(["test:ball?live=1&width=64&height=48&fps=30"], f"{model}:Slow", max_frames=90))
    assert session.run()
    report = session.branches[0].report()
    # Every frame comes out; the model saw those for which there was time.
    assert report["frames"] == 90 and 5 < report["inferred"] < 60
    assert report["skipped"] + report["inferred"] + report["dropped"] == 90
    assert report["lag_p95"] < 1.0
