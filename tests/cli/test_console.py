"""What the console derives from the elements' counters."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from gstinfer.cli.console import live_table, step_times


def shown(total: int | None, frames: int) -> str:
    row = {"name": "door", "state": "playing", "frames": frames, "fps": 10.0, "lag": None, "dropped": 1, "skipped": 2}
    row["expected"] = total
    branch = SimpleNamespace(report=lambda: row, running=True)
    console = Console(file=io.StringIO(), width=100)
    console.print(live_table(SimpleNamespace(branches=[branch])))
    return console.file.getvalue().splitlines()[1]


def test_a_stream_whose_end_is_known_has_a_bar_and_seconds_left():
    row = shown(200, 50)
    assert row.split()[:4] == ["door", "playing", "50/200", "10.0"] and row.rstrip().endswith("15 s left")
    assert row.count("━") == 5 and shown(200, 200).count("━") == 20
    assert "━" not in shown(None, 50) and "left" not in shown(None, 50)


def test_time_per_step_is_per_frame_and_named_by_element():
    stats = {
        "pyinfer": {"frames": 10, "model-seconds": 0.5, "inferred": 10},
        "pytrack": {"frames": 5, "update-seconds": 0.01},
        "pyoverlay": {"frames": 0, "draw-seconds": 0.0},
        "pypublish": {"published": 10},
    }
    assert step_times(stats) == {"model": pytest.approx(50), "track update": pytest.approx(2)}
