"""A job from Python: settings, counts, stop, and what is left behind."""

from __future__ import annotations

import json
import threading
import time

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app.session import Job, Session
from gstinfer.app.settings import parse_settings
from gstinfer.errors import ConfigError, PublishError, UnknownNameError
from gstinfer.publish import worker

MODELS = """
import numpy as np
from gstinfer import Detections

def box(batch):
    return [Detections(np.array([[4, 4, 20, 20]], np.float32), label=["thing"]) for _ in batch]

class Picky:
    # Fails on every third frame.
    def predict(self, batch):
        if any(frame.sequence % 3 == 2 for frame in batch):
            raise RuntimeError("not this one")
        return box(batch)

class NoLoad:
    def load(self, device):
        raise RuntimeError("weights are gone")
    def predict(self, batch):
        return [None] * len(batch)
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.py").write_text(MODELS)
    return f"{tmp_path}/m.py"


def test_settings_by_element():
    found = parse_settings(["interval=2", "pyinfer.labels=a,b", "pytrack.tracker-args=x=1", "confidence-threshold=-1"])
    assert found["pyinfer"] == {"interval": 2, "labels": "a,b", "confidence_threshold": -1}
    assert found["pytrack"] == {"tracker_args": "x=1"} and found["pyoverlay"] == {}


@pytest.mark.parametrize("text", ["interval", "interval=x", "pyinfer.nope=1", "nope.interval=1", "=1"])
def test_settings_that_do_not_fit(text):
    with pytest.raises(ConfigError):
        parse_settings([text])


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize(("policy", "frames"), [("drop", 20), ("pass", 30)])
@pytest.mark.parametrize("more", [{}, {"max_frames": 30}, {"track": "none"}])
def test_what_leaves_is_counted(model, tmp_path, depth, policy, frames, more):
    settings = [f"on-error={policy}", f"frames-in-flight={depth}", "batch-size=1"]
    job = {"settings": settings, "publish": [f"file:{tmp_path}/m.jsonl"], **more}
    session = Session(Job(["test:red?width=64&height=64&frames=30"], f"{model}:Picky", **job))
    assert session.run()
    branch = session.branches[0]
    messages = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert branch.counts.frames == len(messages) == frames
    assert branch.counts.inferred == branch.counts.objects["thing"] == 20
    assert branch.entered == 30
    assert branch.report()["errors"] == 10


def test_counts_objects_and_tracks(model):
    session = Session(Job(["test:red?width=64&height=64&frames=8"], f"{model}:box", settings=["interval=1"]))
    assert session.run()
    counts = session.branches[0].counts
    assert counts.frames == 8 and counts.objects == {"thing": 4} and counts.tracks == {1}
    stats = session.branches[0].stats["pyinfer"]
    assert stats["inferred"] == stats["skipped"] == 4


def test_skipped_frames_are_messages_without_objects(model, tmp_path):
    job = Job(
        ["test:red?width=64&height=64&frames=4"], f"{model}:box",
        settings=["interval=1"], publish=[f"file:{tmp_path}/o.jsonl"],
    )  # fmt: skip
    assert Session(job).run()
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(m["inferred"], "objects" in m) for m in found] == [(True, True), (False, False)] * 2


def test_stop_from_another_thread_ends_an_endless_source(model, tmp_path):
    session = Session(Job(["test:ball"], f"{model}:box", publish=[f"file:{tmp_path}/o.jsonl"]))
    threading.Timer(1, session.stop).start()
    begin = time.monotonic()
    assert session.run()
    assert time.monotonic() - begin < 15
    lines = (tmp_path / "o.jsonl").read_text().splitlines()
    assert len(lines) == session.branches[0].counts.frames > 0
    assert not worker._writers


def test_tick_is_called_in_the_callers_thread(model):
    threads = set()
    session = Session(Job(["test:ball"], f"{model}:box", max_frames=5))
    assert session.run(lambda s: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}


def test_max_frames_is_exact_also_where_the_source_has_fewer(model):
    session = Session(Job(["test:red", "test:blue?frames=3"], f"{model}:box", max_frames=7))
    assert session.run()
    assert [b.counts.frames for b in session.branches] == [7, 3]


def test_a_failed_job_leaves_older_results_alone(model, tmp_path):
    for name in ("o.mp4", "o.jsonl"):
        (tmp_path / name).write_text("older")
    targets = {"output": f"{tmp_path}/o.mp4", "publish": [f"file:{tmp_path}/o.jsonl"]}
    assert not Session(Job([f"{tmp_path}/gone.mp4"], f"{model}:box", **targets)).run()
    with pytest.raises(UnknownNameError):
        Session(Job(["test:red"], "nope", **targets))
    assert (tmp_path / "o.jsonl").read_text() == "older"
    session = Session(Job(["test:red"], f"{model}:NoLoad", **targets))
    assert not session.run()
    assert "weights are gone" in session.branches[0].error
    assert (tmp_path / "o.mp4").read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["m.py", "o.jsonl", "o.mp4"]


def test_a_target_that_cannot_be_opened(model, tmp_path):
    session = Session(Job(["test:red"], f"{model}:box", publish=[f"file:{tmp_path}/gone/o.jsonl"]))
    with pytest.raises(PublishError, match="No such file"):
        session.run()
    assert not worker._writers


def test_one_target_gets_each_message_once_however_often_it_is_named(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    urls = ["file:o.jsonl", f"file:{tmp_path}/o.jsonl", "file:./o.jsonl"]
    assert Session(Job(["test:red?frames=3"], f"{model}:box", publish=urls)).run()
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model=x", "use --model"),
        ("pytrack.tracker=x", "use --track"),
        ("pyoverlay.line-width=3", "without --output"),
        ("pypublish.append=true", "without --jsonl"),
        ("pytrack.tracker-args=x=1", "--track none"),
    ],
)
def test_settings_without_effect_are_refused(model, text, words):
    track = "none" if "none" in words else "bytetrack"
    with pytest.raises(ConfigError, match=words):
        Session(Job(["test:red"], f"{model}:box", settings=[text], track=track))


def test_settings_of_the_publisher_and_the_streams_name_are_used(model, tmp_path):
    (tmp_path / "o.jsonl").write_text("{}\n")
    settings = ["pypublish.append=true", "stream-id=door"]
    job = Job(["test:red?frames=2"], f"{model}:box", settings=settings, publish=[f"file:{tmp_path}/o.jsonl"])
    assert Session(job).run()
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [m.get("stream_id") for m in found] == [None, "door", "door"]
    with pytest.raises(ConfigError, match="one name"):
        Session(Job(["test:red", "test:blue"], f"{model}:box", settings=["stream-id=x"]))


@pytest.mark.parametrize(
    ("job", "elements"),
    [
        ({}, ["pyinfer"]),
        ({"settings": ["pytrack.tracker-args=lost-time=2"]}, ["pyinfer"]),
        ({"settings": ["pytrack.write-meta=carrier"]}, ["pyinfer", "pytrack"]),
        ({"track": "none"}, ["pyinfer"]),
    ],
)
def test_streams_are_tracked_inside_pyinfer_unless_pytrack_is_to_be_another(model, tmp_path, job, elements):
    job = Job(["test:red?width=64&height=48&frames=5"], f"{model}:box", publish=[f"file:{tmp_path}/m.jsonl"], **job)
    session = Session(job)
    assert session.run()
    assert [name for name in session.branches[0].report()["elements"] if name != "pypublish"] == elements
    messages = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    ids = [o.get("tracker_id") for m in messages for o in m["objects"]]
    assert ids == ([None] if job.track == "none" else [1]) * 5


def test_regions_of_interest_are_left_to_those_who_ask_for_them(model):
    inputs = ["test:red?width=64&height=48&frames=5"]
    seat = Session(Job(inputs, f"{model}:box", settings=["pytrack.write-meta=roi"], then=f"{model}:box")).seats[0]
    found = {name: (properties or {}).get("write_meta") for name, properties in seat.properties.items()}
    assert found["pyinfer"] == found["then"] == "carrier" and found["pytrack"] == "roi"
    assert Session(Job(inputs, f"{model}:box", settings=["write-meta=roi"])).seats[0].infer["write_meta"] == "roi"
