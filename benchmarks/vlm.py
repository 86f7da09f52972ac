"""What pyvlm costs a frame, and how close it comes to the backend's own limit.

Added processor time per frame: 1280x720 I420 as fast as it goes through ``identity`` and through ``pyvlm``,
alternating, with 0, 1 and 8 streams sampling at once (0: the element is there and samples nothing). Segments a second: a
backend that needs a fixed time for each answer, against the number it could give at best, with 1 and 8 questions in flight.

    .venv/bin/python benchmarks/vlm.py [--frames 600] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gstinfer
from gstinfer.results import Text
from gstinfer.vlm import Backend, Call, Dispatcher, Segment

ANSWER = "def answer(segment):\n    return 'fine'\n"
CAPS = "video/x-raw,format=I420,width=1280,height=720,framerate=30/1"


def element(streams: int, frames: int, middle: str) -> float:
    """Processor seconds a frame: unlike the time on the wall, other programs do not count."""
    from gi.repository import Gst

    # A picture made once and pushed again and again: the source costs next to nothing.
    branch = f"videotestsrc pattern=black num-buffers=1 ! {CAPS} ! imagefreeze num-buffers={frames} ! {{}} ! fakesink"
    pipeline = Gst.parse_launch(" ".join(branch.format(middle) for _ in range(streams)))
    pipeline.set_state(Gst.State.PAUSED)
    pipeline.get_state(30 * Gst.SECOND)
    began = time.process_time()
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(600 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    elapsed = time.process_time() - began
    pipeline.set_state(Gst.State.NULL)
    if message is None or message.type == Gst.MessageType.ERROR:
        sys.exit(str(message.parse_error()) if message else "no end")
    return elapsed / frames / streams


def added(frames: int, rounds: int) -> None:
    import cv2  # noqa: F401 - imported with the first sample otherwise, which would be timed

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "vlm.py"
        model.write_text(ANSWER)
        ask = f"pyvlm model={model}:answer prompt=hi segment=4 max-frames=16 queue-size=64"
        cases = {
            "1 stream, 0 sampling": (1, f"{ask} fps=0.001 hold=no"),
            "1 stream, sampling 2 a second": (1, f"{ask} fps=2 hold=no"),
            "1 stream, sampling every frame": (1, f"{ask} every=1 hold=no"),
            "8 streams, sampling 2 a second": (8, f"{ask} fps=2 hold=no"),
        }
        for name, (streams, middle) in cases.items():
            without, with_ = [], []
            for _ in range(rounds):
                without.append(element(streams, frames, "identity"))
                with_.append(element(streams, frames, middle))
            bare, ours = statistics.median(without) * 1e6, statistics.median(with_) * 1e6
            print(f"{name}: {bare:.0f} us a frame without, {ours:.0f} us with, added {ours - bare:.0f} us")


class Sleeper(Backend):
    """Needs a fixed time for each answer, any number at once."""

    name = "sleeper"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def ask(self, calls):
        time.sleep(self.seconds * len(calls))
        return [Text("fine")] * len(calls)


def rate(seconds: float, flying: int, count: int) -> None:
    import numpy as np

    picture = np.zeros((252, 448, 3), np.uint8)
    ended: list[Call] = []
    dispatcher = Dispatcher(Sleeper(seconds), size=count, max_inflight=flying)
    began = time.perf_counter()
    for n in range(count):
        segment = Segment(str(n % 8), n, n, (picture,) * 8, tuple(range(8)), "?")
        dispatcher.put(Call(segment, 600, ended.append))
    while len(ended) < count:
        time.sleep(0.001)
    found, best = count / (time.perf_counter() - began), flying / seconds
    dispatcher.close()
    print(
        f"{flying} in flight, {seconds * 1e3:.0f} ms an answer: {found:.1f} segments/s of {best:.1f}, ratio {found / best:.3f}"
    )


SERVER = """
import sys, time
from standin import StandIn
import standin
standin.pictures = lambda request: []
with StandIn(delay=0.2, answer=lambda colors, request: "fine") as server:
    print(server.spec, flush=True)
    sys.stdin.read()
"""


def server(flying: int, count: int) -> None:
    """The same through HTTP, JPEG and JSON, against the stand-in that the tests use, in a process of its own."""
    import numpy as np

    from gstinfer.vlm import BackendOptions, as_backend

    folder = Path(__file__).parents[1] / "tests/vlm"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        backend = as_backend(child.stdout.readline().strip(), BackendOptions())
        backend.open()
        ended: list[Call] = []
        dispatcher = Dispatcher(backend, size=count, max_inflight=flying)
        picture = np.random.default_rng(0).integers(0, 255, (32, 56, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        began = time.perf_counter()
        for n in range(count):
            segment = Segment(str(n % 8), n, n, (picture,) * 8, tuple(range(8)), "?")
            dispatcher.put(Call(segment, 600, ended.append))
        while len(ended) < count:
            time.sleep(0.001)
        found, best = count / (time.perf_counter() - began), flying / 0.2
        dispatcher.close()
        child.stdin.close()
    assert all(call.state == "answered" for call in ended), [str(call.error) for call in ended if call.error][:1]
    print(f"HTTP, {flying} in flight, 200 ms an answer: {found:.1f} segments/s of {best:.1f}, ratio {found / best:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    gstinfer.register()
    added(options.frames, options.rounds)
    for flying in (1, 8):
        rate(0.05, flying, 40 * flying)
    for flying in (1, 8):
        server(flying, 15 * flying)


if __name__ == "__main__":
    main()
