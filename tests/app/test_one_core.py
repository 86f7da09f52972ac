"""A session's Python on a core of its own, which everything else of the process keeps off."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")

from gstinfer import cores
from gstinfer.app import session as session_module
from gstinfer.app import workers as workers_module
from gstinfer.app.session import Job, Session
from gstinfer.app.workers import Workers

HERE = sorted(os.sched_getaffinity(0))
MODEL = """
import json, os
from pathlib import Path
from gstinfer import Model

class Where(Model):
    def submit(self, batch):
        seen = {"pid": os.getpid(), "mine": sorted(os.sched_getaffinity(0)), "main": sorted(os.sched_getaffinity(os.getpid()))}
        with open(__file__ + ".seen", "a") as file:
            print(json.dumps(seen), file=file)
        return self

    def result(self):
        return [None]

    def predict(self, batch):
        return [None] * len(batch)
"""


def seen(path):
    return [json.loads(line) for line in (path / "m.py.seen").read_text().splitlines()]


@pytest.fixture
def job(tmp_path, monkeypatch):
    if len(HERE) < 2:
        pytest.skip("needs two cores")
    monkeypatch.setattr(cores, "LEAST", 1)
    for module in (session_module, workers_module):
        monkeypatch.setattr(module, "on_one_core", lambda seat: [] if "cpu_cores" in seat.infer else ["pyinfer"])
    (tmp_path / "m.py").write_text(MODEL)
    inputs = ["test:red?width=64&height=48&frames=5"] * 2
    return Job(inputs, f"{tmp_path}/m.py:Where", "cpu", track="none", settings=["batch-size=1"])


def test_one_process(job, tmp_path):
    assert Session(job).run()
    found = seen(tmp_path)
    assert len(found) == 10 and {tuple(row["mine"]) for row in found} == {(HERE[-1],)}
    assert os.sched_getaffinity(0) == set(HERE)


def test_each_process_has_its_own_and_keeps_off_the_others(job, tmp_path):
    # With two cores two processes would take both.
    running = Workers(job, 2 if len(HERE) > 2 else 1)
    assert running.run()
    found = seen(tmp_path)
    count = running.count
    assert {tuple(row["mine"]) for row in found} == {(core,) for core in HERE[-count:]}
    assert {tuple(row["main"]) for row in found} == {tuple(HERE[:-count])}
    assert len({(row["pid"], *row["mine"]) for row in found}) == count
    assert os.sched_getaffinity(0) == set(HERE)


@pytest.mark.parametrize("found", [(), (5, 7)])
def test_each_process_is_told_its_core_or_that_it_has_none(job, monkeypatch, found):
    """Where too few are there, each by itself would find one: the same."""
    orders = []

    def child(name, order, told):
        orders.append(order.job.settings)
        return SimpleNamespace(alive=False, join=lambda: None)

    monkeypatch.setattr(workers_module, "Child", child)
    monkeypatch.setattr(workers_module, "set_aside", lambda count: nullcontext(found))
    Workers(job, 2).run()
    assert orders == [["batch-size=1", f"pyinfer.cpu-cores={core}"] for core in found or ("", "")]
