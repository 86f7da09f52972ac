"""What Python lets through where a model takes no time of the CPU: frames a second of many streams, and processor time a frame.

The model stands in for a network on a GPU: it works on one batch of up to 32 after another, each as long as any other, and
finds the same 20 objects in each frame. Four ways: elements of one pipeline, the same with ``cpu-cores``, ``gstinfer run``, and
that with ``cpu-cores``; in turn, so that the ratios are of one run.

    .venv/bin/python benchmarks/interpreter.py [--streams 16] [--batch-ms 4] [--seconds 3] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

from gstinfer import Detections, Model, option

RNG = np.random.default_rng(1)
CORNERS = RNG.uniform(0, (150, 70), (20, 2)).astype(np.float32)
BOXES = np.concatenate([CORNERS, CORNERS + RNG.uniform(10, 40, (20, 2))], 1).astype(np.float32)
SCORES, CLASSES = np.linspace(0.9, 0.5, 20, dtype=np.float32), RNG.integers(0, 80, 20).astype(np.int32)
SIZE = "width=192,height=108"
COMMON = ("tracker=bytetrack", "frames-in-flight=8", "write-meta=carrier")


class Waiting:
    def __init__(self, count: int, until: float) -> None:
        self.count, self.until = count, until

    def result(self) -> list[Detections]:
        time.sleep(max(0.0, self.until - time.monotonic()))
        return [Detections(BOXES.copy(), SCORES.copy(), CLASSES.copy()) for _ in range(self.count)]


class StandIn(Model):
    ms = option(float, 4.0, "Milliseconds a batch")
    max_batch = 32
    until = 0.0

    def submit(self, batch):
        self.until = max(self.until, time.monotonic()) + self.ms / 1e3
        return Waiting(len(batch), self.until)

    def predict(self, batch):
        return self.submit(batch).result()


def spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def steady(frames, seconds: float) -> str:
    """Frames a second and microseconds a frame, once all streams run."""
    time.sleep(1.5)
    first, cpu, began = frames(), spent(), time.monotonic()
    time.sleep(seconds)
    count = frames() - first
    return f"{count / (time.monotonic() - began):.0f} {(spent() - cpu) / max(1, count) * 1e6:.0f}"


def elements(streams: int, ms: float, seconds: float, more: tuple[str, ...]) -> str:
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    properties = " ".join((*COMMON, *more))
    pipeline = Gst.parse_launch(
        " ".join(
            f"videotestsrc pattern=black ! video/x-raw,format=I420,{SIZE},framerate=30/1 ! queue max-size-buffers=4"
            f" ! pyinfer name=i{n} model={__file__}:StandIn model-args=ms={ms} device=cpu model-instance-id=one {properties}"
            f" ! fakesink name=s{n} sync=false async=false"
            for n in range(streams)
        )
    )
    sinks = [pipeline.get_by_name(f"s{n}") for n in range(streams)]
    pipeline.set_state(Gst.State.PLAYING)
    return steady(lambda: sum(sink.get_property("stats").get_value("rendered") for sink in sinks), seconds)


def command(streams: int, ms: float, seconds: float, more: tuple[str, ...]) -> str:
    from gstinfer.app.session import Job, Session

    source = f"test:black?{SIZE.replace(',', '&')}&frames=1000000"
    settings = [f"pyinfer.{text}" for text in (*COMMON[1:], f"model-args=ms={ms}", *more)]
    session = Session(Job([source] * streams, f"{__file__}:StandIn", device="cpu", settings=settings))
    threading.Thread(target=session.run, daemon=True).start()
    return steady(lambda: sum(branch.counts.frames for branch in session.branches), seconds)


CORE = (f"cpu-cores={min(os.sched_getaffinity(0))}",)
WAYS = {
    "elements": (elements, ()),
    "elements, cpu-cores": (elements, CORE),
    "gstinfer run": (command, ()),
    "gstinfer run, cpu-cores": (command, CORE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--batch-ms", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="one way alone, in this process")
    options = parser.parse_args()
    if options.way:
        measure, more = WAYS[options.way]
        print(measure(options.streams, options.batch_ms, options.seconds, more), flush=True)
        os._exit(0)
    found: dict[str, list[tuple[int, int]]] = {way: [] for way in WAYS}
    same = ["--streams", str(options.streams), "--batch-ms", str(options.batch_ms), "--seconds", str(options.seconds)]
    for _ in range(options.rounds):
        for way in WAYS:
            run = [sys.executable, __file__, *same, "--way", way]
            line = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            rate, cost = map(int, line.split())
            found[way].append((rate, cost))
    least = statistics.median(rate for rate, _ in found["elements"])
    print(f"{options.streams} streams, {options.batch_ms:g} ms a batch of up to 32, medians of {options.rounds} rounds")
    for way, rows in found.items():
        rate, cost = (statistics.median(column) for column in zip(*rows))
        print(f"{way:>26s} {rate:6.0f} fps {rate / least:5.2f}  {cost:5.0f} us of CPU a frame")


if __name__ == "__main__":
    main()
