"""What the console derives from the elements' counters."""

from __future__ import annotations

import pytest

from gstinfer.cli.console import step_times


def test_time_per_step_is_per_frame_and_named_by_element():
    stats = {
        "pyinfer": {"frames": 10, "model-seconds": 0.5, "inferred": 10},
        "pytrack": {"frames": 5, "update-seconds": 0.01},
        "pyoverlay": {"frames": 0, "draw-seconds": 0.0},
        "pypublish": {"published": 10},
    }
    assert step_times(stats) == {"model": pytest.approx(50), "track update": pytest.approx(2)}
