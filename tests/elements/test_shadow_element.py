"""shadow-model on pyinfer: compared in stats and on the bus, never published."""

from __future__ import annotations

from pathlib import Path

import pytest

from gstinfer.testing import run_pipeline

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("models_for_tests.py")
INFER = f"pyinfer name=infer model={MODELS}:function"
SOURCE = "videotestsrc num-buffers=40 is-live=true ! video/x-raw,width=64,height=48,framerate=40/1"


def test_differences_are_in_stats_and_on_the_bus_and_not_in_the_results():
    run = run_pipeline(
        f"{SOURCE} ! {INFER} shadow-model={MODELS}:Number shadow-share=1 ! fakesink name=sink"
    )
    assert run.error is None and run.boxes() == [[[0, 0, 32, 24]]] * 40
    stats = run.stats["infer"]
    assert stats["shadow-frames"] > 5 and stats["shadow-frames"] + stats["shadow-missed"] == 40
    assert stats["shadow-matched"] == 0
    assert stats["shadow-only-running"] == stats["shadow-only-shadow"] == stats["shadow-frames"]
    assert "gstinfer-shadow" in run.messages


def test_the_same_model_agrees_and_a_slow_one_does_not_hold_the_stream():
    run = run_pipeline(
        f"{SOURCE} ! {INFER} shadow-model={MODELS}:function shadow-share=0.5 ! fakesink name=sink"
    )
    stats = run.stats["infer"]
    assert stats["shadow-matched"] == stats["shadow-frames"] > 2 and stats["shadow-iou"] == pytest.approx(1)
    fast = "videotestsrc num-buffers=200 ! video/x-raw,width=64,height=48"
    run = run_pipeline(
        f"{fast} ! {INFER} shadow-model={MODELS}:Slow shadow-share=1 ! fakesink name=sink",
        timeout=15,
    )
    assert len(run.pts) == 200 and run.stats["infer"]["shadow-missed"] > 100


def test_a_shadow_that_cannot_be_loaded_is_a_warning(tmp_path):
    run = run_pipeline(
        f"{SOURCE} ! {INFER} shadow-model={tmp_path}/gone.py:X ! fakesink name=sink"
    )
    assert run.error is None and len(run.pts) == 40
    assert len(run.warnings) == 1 and "shadow-model" in run.warnings[0] and "is not used" in run.warnings[0]


def test_it_does_not_apply_to_objects():
    run = run_pipeline(f"{SOURCE} ! {INFER} shadow-model={MODELS}:Slow process-mode=2 ! fakesink name=sink")
    assert "process-mode=2" in run.error


def test_it_may_change_while_playing():
    def swap(pipeline, number):
        if number == 10:
            pipeline.get_by_name("infer").set_property("shadow-model", f"{MODELS}:function")

    run = run_pipeline(
        f"{SOURCE} ! {INFER} shadow-share=1 ! fakesink name=sink", on_buffer=swap
    )
    assert run.error is None and run.stats["infer"]["shadow-matched"] > 3


@pytest.mark.parametrize("extra", ["", "frames-in-flight=2"])
def test_a_live_stream_tells_its_lag_and_its_steps(extra):
    run = run_pipeline(f"{SOURCE} ! {INFER} {extra} ! fakesink name=sink")
    stats = run.stats["infer"]
    assert 0 <= stats["lag"] < 5
    assert stats["wait-seconds"] > 0 and stats["model-seconds"] > 0 and stats["write-seconds"] > 0
    run = run_pipeline(f"videotestsrc num-buffers=5 ! {INFER} ! fakesink name=sink")
    assert "lag" not in run.stats["infer"] and run.stats["infer"]["write-seconds"] > 0
