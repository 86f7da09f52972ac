"""The model changes in the middle of 200 frames: one switch point, nothing lost; what cannot be used keeps the old one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from gstinfer.testing import Run, run_pipeline

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
MODELS = Path(__file__).with_name("models_for_tests.py")

RED, OTHER, FRAMES = [4, 4, 52, 20], [24, 18, 40, 46], 200


def play(model, change, extra: str = "") -> Run:
    """200 red frames, 40 a second; ``change(element)`` at the 60th."""
    arrivals: list[float] = []

    def on_buffer(pipeline, number):
        arrivals.append(time.monotonic())
        if number == 60:
            change(pipeline.get_by_name("infer"))

    run = run_pipeline(
        f"videotestsrc num-buffers={FRAMES} is-live=true pattern=red ! "
        "video/x-raw,format=RGB,width=64,height=64,framerate=40/1 ! "
        f"pyinfer name=infer model={model} on-late=wait {extra} ! fakesink name=sink",
        timeout=60,
        on_buffer=on_buffer,
    )
    assert run.error is None and len(run.results) == FRAMES
    assert len(set(run.pts)) == FRAMES and run.pts == sorted(run.pts)
    # A frame period is 25 ms; a busy machine is given time.
    assert float(np.diff(arrivals).max()) < 1.5
    return run


def switches(run: Run) -> list[tuple[int, list[float]]]:
    """(frame, box) wherever the box differs from the frame before."""
    found: list[tuple[int, list[float]]] = []
    for number, result in enumerate(run.results):
        boxes = result.detections.xyxy
        assert len(boxes) == 1
        if not found or not np.allclose(found[-1][1], boxes[0], atol=0.6):
            found.append((number, boxes[0].tolist()))
    return found


def check(run: Run) -> None:
    (_, first), (at, second) = switches(run)
    assert first == pytest.approx(RED, abs=0.6) and second == pytest.approx(OTHER, abs=0.6)
    assert at >= 60 and "gstinfer-model-updated" in run.messages
    assert run.stats["infer"]["swaps"] == 1 and run.stats["infer"]["inferred"] == FRAMES


def test_another_file(cases):
    models = cases / "models"
    check(play(f"{models}/oracle_dyn.onnx", lambda e: e.set_property("model", f"{models}/e2e_xyxy.onnx")))


@pytest.mark.parametrize("watch", [False, True])
def test_the_same_path_with_new_content(cases, tmp_path, watch):
    path = tmp_path / "model.onnx"
    shutil.copy(cases / "models/oracle_dyn.onnx", path)

    def change(element):
        shutil.copy(cases / "models/e2e_xyxy.onnx", tmp_path / "new.onnx")
        (tmp_path / "new.onnx").replace(path)
        if not watch:
            element.set_property("model", str(path))

    check(play(path, change, f"model-watch={str(watch).lower()} head=yolo-e2e" if watch else "head=yolo-e2e"))


def test_an_empty_file_keeps_the_old_model_and_warns(cases, tmp_path):
    path = tmp_path / "empty.onnx"
    path.touch()
    run = play(f"{cases}/models/oracle_dyn.onnx", lambda e: e.set_property("model", str(path)))
    assert [box for _, box in switches(run)] == [pytest.approx(RED, abs=0.6)]
    assert len(run.warnings) == 1 and "empty.onnx" in run.warnings[0]
    assert run.stats["infer"]["swaps"] == 0 and "gstinfer-model-updated" in run.messages


def test_a_missing_file_keeps_the_old_model_and_warns(cases, tmp_path):
    run = play(f"{cases}/models/oracle_dyn.onnx", lambda e: e.set_property("model", f"{tmp_path}/gone.onnx"))
    assert [box for _, box in switches(run)] == [pytest.approx(RED, abs=0.6)]
    assert len(run.warnings) == 1 and "gone.onnx" in run.warnings[0]


def test_an_element_that_starts_again_joins_the_model_that_another_put_in():
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    def branch(number: int) -> str:
        return (
            f"videotestsrc is-live=true ! video/x-raw,format=RGB,width=32,height=32 ! pyinfer name=infer{number} "
            f"model={MODELS}:Number model-instance-id=again ! appsink name=sink{number} sync=false max-buffers=1 drop=true"
        )

    pipelines = [Gst.parse_launch(branch(number)) for number in range(2)]
    elements = [pipeline.get_by_name(f"infer{number}") for number, pipeline in enumerate(pipelines)]
    sinks = [pipeline.get_by_name(f"sink{number}") for number, pipeline in enumerate(pipelines)]

    def label(number: int) -> str:
        return gstinfer.read(sinks[number].emit("pull-sample").get_buffer()).detections.label[0]

    try:
        for pipeline in pipelines:
            pipeline.set_state(Gst.State.PLAYING)
        assert [label(0), label(1)] == ["one", "one"]
        elements[0].set_property("model-args", "word=two")
        elements[0].set_property("model", f"{MODELS}:Number")
        elements[0].set_property("confidence-threshold", 0.25)
        while label(0) == "one":
            pass
        for pipeline in pipelines:
            pipeline.set_state(Gst.State.READY)
            assert pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE
        assert [label(0), label(1)] == ["two", "two"]
    finally:
        for pipeline in pipelines:
            pipeline.set_state(Gst.State.NULL)
