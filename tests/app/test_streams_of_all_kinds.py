"""What a stream may do in the middle: change its size, its rate, run backwards in time."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")

from gstinfer.app import branch as branches
from gstinfer.app.pipeline import link, make
from gstinfer.app.session import Job, Session
from gstinfer.elements.compat import Gst
from gstinfer.testing import run_pipeline


def feed(monkeypatch, plan: list[tuple[int, ...]]) -> None:
    """Replaces every source by frames of (PTS in ms, width, height, frames a second if known)."""

    def build(pipeline, source, *_):
        app = make(pipeline, "appsrc", format="time", block=True, max_buffers=2)
        queue = make(pipeline, "queue", max_size_buffers=4)
        link(app, queue)
        left = iter(plan)

        def need(element, _):
            item = next(left, None)
            if item is None:
                element.emit("end-of-stream")
                return
            pts, width, height, rate = (*item, 0)[:4]
            size = f"width={width},height={height},framerate={rate}/1"
            caps = Gst.Caps.from_string(f"video/x-raw,format=GRAY8,{size}")
            buffer = Gst.Buffer.new_wrapped(bytes([128]) * (width * height))
            buffer.pts = pts * Gst.MSECOND
            element.emit("push-sample", Gst.Sample.new(buffer, caps, None, None))

        app.connect("need-data", need)
        return queue

    monkeypatch.setattr(branches.decoding, "build", build)


def run(model, tmp_path, **more) -> tuple[Session, list[dict]]:
    session = Session(Job(["test:red"], f"{model}:box", publish=[f"file:{tmp_path}/o.jsonl"], **more))
    assert session.run(), session.branches[0].error
    return session, [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]


def coded(tmp_path) -> list[int]:
    """Times of the frames in the file in ms, from the first one on, in the order of display."""
    run = run_pipeline(f"filesrc location={tmp_path}/o.mp4 ! qtdemux ! fakesink name=sink")
    times = sorted(p // 1_000_000 for p in run.pts)
    return [t - times[0] for t in times]


def test_variable_rate_gives_back_the_exact_timestamps(model, tmp_path, monkeypatch):
    times = [0, 33, 34, 100, 101, 500, 533, 1700, 1701, 1702]
    feed(monkeypatch, [(t, 64, 48) for t in times])
    _, messages = run(model, tmp_path)
    assert [m["pts"] for m in messages] == [t * 1_000_000 for t in times]


def test_a_size_that_changes_is_followed_and_the_file_keeps_its_first(model, tmp_path, monkeypatch):
    rates = (25, 15, 0)
    feed(monkeypatch, [(40 * i, *((64, 48), (128, 96), (48, 64))[i // 10], rates[i // 10]) for i in range(30)])
    session, messages = run(model, tmp_path, output=f"{tmp_path}/o.mp4")
    assert [(m["width"], m["height"]) for m in messages] == [(64, 48)] * 10 + [(128, 96)] * 10 + [(48, 64)] * 10
    assert all(m["objects"][0]["bbox"] == [4, 4, 20, 20] for m in messages)
    assert session.branches[0].written
    assert coded(tmp_path) == [40 * i for i in range(30)]


def test_timestamps_that_run_backwards_are_warned_of_and_survived(model, tmp_path, monkeypatch):
    times = [0, 40, 80, 40, 80, 120, 160, 160, 200]
    feed(monkeypatch, [(t, 64, 48) for t in times])
    session, messages = run(model, tmp_path, output=f"{tmp_path}/o.mp4")
    assert [m["pts"] for m in messages] == [t * 1_000_000 for t in times]
    branch = session.branches[0]
    assert branch.report()["backward_pts"] == 2
    assert len(branch.warnings) == 1 and "timestamps run backwards" in branch.warnings[0]
    assert coded(tmp_path) == [0, 40, 80, 120, 160, 200]
