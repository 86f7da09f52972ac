"""Seeks, flushes, pauses, gaps and uneven timestamps: each frame keeps its own time and gets its own result."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

import gstinfer
from gstinfer.elements.compat import Gst

MODELS = Path(__file__).with_name("pictures_for_tests.py")
DEPTHS = pytest.mark.parametrize("depth", [1, 3])
CAPS = "video/x-raw,format=GRAY8,width=8,height=4,framerate=0/1"
SIZE = 8 * 4


class Stream:
    """appsrc ! pyinfer ! appsink, fed by hand; the brightness of a frame comes back as the class of its result."""

    def __init__(self, depth: int) -> None:
        gstinfer.register()
        self.pipeline = Gst.parse_launch(
            f"appsrc name=in format=time caps={CAPS} ! pyinfer name=infer model={MODELS}:Brightness frames-in-flight={depth} ! "
            "appsink name=out sync=false async=false max-buffers=100"
        )
        self.input, self.output = (self.pipeline.get_by_name(n) for n in ("in", "out"))
        self.pipeline.set_state(Gst.State.PLAYING)

    def push(self, value: int, pts: int | None, duration: int | None = None) -> None:
        buffer = Gst.Buffer.new_wrapped(bytes([value]) * SIZE)
        buffer.pts = Gst.CLOCK_TIME_NONE if pts is None else pts
        if duration is not None:
            buffer.duration = duration
        assert self.input.emit("push-buffer", buffer) == Gst.FlowReturn.OK

    def pull(self, seconds: float = 5) -> tuple[int | None, int, int] | None:
        """(PTS, brightness of the picture, class of its result), or None."""
        sample = self.output.emit("try-pull-sample", int(seconds * 1e9))
        if sample is None:
            return None
        buffer = sample.get_buffer()
        found = gstinfer.read(sample)
        pts = None if buffer.pts == Gst.CLOCK_TIME_NONE else buffer.pts
        return pts, buffer.extract_dup(0, 1)[0], int(found.detections.class_id[0])

    def close(self) -> None:
        self.pipeline.set_state(Gst.State.NULL)


@pytest.fixture
def stream(request):
    made = []

    def make(depth: int) -> Stream:
        made.append(Stream(depth))
        return made[-1]

    yield make
    for one in made:
        one.close()


@DEPTHS
def test_uneven_timestamps_stay_as_they_are(stream, depth):
    one = stream(depth)
    steps = np.random.default_rng(3).integers(1, 300_000_000, 40)
    times = [int(t) for t in np.cumsum(steps)]
    for number, pts in enumerate(times):
        one.push(number, pts, duration=None if number % 3 else 7)
    one.input.emit("end-of-stream")
    assert [one.pull() for _ in times] == [(pts, n, n) for n, pts in enumerate(times)]
    assert one.pull(1) is None and one.output.get_property("eos")


@DEPTHS
def test_frames_without_a_timestamp_and_with_one_that_runs_backwards(stream, depth):
    one = stream(depth)
    times = [None, 50, 20, 20, None, 7]
    for number, pts in enumerate(times):
        one.push(number, pts)
    one.input.emit("end-of-stream")
    assert [one.pull() for _ in times] == [(pts, n, n) for n, pts in enumerate(times)]


@DEPTHS
def test_a_flush_drops_what_is_inside_and_the_stream_goes_on(stream, depth):
    one = stream(depth)
    for number in range(5):
        one.push(number, number)
    assert one.pull() == (0, 0, 0)
    pad = one.pipeline.get_by_name("infer").get_static_pad("sink").get_peer()
    pad.push_event(Gst.Event.new_flush_start())
    pad.push_event(Gst.Event.new_flush_stop(True))
    # appsrc's loop ended with the flush: a seek is what wakes it, so the pipeline goes through PAUSED to be fed again.
    one.pipeline.set_state(Gst.State.READY)
    one.pipeline.get_state(Gst.SECOND)
    one.pipeline.set_state(Gst.State.PLAYING)
    for number in range(100, 105):
        one.push(number, number)
    one.input.emit("end-of-stream")
    assert [one.pull() for _ in range(5)] == [(n, n, n) for n in range(100, 105)]


@DEPTHS
@pytest.mark.parametrize("flags", ["flush", "flush+accurate"])
def test_seeks_in_a_file(bikes, depth, flags):
    """The frames after each seek are those of a plain run: same PTS, same picture, same result."""
    gstinfer.register()
    text = (
        f"filesrc location={bikes} ! decodebin ! pyinfer model={MODELS}:Brightness frames-in-flight={depth} ! "
        "appsink name=out sync=false max-buffers=2"
    )
    pipeline = Gst.parse_launch(text)
    out = pipeline.get_by_name("out")

    def frames(count: int) -> list[tuple[int, int]]:
        got = []
        for _ in range(count):
            sample = out.emit("try-pull-sample", 10 * Gst.SECOND)
            assert sample is not None
            found = gstinfer.read(sample)
            got.append((sample.get_buffer().pts, int(found.detections.class_id[0])))
        return got

    pipeline.set_state(Gst.State.PLAYING)
    try:
        known = dict(frames(60))
        wanted = Gst.SeekFlags.FLUSH | (Gst.SeekFlags.ACCURATE if "accurate" in flags else Gst.SeekFlags.KEY_UNIT)
        for target in (1.0, 0.0, 2.0, 0.4):
            assert pipeline.seek_simple(Gst.Format.TIME, wanted, int(target * 1e9))
            after = frames(5)
            assert all(known.get(pts) == value for pts, value in after if pts in known)
            assert [pts for pts, _ in after] == sorted(pts for pts, _ in after)
            if "accurate" in flags:
                # The file's first frame shows two frames after its time 0.
                assert after[0][0] == pytest.approx(target * 1e9, abs=81e6)
    finally:
        pipeline.set_state(Gst.State.NULL)


@DEPTHS
def test_pausing_and_playing_loses_nothing(depth):
    gstinfer.register()
    pipeline = Gst.parse_launch(
        "videotestsrc num-buffers=60 pattern=ball ! video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1 ! "
        f"pyinfer model={MODELS}:Brightness frames-in-flight={depth} ! fakesink name=sink sync=true"
    )
    pts = []

    def probe(pad, info):
        pts.append(info.get_buffer().pts)
        assert gstinfer.read(info.get_buffer()).inferred
        return Gst.PadProbeReturn.OK

    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    pipeline.set_state(Gst.State.PLAYING)
    try:
        for _ in range(4):
            time.sleep(0.15)
            pipeline.set_state(Gst.State.PAUSED)
            assert pipeline.get_state(5 * Gst.SECOND)[0] == Gst.StateChangeReturn.SUCCESS
            count = len(pts)
            time.sleep(0.1)
            # Those on their way: one at the sink, and those in flight.
            assert len(pts) <= count + depth + 1
            pipeline.set_state(Gst.State.PLAYING)
        message = pipeline.get_bus().timed_pop_filtered(10 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
        assert message is not None and message.type == Gst.MessageType.EOS
    finally:
        pipeline.set_state(Gst.State.NULL)
    assert pts == sorted(set(pts)) and len(pts) == 60


@DEPTHS
def test_a_gap_is_passed_in_its_place(stream, depth):
    one = stream(depth)
    order = []
    pad = one.output.get_static_pad("sink")
    both = Gst.PadProbeType.BUFFER | Gst.PadProbeType.EVENT_DOWNSTREAM

    def probe(_, info):
        if info.type & Gst.PadProbeType.BUFFER:
            order.append(info.get_buffer().pts)
        elif info.get_event().type == Gst.EventType.GAP:
            order.append("gap")
        return Gst.PadProbeReturn.OK

    pad.add_probe(both, probe)
    source = one.pipeline.get_by_name("infer").get_static_pad("sink").get_peer()
    for number in range(3):
        one.push(number, number)
    deadline = time.monotonic() + 5
    while one.input.get_property("current-level-buffers") and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    # From a thread of its own: appsrc's waits for the next buffer.
    thread = threading.Thread(target=source.push_event, args=(Gst.Event.new_gap(3, 1),))
    thread.start()
    thread.join(5)
    one.push(4, 4)
    one.input.emit("end-of-stream")
    assert [one.pull()[0] for _ in range(4)] == [0, 1, 2, 4]
    assert order == [0, 1, 2, "gap", 4]
