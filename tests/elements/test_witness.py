"""Boxes behind elements that move frames between memories, which drop regions of interest and with them our witness."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))

from nvcodec_standin import nvcodec

import gstinfer
from gstinfer.elements import witness
from gstinfer.elements.compat import Gst
from gstinfer.hosts.metas import roi
from gstinfer.testing import run_pipeline

PYINFER = f"pyinfer model={Path(__file__).with_name('models_for_tests.py')}:MeanColor device=cpu"
BOX = [[1.0, 2.0, 11.0, 12.0]]
SOURCE = "videotestsrc num-buffers=3 ! video/x-raw,format=NV12,width=64,height=48"
THERE_AND_BACK = "cudaupload ! cudadownload"
SAME_SIZE = "videoscale ! video/x-raw,width=64,height=48"


@pytest.fixture(autouse=True)
def movers():
    with nvcodec({}):
        yield


@pytest.fixture
def probed(monkeypatch):
    """Every pair of probes that is made."""
    made = []

    class Noted(witness._Passing):
        def __init__(self):
            super().__init__()
            made.append(self)

    monkeypatch.setattr(witness, "_Passing", Noted)
    return made


def boxes(elements: str) -> list[list[list[float]]]:
    run = run_pipeline(f"{SOURCE} ! {elements} ! fakesink name=sink")
    assert run.error is None, run.error
    return run.boxes()


@pytest.mark.parametrize(
    ("elements", "pairs"),
    [
        (f"{PYINFER} ! {THERE_AND_BACK}", 2),
        (f"{PYINFER} ! tee name=t ! queue ! {THERE_AND_BACK} ! fakesink t. ! queue ! {THERE_AND_BACK}", 4),
        (f"{PYINFER} ! pytrack ! {THERE_AND_BACK}", 2),
        (f"{PYINFER} ! {THERE_AND_BACK} ! pytrack ! {THERE_AND_BACK}", 4),
        (f"{PYINFER} frames-in-flight=2 ! {THERE_AND_BACK}", 2),
        (f"{PYINFER} ! {SAME_SIZE}", 0),
    ],
)
def test_boxes_are_read_behind_movers_which_are_probed_once(elements, pairs, probed):
    assert boxes(elements) == [BOX] * 3
    assert len(probed) == pairs


def test_a_scaler_behind_a_mover_still_scales_them():
    half = boxes(f"{PYINFER} ! {THERE_AND_BACK} ! videoscale ! video/x-raw,width=32,height=24")
    assert half == [[[0.5, 1.0, 5.5, 6.0]]] * 3


@pytest.mark.parametrize(
    "elements",
    [
        f"videocrop left=8 ! {SAME_SIZE} ! {THERE_AND_BACK}",
        f"{THERE_AND_BACK} ! videocrop left=8 ! {SAME_SIZE}",
        f"videoflip video-direction=horiz ! {THERE_AND_BACK}",
        f"{THERE_AND_BACK} ! videoflip video-direction=horiz",
        f"cudaupload ! cudadownload ! videoflip video-direction=180 ! {THERE_AND_BACK}",
        f"videocrop left=8 ! {THERE_AND_BACK}",
    ],
)
def test_what_crops_or_turns_frames_around_a_mover_still_shows(elements):
    assert boxes(f"{PYINFER} ! {elements}") == [[]] * 3


def test_movers_inside_of_bins_are_found():
    pipeline = Gst.parse_launch(f"{SOURCE} ! {PYINFER} name=last")
    inner = Gst.parse_bin_from_description(THERE_AND_BACK, True)
    outer, sink = Gst.Bin.new(None), Gst.ElementFactory.make("appsink")
    outer.add(inner)
    for name in ("sink", "src"):
        outer.add_pad(Gst.GhostPad.new(name, inner.get_static_pad(name)))
    for element in (outer, sink):
        pipeline.add(element)
    assert pipeline.get_by_name("last").link(outer) and outer.link(sink)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        sample = sink.emit("try-pull-sample", 10 * Gst.SECOND)
        assert gstinfer.read(sample).detections.xyxy.tolist() == BOX
    finally:
        pipeline.set_state(Gst.State.NULL)


def test_movers_that_are_linked_while_it_plays_are_found():
    pipeline = Gst.parse_launch(f"appsrc name=src ! {PYINFER} ! tee name=tee ! queue ! appsink name=before")
    source = pipeline.get_by_name("src")
    caps = Gst.Caps.from_string("video/x-raw,format=GRAY8,width=64,height=48,framerate=30/1")

    def push() -> None:
        source.emit("push-sample", Gst.Sample.new(Gst.Buffer.new_wrapped(bytes(64 * 48)), caps, None, None))

    pipeline.set_state(Gst.State.PLAYING)
    try:
        push()
        assert pipeline.get_by_name("before").emit("try-pull-sample", 10 * Gst.SECOND) is not None
        branch = Gst.parse_bin_from_description(f"queue ! {THERE_AND_BACK} ! appsink name=after", True)
        pipeline.add(branch)
        branch.sync_state_with_parent()
        assert pipeline.get_by_name("tee").link(branch)
        push()
        sample = branch.get_by_name("after").emit("try-pull-sample", 10 * Gst.SECOND)
        assert gstinfer.read(sample).detections.xyxy.tolist() == BOX
    finally:
        pipeline.set_state(Gst.State.NULL)


def objects(elements: str) -> list[int]:
    """How many regions each frame has but for the witness, behind these elements."""
    pipeline = Gst.parse_launch(f"{SOURCE} ! {elements} ! appsink name=sink sync=false")
    pipeline.set_state(Gst.State.PLAYING)
    try:
        samples = [pipeline.get_by_name("sink").emit("try-pull-sample", 10 * Gst.SECOND) for _ in range(3)]
        return [sum(r.parent_id == roi.FRAME_ID for r in roi.read(sample.get_buffer())) for sample in samples]
    finally:
        pipeline.set_state(Gst.State.NULL)


def test_regions_of_objects_come_back_with_an_element_of_ours_behind_the_mover():
    written = f"{PYINFER} write-meta=roi"
    assert objects(written) == [1] * 3 and objects(f"{written} ! {THERE_AND_BACK}") == [0] * 3
    assert objects(f"{written} ! {THERE_AND_BACK} ! pytrack") == [1] * 3


def test_what_passes_through_a_mover_is_left_alone(monkeypatch, probed):
    marks, mark = [], roi.mark_frame
    monkeypatch.setattr(witness, "MOVERS", {"identity"})
    monkeypatch.setattr(roi, "mark_frame", lambda *arguments: (marks.append(arguments), mark(*arguments)))
    assert boxes(f"{PYINFER} ! identity") == [BOX] * 3
    # Those of pyinfer itself.
    assert len(probed) == 1 and [len(m) for m in marks] == [3] * 3


def in_hands(buffer) -> int:
    """What a probe gets of a buffer: the address of its ``GstPadProbeInfo``; kept alive here."""
    info = witness._ProbeInfo(data=hash(buffer))
    kept.append(info)
    return ctypes.addressof(info)


kept: list[object] = []


def test_a_frame_gets_its_own_witness_and_no_other():
    passing, marked, bare, new = witness._Passing(), Gst.Buffer.new(), Gst.Buffer.new(), Gst.Buffer.new()
    roi.mark_frame(marked, 60, 48, 4)
    passing.enters(None, in_hands(marked))
    passing.leaves(None, in_hands(new))
    assert roi.witness(new) == (4, 0, 60, 48)
    # The first one was dropped inside, and the next had none.
    passing.enters(None, in_hands(marked))
    passing.enters(None, in_hands(bare))
    passing.leaves(None, in_hands(other := Gst.Buffer.new()))
    assert roi.witness(other) is None
    # Nothing came in for it.
    passing.enters(None, in_hands(marked))
    passing.leaves(None, in_hands(marked))
    passing.leaves(None, in_hands(other))
    assert roi.witness(other) is None


def test_a_buffer_that_somebody_else_holds_is_not_touched():
    passing, marked, out = witness._Passing(), Gst.Buffer.new(), Gst.Buffer.new()
    roi.mark_frame(marked, 64, 48)
    holder = Gst.Sample.new(out, None, None, None)
    passing.enters(None, in_hands(marked))
    passing.leaves(None, in_hands(out))
    assert roi.witness(out) is None
    del holder


def test_probes_keep_nothing_alive():
    pipeline = Gst.parse_launch(f"{SOURCE} ! {PYINFER} name=infer ! {THERE_AND_BACK} ! fakesink")
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(10 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    assert message.type == Gst.MessageType.EOS
    pipeline.set_state(Gst.State.NULL)
    gone = pipeline.get_by_name("infer").weak_ref(), pipeline.weak_ref()
    del pipeline, message
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.skipif(Gst.ElementFactory.find("glupload") is None, reason="gstreamer1.0-gl is not installed")
def test_movers_of_opengl():
    rgba = "video/x-raw(memory:GLMemory),format=RGBA"
    run = run_pipeline(f"{SOURCE} ! {PYINFER} ! glupload ! glcolorconvert ! {rgba} ! gldownload ! fakesink name=sink")
    if run.error is not None:
        pytest.skip(f"there is no OpenGL here: {run.error}")
    assert run.boxes() == [BOX] * 3
