"""Pipelines that start and stop, at any moment: no thread, file or memory stays behind."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]
MODELS = Path(__file__).with_name("models_for_tests.py")


def threads() -> int:
    """Threads of the whole process, GStreamer's too."""
    return len(os.listdir("/proc/self/task"))


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def memory() -> float:
    """MB that are resident."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def settled(limit: int, measure=threads, seconds: float = 5) -> bool:
    """Whether a count falls to a limit: threads of a pool end a moment later."""
    deadline = time.monotonic() + seconds
    while measure() > limit and time.monotonic() < deadline:
        time.sleep(0.05)
    return measure() <= limit


def play(description: str, seconds: float | None = None) -> None:
    """Runs until EOS, or stops after some seconds, wherever it is then."""
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(description)
    pipeline.set_state(Gst.State.PLAYING)
    if seconds is None:
        message = pipeline.get_bus().timed_pop_filtered(30 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
        assert message is not None and message.type == Gst.MessageType.EOS
    else:
        time.sleep(seconds)
    assert pipeline.set_state(Gst.State.NULL) == Gst.StateChangeReturn.SUCCESS


CYCLE = (
    "videotestsrc num-buffers={frames} ! video/x-raw,width=320,height=240,format=I420 ! "
    "pyinfer model={model} {extra} ! pytrack ! pyoverlay ! fakesink sync=false"
)


def test_start_and_stop_leave_nothing_behind(cases):
    text = CYCLE.format(frames=3, model=f"{cases}/models/oracle_dyn.onnx", extra="head=yolo-e2e stats-interval=1")
    for _ in range(5):
        play(text)
    gc.collect()
    before, open_files, resident = threads(), files(), memory()
    for _ in range(30):
        play(text)
    gc.collect()
    assert settled(before), f"{threads()} threads, {before} before"
    assert files() <= open_files
    assert memory() - resident < 30


@pytest.mark.parametrize("extra", ["", "frames-in-flight=4", "watchdog=5 stats-interval=0.05", "shadow-model={m}:Slow"])
def test_null_at_any_moment(extra):
    text = CYCLE.format(frames=-1, model=f"{MODELS}:Slow model-args=seconds=0.03", extra=extra.format(m=MODELS))
    play(text, 0.3)
    before = threads()
    chance = random.Random(1)
    for _ in range(12):
        began = time.monotonic()
        delay = chance.choice([0.0, 0.001, 0.01, 0.05, 0.15])
        play(text, delay)
        assert time.monotonic() - began < delay + 10
    assert settled(before), [thread.name for thread in threading.enumerate()]


def test_null_while_a_model_is_exchanged():
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    # Pools of threads that libraries keep for good.
    play(CYCLE.format(frames=5, model=f"{MODELS}:Number", extra=""))
    before = threads()
    for delay in (0.0, 0.02, 0.1):
        pipeline = Gst.parse_launch(CYCLE.format(frames=-1, model=f"{MODELS}:Number", extra="name=infer"))
        pipeline.set_state(Gst.State.PLAYING)
        time.sleep(0.1)
        pipeline.get_by_name("infer").set_property("model", f"{MODELS}:Slow")
        time.sleep(delay)
        assert pipeline.set_state(Gst.State.NULL) == Gst.StateChangeReturn.SUCCESS
    assert settled(before + 1), [thread.name for thread in threading.enumerate()]


def test_memory_is_flat_over_frames_and_swaps(cases):
    """720p frames in batches of several streams; the full figures come from benchmarks/soak.py."""
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    models = [f"{cases}/models/{name}.onnx" for name in ("oracle_dyn", "e2e_xyxy")]
    pipeline = Gst.parse_launch(
        " ".join(
            "videotestsrc pattern=blue ! video/x-raw,width=1280,height=720,format=I420 ! "
            f"pyinfer name=i{n} model={models[0]} model-instance-id=flat ! fakesink name=s{n} sync=false async=false"
            for n in range(3)
        )
    )
    element = pipeline.get_by_name("i0")
    done = threading.Semaphore(0)
    element.connect("model-updated", lambda *_: done.release())
    pipeline.set_state(Gst.State.PLAYING)
    resident = 0.0
    for number in range(14):
        element.set_property("model", models[(number + 1) % 2])
        assert done.acquire(timeout=30)
        time.sleep(0.1)
        if number == 3:
            gc.collect()
            resident = memory()
    frames = element.get_property("stats").get_value("frames")
    gc.collect()
    grown = memory() - resident
    pipeline.set_state(Gst.State.NULL)
    assert grown < 30 and frames > 100, (grown, frames)
