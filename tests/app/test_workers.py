"""A session spread over processes: the same answers as one process gives, and what happens when one of them dies."""

from __future__ import annotations

import json
import os
import pickle
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]
pytest.importorskip("gi")

from sessions import running, wait_for

from gstinfer.app import workers as module
from gstinfer.app.control import ControlSocket, ask
from gstinfer.app.metrics import _Collector
from gstinfer.app.session import Job, Session
from gstinfer.app.workers import Workers
from gstinfer.errors import (
    ConfigError,
    HostError,
    MissingDependencyError,
    ModelLoadError,
    PublishError,
    UnknownNameError,
)  # fmt: skip

SMALL = "width=64&height=48"
LIVE = f"{SMALL}&live=1&fps=30"


def clips(*counts: int) -> list[str]:
    return [f"test:red?{SMALL}&frames={count}" for count in counts]


def messages(path: Path) -> dict[str, list[int]]:
    """Sequence numbers by stream; every line must be whole."""
    found: dict[str, list[int]] = {}
    for line in path.read_bytes().splitlines():
        message = json.loads(line)
        found.setdefault(message["stream_id"], []).append(message["sequence"])
    return found


def pids(session: Workers) -> list[int]:
    return [worker["pid"] for worker in session.report()["workers"]]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_names_files_frames_and_messages_are_those_of_one_process(model, tmp_path, count):
    inputs = clips(7, 5, 6, 1)
    job = Job(inputs, f"{model}:box", output=f"{tmp_path}/out/", publish=[f"file:{tmp_path}/all.jsonl"])
    (tmp_path / "all.jsonl").write_text("from before\n")
    session = Workers(job, count)
    assert session.run()
    names = ["red", "red-2", "red-3", "red-4"]
    rows = session.report()["streams"]
    assert [(row["name"], row["state"], row["frames"]) for row in rows] == list(zip(names, ["ended"] * 4, (7, 5, 6, 1)))
    assert [row["labels"] for row in rows] == [{"thing": n} for n in (7, 5, 6, 1)]
    assert [row["worker"] for row in rows] == [n % min(count, 4) + 1 for n in range(4)]
    assert session.written == [tmp_path / f"out/{name}.mp4" for name in names]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(f"{name}.mp4" for name in names)
    assert messages(tmp_path / "all.jsonl") == {n: list(range(c)) for n, c in zip(names, (7, 5, 6, 1))}
    workers = session.report()["workers"]
    assert len(workers) == min(count, 4) and all(gone(worker["pid"]) for worker in workers)
    assert {worker["ended"] for worker in workers} == {"ended with exit code 0"}


def test_messages_are_added_to_a_file_on_request(model, tmp_path):
    (tmp_path / "all.jsonl").write_text("from before\n")
    job = Job(clips(2, 2), f"{model}:box", settings=["pypublish.append=true"], publish=[f"file:{tmp_path}/all.jsonl"])
    assert Workers(job, 2).run()
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert lines[0] == "from before" and len(lines) == 5


def test_long_lines_of_several_processes_stay_whole(model, tmp_path):
    """300 objects are some 40 kB: more than a pipe takes at once."""
    job = Job(clips(25, 25, 25), f"{model}:crowd", track="none", publish=[f"file:{tmp_path}/all.jsonl"])
    session = Workers(job, 3)
    assert session.run(), [row.error for row in session.branches]
    found = messages(tmp_path / "all.jsonl")
    assert found == {name: list(range(25)) for name in ("red", "red-2", "red-3")}
    assert (tmp_path / "all.jsonl").stat().st_size > 75 * 20_000


