"""Throughput and latency of many branches that share one model, against the ideal.

The model sleeps a fixed time per batch, whatever its size; so N branches can reach N / time frames a second.

    .venv/bin/python benchmarks/streams.py [--seconds 4] [--model-ms 20]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import gstinfer
from gstinfer import Detections, Model, option


class Sleeper(Model):
    ms = option(float, 20.0, "Milliseconds a batch")

    def predict(self, batch):
        time.sleep(self.ms / 1e3)
        return [Detections.empty() for _ in batch]


def measure(branches: int, ms: float, seconds: float, tail: str = "", extra: str = "") -> tuple[float, float, float]:
    """(frames a second of all branches, p50, p99 of the first one's time in the element in ms); branches run freely.

    Only the first branch is probed: Python probes on every branch cost as much as what is measured.
    """
    from gi.repository import Gst

    waits: list[float] = []
    entered: list[float] = [0.0]

    def enter(pad, info):
        entered[0] = time.perf_counter()
        return Gst.PadProbeReturn.OK

    def leave(pad, info):
        waits.append(time.perf_counter() - entered[0])
        return Gst.PadProbeReturn.OK

    pipeline = Gst.parse_launch(
        " ".join(
            f"videotestsrc pattern=black ! video/x-raw,format=GRAY8,width=64,height=64 ! "
            f"pyinfer name=i{n} model={__file__}:Sleeper model-args=ms={ms} model-instance-id=bench {extra} ! "
            f"{tail}fakesink sync=false async=false"
            for n in range(branches)
        )
    )
    first = pipeline.get_by_name("i0")
    first.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, enter)
    first.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, leave)
    pipeline.set_state(Gst.State.PLAYING)
    time.sleep(1)
    waits.clear()
    before, began = first.get_property("stats").get_value("frames"), time.perf_counter()
    time.sleep(seconds)
    frames = first.get_property("stats").get_value("frames") - before
    rate = frames / (time.perf_counter() - began)
    pipeline.set_state(Gst.State.NULL)
    times = np.array(waits) * 1e3
    return rate, float(np.percentile(times, 50)), float(np.percentile(times, 99))


def overlap(frames: int, extra: str, queue: str) -> float:
    """fps of decoding and drawing (8 ms each) around a model of 10 ms, with or without what lets them overlap."""
    from gi.repository import Gst

    work = "identity sleep-time=8000"
    pipeline = Gst.parse_launch(
        f"videotestsrc pattern=black num-buffers={frames} ! video/x-raw,format=GRAY8,width=64,height=64 ! {work} ! {queue} "
        f"pyinfer model={__file__}:Sleeper model-args=ms=10.0 {extra} ! {queue} {work} ! fakesink name=sink sync=false"
    )
    times: list[float] = []

    def probe(pad, info):
        times.append(time.perf_counter())
        return Gst.PadProbeReturn.OK

    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_bus().timed_pop_filtered(60 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    return (len(times) - 1) / (times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--model-ms", type=float, default=20.0)
    options = parser.parse_args()
    gstinfer.register()
    # A sleep takes longer than it says; the ideal is what the model alone reaches in this very run.
    began = time.perf_counter()
    for _ in range(100):
        time.sleep(options.model_ms / 1e3)
    alone = (time.perf_counter() - began) * 10
    print(f"the model alone: {alone:.2f} ms a batch")
    print("branches      fps    ideal   ratio   p50 ms   p99 ms")
    for branches in (1, 2, 4, 8, 16):
        fps, p50, p99 = measure(branches, options.model_ms, options.seconds)
        ideal = branches * 1e3 / alone
        print(f"{branches:8d} {fps:8.1f} {ideal:8.1f} {fps / ideal:7.3f} {p50:8.1f} {p99:8.1f}")
    print("overlap of decoding, a model of 10 ms, and drawing: fps")
    for name, extra, queue in (
        ("neither", "", ""),
        ("frames-in-flight=4", "frames-in-flight=4", ""),
        ("queues", "", "queue max-size-buffers=4 !"),
        ("both", "frames-in-flight=4", "queue max-size-buffers=4 !"),
    ):
        print(f"{name:>20s} {overlap(100, extra, queue):6.1f}")


if __name__ == "__main__":
    main()
