"""The examples do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gstinfer.testing import run_pipeline

pytestmark = pytest.mark.gst
EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = Path(__file__).with_name("objects_for_tests.py")


@pytest.mark.parametrize(
    ("pattern", "right"),
    [("red", "red"), ("green", "green"), ("blue", "blue"), ("white", "light"), ("black", "dark")],
)
def test_clothes(pattern, right):
    run = run_pipeline(
        f"videotestsrc num-buffers=2 pattern={pattern} ! video/x-raw,format=I420,width=160,height=120 "
        f"! pyinfer model={MODELS}:Corners unique-id=1 "
        f"! pyinfer model={EXAMPLES}/clothes.py:Color process-mode=2 unique-id=2 infer-on-gie-id=1 ! fakesink name=sink"
    )
    assert run.error is None
    assert [[a.label for a in row] for row in run.results[1].detections.attributes] == [[right], [right]]


def test_my_heads(cases):
    run = run_pipeline(
        "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width=1280,height=720 ! pyinfer "
        f"model={cases}/models/yolo_raw_nc2_nometa.onnx head={EXAMPLES}/my_heads.py:decode ! fakesink name=sink"
    )
    assert run.error is None
    found = run.results[0].detections
    assert run.boxes()[0][0] == [440, 260, 840, 460] and found.confidence.min() > 0.5
    assert found.confidence.tolist() == sorted(found.confidence.tolist(), reverse=True)


def test_zone():
    run = run_pipeline(
        "videotestsrc num-buffers=2 ! video/x-raw,format=RGB,width=160,height=120 "
        f"! pyinfer model={MODELS}:Corners callback={EXAMPLES}/zone.py:inside ! fakesink name=sink"
    )
    assert run.error is None
    assert run.boxes() == [[[80, 60, 160, 120]]] * 2
    assert [t.text for t in run.results[1].texts] == ["1 in the zone"]