def test_inputs_that_cannot_be_read_fail_alone_and_nothing_is_opened_for_them(model, tmp_path):
    job = Job(["gone.mp4", *clips(3)], f"{model}:box", publish=[f"file:{tmp_path}/all.jsonl"])
    session = Workers(job, 2)
    assert not session.run()
    assert [(row.state, row.error) for row in session.branches] == [("failed", "no such file"), ("ended", "")]
    assert messages(tmp_path / "all.jsonl") == {"red": [0, 1, 2]}
    session = Workers(Job(["gone.mp4", "lost.mp4"], f"{model}:box", publish=[f"file:{tmp_path}/none.jsonl"]), 2)
    assert not session.run() and len(session.failed) == 2
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile": True, "output": "x.mp4"}, "--tile needs all pictures in one process"),
        ({"show": True}, "--show needs all pictures in one process"),
        ({"track": "nope"}, "no tracker 'nope'"),
        ({"output": "x.mp4"}, "is one file for 2 inputs"),
        ({"device": "cuda:77"}, "cuda:77"),
        ({"model": "nope"}, "no model 'nope'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(model, options, words):
    options = {"model": f"{model}:box", **options}
    with pytest.raises(ConfigError, match=words):
        Workers(Job(clips(1, 1), **options), 2)


def test_a_target_that_cannot_be_opened_and_a_model_that_does_not_load(model, tmp_path):
    session = Workers(Job(clips(1, 1), f"{model}:box", publish=[f"file:{tmp_path}/gone/x"]), 2)
    with pytest.raises(PublishError, match="gone' does not exist"):
        session.run()
    assert all(gone(pid) for pid in pids(session))
    session = Workers(Job(clips(1, 1), f"{model}:NoLoad"), 2)
    assert not session.run()
    assert all("weights are gone" in row.error for row in session.branches)


def test_what_a_worker_refuses_ends_the_job(model, monkeypatch):
    session = Workers(Job(clips(1, 1), f"{model}:box"), 2)
    # The machine changed between the parent's look and the worker's.
    session._devices = ["cpu", "cuda:77"]
    with pytest.raises(ConfigError, match="cuda:77 was asked for"):
        session.run()
    assert all(gone(pid) for pid in pids(session))


@pytest.mark.parametrize(
    ("devices", "count", "found"),
    [("auto", 2, ["auto", "auto"]), ("cuda:0,cuda:1", 3, ["cuda:0", "cuda:1", "cuda:0"]),
     ("cuda:0,cuda:1,cuda:2", 2, ["cuda:0,cuda:2", "cuda:1"])],
)  # fmt: skip
def test_devices_are_dealt_out(model, monkeypatch, devices, count, found):
    orders = []

    class Seen:
        def __init__(self, name, order, told):
            orders.append(order)

    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 3 if "cuda" in devices else 0)
    monkeypatch.setattr(module, "Child", Seen)
    session = Workers(Job(clips(*[1] * 5), f"{model}:box", devices, stay=True), count)
    for number in range(1, count + 1):
        session._start(number, "")
    assert [order.job.device for order in orders] == found
    assert [order.job.stay for order in orders] == [True] * count
    assert sorted(key for order in orders for key, _, _ in order.shares) == list(range(5))
    assert {len(order.shares) for order in orders} == ({2, 3} if count == 2 else {2, 1})


@pytest.fixture
def session(model, tmp_path):
    (tmp_path / "out").mkdir()
    inputs = [f"test:{name}?{LIVE}" for name in ("red", "blue", "green")]
    job = Job(inputs, f"{model}:box", output=f"{tmp_path}/out", publish=[f"file:{tmp_path}/all.jsonl"], stay=True)
    session = Workers(job, 2)
    with running(session):
        wait_for(lambda: all(row.state == "playing" for row in session.branches))
        yield session


@pytest.fixture
def path(session, tmp_path):
    control = ControlSocket(session, f"{tmp_path}/control")
    yield control.path
    control.close()


def test_all_commands(session, path, model, tmp_path):
    assert [(s["name"], s["state"]) for s in ask(path, "list")] == [(n, "playing") for n in ("red", "blue", "green")]
    # Worker 2 has one stream, worker 1 two.
    added = ask(path, "add", source=f"test:red?{LIVE}")
    assert added["name"] == "red-2" and session.find("red-2").report()["worker"] == 2
    assert session.find("red-2").report()["output"] == f"{tmp_path}/out/red-2.mp4"
    assert ask(path, "add", source=f"test:red?{LIVE}", name="door")["name"] == "door"
    wait_for(lambda: ask(path, "stats", name="door")["labels"].get("thing", 0) > 5)
    assert ask(path, "swap", model=f"{model}:other") == {"model": f"{model}:other"}
    assert ask(path, "stats")["model"] == f"{model}:other"
    for name in ("red", "blue", "green", "red-2", "door"):
        wait_for(lambda name=name: ask(path, "stats", name=name)["labels"].get("other", 0) > 3)
    assert ask(path, "remove", name="door")["name"] == "door"
    wait_for(lambda: session.find("door").state == "ended")
    # A name may be used again, in whichever worker; its file may not.
    ask(path, "add", source=f"test:red?{SMALL}&frames=4", name="door")
    wait_for(lambda: session.find("door").state == "ended")
    assert session.find("door").output == tmp_path / "out/door-2.mp4"
    assert session.find("door").report()["labels"] == {"other": 4}


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("add", {"source": "gopher://x"}, "no kind of input"),
        ("add", {"source": "gone.mp4"}, "gone.mp4: no such file"),
        ("add", {"source": "test:red", "name": "blue"}, "'blue' is running already"),
        ("remove", {"name": "nope"}, "no stream 'nope'"),
        ("swap", {"model": "nope"}, "no model 'nope'"),
        ("stats", {"name": "nope"}, "no stream 'nope'"),
    ],
)
def test_what_cannot_be_done_is_said_and_streams_go_on(session, path, command, arguments, words):
    with pytest.raises(HostError, match=words):
        ask(path, command, **arguments)
    assert [row.source.stream_id for row in session.branches] == ["red", "blue", "green"]
    before = session.branches[0].report()["frames"]
    wait_for(lambda: session.branches[0].report()["frames"] > before + 5)


