"""What the card can do at best: decoding beside a network that runs by itself, with no pipeline between them.

    python benchmarks/gpu/beside.py [--streams 32] [--net yolo26s] [--seconds 5]

Decoders run freely into sinks while one thread replays the network's graph of the largest batch, two in flight. Where both
together do not reach what each does alone, no pipeline can. ``BENCH_CONTEXT`` and ``BENCH_SCHED`` as in the other scripts.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time

import torch
from common import Gst, begin, counts, pipeline
from threads import shown, thread_seconds

from gstinfer.image import Device


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", default="16,32,48")
    parser.add_argument("--net", default="yolo26s")
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    os.environ["BENCH_NET"] = options.net
    begin()
    from networks import TableModel

    model = TableModel()
    model.load(Device("cuda"))
    engine, size = model._engine, model.max_batch
    graph, stop, batches = engine._graphs[size][0], threading.Event(), [0]

    def run() -> None:
        events = [torch.cuda.Event(blocking=True) for _ in range(2)]
        with torch.cuda.stream(engine.stream):
            while not stop.is_set():
                for event in events:
                    event.synchronize()
                    graph.replay()
                    event.record()
                    batches[0] += 1

    alone = _rate(run, stop, batches, options.seconds) * size
    print(f"{options.net} alone, batches of {size}: {alone:.0f} fps", flush=True)
    for streams in map(int, options.streams.split(",")):
        made = pipeline(streams, "identity")
        if os.environ.get("BENCH_CONTEXT") != "own":
            _share(made)
        made.set_state(Gst.State.PLAYING)
        while min(counts(made, streams)) < 60:
            time.sleep(0.05)
        decode, _, _ = _together(made, streams, None, stop, batches, options.seconds)
        both, network, cpu = _together(made, streams, run, stop, batches, options.seconds)
        print(
            f"{streams} streams: decoding alone {decode:.0f} fps; together decoding {both:.0f} and network "
            f"{network * size:.0f} fps ({network * size / alone:.2f} of alone); us of CPU a decoded frame: {cpu}",
            flush=True,
        )
        made.set_state(Gst.State.NULL)


def _share(made: object) -> None:
    """As pyinfer would have told the decoders."""
    from gstinfer.hosts import cuda_context

    gst = ctypes.CDLL("libgstreamer-1.0.so.0")
    gst.gst_element_set_context(ctypes.c_void_p(hash(made)), ctypes.c_void_p(cuda_context._context(0)))


def _rate(run: object, stop: threading.Event, batches: list[int], seconds: float) -> float:
    """Batches a second."""
    stop.clear()
    thread = threading.Thread(target=run)  # type: ignore[arg-type]
    thread.start()
    time.sleep(0.5)
    first, began = batches[0], time.monotonic()
    time.sleep(seconds)
    rate = (batches[0] - first) / (time.monotonic() - began)
    stop.set()
    thread.join()
    return rate


def _together(
    made: object, streams: int, run: object, stop: threading.Event, batches: list[int], seconds: float
) -> tuple[float, float, str]:
    """(frames a second of all decoders, batches a second, processor time)."""
    network = 0.0
    before, first, began = thread_seconds(), sum(counts(made, streams)), time.monotonic()
    if run is None:
        time.sleep(seconds)
    else:
        network = _rate(run, stop, batches, seconds)
    frames = sum(counts(made, streams)) - first
    return frames / (time.monotonic() - began), network, shown(thread_seconds() - before, frames)


if __name__ == "__main__":
    main()
    os._exit(0)
