"""Every raw format through real pads: what a model sees in it, and what is drawn on it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gstinfer.image import FORMATS
from gstinfer.testing import run_pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("pictures_for_tests.py")
EVERY = pytest.mark.parametrize("format", sorted(FORMATS))


def source(format: str, size: tuple[int, int] = (96, 64), *, n: int = 1, pattern: str = "smpte") -> str:
    """A test picture, made in RGB: in other formats videotestsrc forgets the last pixel of odd rows and the range of grey."""
    width, height = size
    made = f"videotestsrc num-buffers={n} pattern={pattern} ! video/x-raw,format=RGB,width={width},height={height}"
    made += ",framerate=30/1"
    return made if format == "RGB" else f"{made} ! videoconvert ! video/x-raw,format={format}"


def seen(description: str, model: str = "Cells") -> np.ndarray:
    """What the model saw of the last frame."""
    run = run_pipeline(f"{description} ! pyinfer model={MODELS}:{model} ! fakesink name=sink")
    assert run.error is None, run.error
    return np.array([int(v) for v in run.results[-1].classifications[0].label[0].split()])


@EVERY
@pytest.mark.parametrize("model", ["Cells", "Letterboxed"])
def test_a_model_sees_what_videoconvert_makes_of_it(format, model):
    gray = "video/x-raw,format=GRAY8 ! videoconvert ! " if format == "GRAY8" else ""
    want = seen(f"{source('RGB')} ! videoconvert ! {gray}video/x-raw,format=RGB", model)
    assert np.abs(seen(source(format), model) - want).max() <= (4 if model == "Cells" else 10)


@EVERY
@pytest.mark.parametrize("size", [(1, 1), (1, 3), (3, 1), (161, 121)], ids=str)
def test_any_size(format, size):
    red = seen(source(format, size, pattern="red")).reshape(-1, 3)
    if format == "GRAY8":
        # One channel has no colour: full-range luma of red.
        assert np.abs(red - red[0, 0]).max() <= 1 and 70 <= red[0, 0] <= 82
    else:
        assert np.abs(red - (255, 0, 0)).max() <= 3


@EVERY
def test_one_channel_is_luma(format):
    want = seen(source("GRAY8"), "GrayCells")
    assert np.abs(seen(source(format), "GrayCells") - want).max() <= 4


@EVERY
def test_the_overlay_draws_on_it_and_leaves_the_rest(format):
    draw = f"pyinfer model={MODELS}:Dirty ! pyoverlay line-width=4 show-labels=false show-confidence=false show-ids=false"
    plain = run_pipeline(f"{source(format)} ! fakesink name=sink", keep_data=True)
    drawn = run_pipeline(f"{source(format)} ! {draw} ! fakesink name=sink", keep_data=True)
    assert drawn.error is None
    before, after = (np.frombuffer(r.data[0], np.uint8) for r in (plain, drawn))
    assert 0 < (before != after).mean() < 0.35
    # Rows 38 to 55 lie below every box.
    tail = "videoconvert ! video/x-raw,format=RGB ! fakesink name=sink"
    picture = run_pipeline(f"{source(format)} ! {draw} ! {tail}", keep_data=True)
    same = run_pipeline(f"{source(format)} ! {tail}", keep_data=True)
    a, b = (np.frombuffer(r.data[0], np.uint8).reshape(64, 96, 3).astype(int) for r in (picture, same))
    assert np.abs(a - b)[38:56].max() <= 2 and np.abs(a - b)[4:20, 4:8].max() > 60


@pytest.mark.parametrize("format", ["BGRA", "BGRx", "YUY2", "GRAY8"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_of_one_and_of_three_channels(format, channels, tmp_path):
    from onnx_networks import oracle

    path = oracle(tmp_path / "oracle.onnx", channels=channels)
    run = run_pipeline(f"{source(format, (64, 64), pattern='white')} ! pyinfer model={path} ! fakesink name=sink")
    assert run.error is None
    assert run.boxes()[0][0] == pytest.approx([4, 4, 52, 52], abs=0.5)
    run = run_pipeline(f"{source(format, (64, 64), pattern='red')} ! pyinfer model={path} ! fakesink name=sink")
    luma = 32 * 0.299
    right = [4, 4, 20 + luma, 20 + luma] if channels == 1 or format == "GRAY8" else [4, 4, 52, 20]
    assert run.boxes()[0][0] == pytest.approx(right, abs=1)


@pytest.mark.parametrize(
    ("name", "size"), [("exo_bear-vp9-odd-dimensions.webm", (161, 121)), ("tc_h264_10bits.mp4", (200, 200))]
)
@pytest.mark.parametrize("tail", ["", "pyoverlay ! "])
def test_what_decodebin_gives_is_read_as_it_is(cases, name, size, tail):
    run = run_pipeline(
        f"filesrc location={cases / 'media' / name} ! decodebin ! pyinfer model={MODELS}:Cells ! {tail}fakesink name=sink"
    )
    assert run.error is None and run.eos
    assert len(run.results) == 30 and all(r.inferred and len(r.classifications) == 1 for r in run.results)
    assert run.pts == sorted(set(run.pts))


@pytest.mark.parametrize("format", ["I420", "NV12", "YUY2", "P010_10LE", "Y444"])
@pytest.mark.parametrize("colorimetry", ["bt601", "bt709", "2:3:5:1", "2:4:7:1", "1:3:5:1", "1:4:0:1", "1:6:7:1"])
def test_matrix_and_range_of_the_caps(format, colorimetry):
    """videoconvert makes the YUV from RGB by the caps; the model must read the same RGB back."""
    rgb = seen(source("RGB"))
    back = seen(f"{source('RGB')} ! videoconvert ! video/x-raw,format={format},colorimetry=(string){colorimetry}")
    assert np.abs(back - rgb).max() <= 5


@pytest.mark.parametrize("depth", [1, 3])
def test_formats_that_change_in_mid_stream(depth):
    parts = ["RGB", "YUY2", "I420_10LE", "GRAY8"]
    inputs = " ".join(f"{source(f, (32 + 2 * n, 32), n=3, pattern='white')} ! c.sink_{n}" for n, f in enumerate(parts))
    run = run_pipeline(
        f"{inputs} concat name=c ! pyinfer name=infer model={MODELS}:Cells frames-in-flight={depth} ! fakesink name=sink"
    )
    assert run.eos and len(run.results) == 12
    for result in run.results:
        assert min(int(v) for v in result.classifications[0].label[0].split()) >= 252


def test_dirty_outputs_never_reach_anyone(tmp_path):
    import json
    import math

    path = tmp_path / "out.jsonl"
    run = run_pipeline(
        f"{source('YUY2', (64, 48), n=3)} ! pyinfer name=infer model={MODELS}:Dirty ! pytrack ! pyoverlay ! "
        f"pypublish url=file:{path} ! fakesink name=sink"
    )
    assert run.eos
    messages = [json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} was published")) for line in path.open()]
    assert len(messages) == 3
    for message in messages:
        objects = message["objects"]
        assert [o["bbox"] for o in objects] == [[4, 4, 20, 20], [8, 8, 30, 30]]
        assert [o["label"] for o in objects] == ["thing", "77"]
        assert all(math.isfinite(v) for o in objects for v in (*o["bbox"], o["confidence"]))
    counts = {k: v for k, v in run.stats["infer"].items() if k.startswith("objects-") and v}
    # An object of an unknown class is counted and kept, with its number as its label.
    assert counts.pop("objects-unnamed") == 3
    assert sum(counts.values()) == 3 * 8, counts
    assert {"objects-non-finite", "objects-confidence", "objects-empty", "objects-outside"} <= set(counts)