def test_a_model_that_one_worker_cannot_load_is_taken_back_in_all(session, model):
    with pytest.raises(ModelLoadError, match=r"worker 1 of 2, worker 2 of 2: .*weights are gone"):
        session.swap(f"{model}:NoLoad")
    # It loads in one process only.
    folder = Path(model).parent
    (folder / "once.py").write_text(
        "import os\nfrom m import box, Model\nclass Once(Model):\n"
        "    def load(self, device):\n        os.close(os.open(__file__ + '.taken', os.O_CREAT | os.O_EXCL))\n"
        "    def predict(self, batch):\n        return box(batch)\n"
    )
    with pytest.raises(ModelLoadError, match=r"^worker [12] of 2: .*File exists"):
        session.swap(f"{folder}/once.py:Once")
    assert session.model == f"{model}:box"
    before = [row.report()["labels"]["thing"] for row in session.branches]
    wait_for(lambda: all(r.report()["labels"]["thing"] > n + 5 for r, n in zip(session.branches, before)))


def test_a_worker_that_is_killed_fails_its_own_streams(session, model, tmp_path):
    first, second = pids(session)
    # On a busy machine frames run ahead of their messages.
    wait_for(lambda: b'"stream_id":"blue"' in (tmp_path / "all.jsonl").read_bytes())
    os.kill(second, signal.SIGKILL)
    wait_for(lambda: session.find("blue").state == "failed")
    assert session.find("blue").error == "its process, worker 2 of 2, was killed by SIGKILL"
    assert session.error == "worker 2 of 2 was killed by SIGKILL"
    before = session.find("green").report()["frames"]
    wait_for(lambda: session.find("green").report()["frames"] > before + 5)
    # The rest goes to those that are left, as does the model.
    added = session.add_source(f"test:red?{LIVE}")
    assert added.worker == 1
    wait_for(lambda: added.report()["frames"] > 5)
    session.swap(f"{model}:other")
    with pytest.raises(ConfigError, match="'blue' is not running, it failed"):
        session.remove_source("blue")
    session.stop()
    wait_for(lambda: gone(first))
    assert [row.state for row in session.branches] == ["ended", "failed", "ended", "ended"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["green.mp4", "red-2.mp4", "red.mp4"]
    assert {"red", "blue", "green", "red-2"} == set(messages(tmp_path / "all.jsonl"))


def test_a_session_without_inputs_has_all_its_workers(model):
    session = Workers(Job((), f"{model}:box", stay=True), 3)
    with running(session) as outcome:
        added = [session.add_source(f"test:red?{LIVE}") for _ in range(4)]
        assert [row.worker for row in added] == [1, 2, 3, 1]
        assert [row.source.stream_id for row in added] == ["red", "red-2", "red-3", "red-4"]
        session.swap(f"{model}:other")
        wait_for(lambda: all("other" in row.report()["labels"] for row in added))
    assert outcome == [True]


def test_without_any_worker_the_session_ends(session):
    for pid in pids(session):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not session._running and all(row.state == "failed" for row in session.branches))
    with pytest.raises(ConfigError, match="does not run"):
        session.add_source("test:red")


def test_metrics_tell_the_workers_apart(session):
    pytest.importorskip("prometheus_client")
    families = {family.name: family for family in _Collector(session).collect()}
    assert {sample.labels["stream"] for sample in families["gstinfer_stream_frames"].samples} == {"red", "blue", "green"}
    assert {s.labels["worker"] for s in families["gstinfer_model_batches"].samples} == {"1", "2"}


def test_one_process_tells_the_same_of_a_stream(session, model):
    alone = Session(Job(clips(1), f"{model}:box"))
    assert alone.run()
    assert set(session.branches[0].report()) - set(alone.branches[0].report()) == {"worker"}


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no", hint="do"), UnknownNameError("tracker", "bite", ["byte"]),
        MissingDependencyError("torch", extra="torch", purpose="this"),
    ],
)  # fmt: skip
def test_errors_go_from_process_to_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and copy.__dict__ == error.__dict__
