"""Where a frame's time goes: wall clock and processor time of each step, microseconds a frame, of one process under load.

    python benchmarks/gpu/steps.py [--net yolo26n] [--streams 32] [--seconds 5] [--alone]

``--alone``: one stream, held back to 200 frames a second, without anything in flight: what the latency of a frame is made of.

Steps that stand indented are part of those above them. Where wall clock is far above processor time, a thread waits there: for
the interpreter, for the GPU, or, in ``finish``, for its result. Timing itself costs some microseconds a step.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from common import Gst, begin, counts, pipeline
from speed import element
from threads import shown, thread_seconds

STEPS = (
    ("runner:ModelRunner._submit_batch", "worker: a batch to the GPU"),
    ("runner:ModelRunner._open_buffers", "  buffers opened"),
    ("hosts.cuda:CudaHost.map", "    mapped"),
    ("model:LoadedModel.submit", "  submitted"),
    ("models.torch_engine:Engine._fill", "    table and kernel"),
    ("models.torch_engine:Engine._run", "    graph"),
    ("runner:ModelRunner._finish", "results: of a batch"),
    ("models.torch_engine:Results.__enter__", "  the GPU awaited"),
    ("elements.infer.tracking:BatchTracking.__call__", "  tracked"),
    ("runner:ModelRunner._close_buffers", "  buffers closed"),
    ("elements.infer.stage:InferStage.annotate", "    put on frames"),
    ("hosts.metas:MetaCodec.write", "    written"),
    ("elements.infer.inflight:FramesInFlight.cycle", "stream: a buffer"),
    ("runner:ModelRunner._submit", "  queued"),
    ("elements.infer.direct:Handover.finish", "  awaited"),
)
ALONE = (
    ("elements.infer.element:PyInfer.do_transform_ip", "everything in Python"),
    ("elements.infer.direct:Handover.open", "  opened"),
    ("hosts.cuda:CudaHost.map", "    mapped"),
    ("models.torch:TorchModel.submit", "  submitted"),
    ("preprocess.cuda:Engine.prepare", "    prepared"),
    ("preprocess.cuda_table:Table.fill", "      table"),
    ("preprocess.cuda:TorchBackend.upload", "      uploaded"),
    ("preprocess.cuda:TorchBackend.launch", "      kernel launched"),
    ("preprocess.cuda:TorchBackend.record", "      event"),
    ("models.torch_engine:Engine._run", "    graph launched"),
    ("runner:ModelRunner._finish", "  results"),
    ("models.torch:Pending.result", "    awaited and decoded"),
    ("models.torch_engine:Results.__enter__", "      awaited"),
    ("heads.device:DeviceDecoder.finish", "      decoded"),
    ("model:LoadedModel._check", "    checked"),
    ("elements.infer.stage:InferStage.annotate", "    put on the frame"),
    ("hosts.metas:MetaCodec.write", "    written"),
    ("hosts.metas.carrier:write", "      record"),
    ("hosts.metas.roi:write", "      regions"),
)


class Steps:
    """Times functions of the package while ``on``."""

    def __init__(self, steps: tuple[tuple[str, str], ...]) -> None:
        self.on = False
        self.wall: Counter[str] = Counter()
        self.cpu: Counter[str] = Counter()
        self.walls: defaultdict[str, list[float]] = defaultdict(list)
        for place, name in steps:
            module, path = place.split(":")
            __import__(f"gstinfer.{module}")
            owner: Any = sys.modules[f"gstinfer.{module}"]
            *outer, last = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            setattr(owner, last, self._timed(getattr(owner, last), name))

    def _timed(self, function: Any, name: str) -> Any:
        def timed(*arguments: Any, **more: Any) -> Any:
            if not self.on:
                return function(*arguments, **more)
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments, **more)
            finally:
                wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
                self.wall[name] += wall
                self.cpu[name] += cpu
                self.walls[name].append(wall * 1e6)

        return timed


def tail(walls: list[float]) -> str:
    return "" if not walls else "  p50 {:.0f}, p95 {:.0f}, p99 {:.0f} a call".format(*np.percentile(walls, (50, 95, 99)))


def watch_collections() -> dict[int, list[Any]]:
    """By generation: how many, milliseconds of all and of the longest; counted from now on."""
    found: dict[int, list[Any]] = {}
    began = 0.0

    def watch(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
            return
        took = (time.perf_counter() - began) * 1e3
        row = found.setdefault(info["generation"], [0, 0.0, 0.0])
        row[:] = row[0] + 1, round(row[1] + took, 3), round(max(row[2], took), 3)

    gc.callbacks.append(watch)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="yolo26n")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    os.environ["BENCH_NET"] = options.net
    begin()
    places = ALONE if options.alone else STEPS
    steps = Steps(places)
    if options.alone:
        options.streams = 1
    pace = "identity sleep-time=5000 !" if options.alone else ""
    made = pipeline(options.streams, f"{pace} {element(options.net, 'steps')}")
    bus = made.get_bus()
    made.set_state(Gst.State.PLAYING)
    while min(counts(made, options.streams)) < 60:
        time.sleep(0.05)
        message = bus.pop_filtered(Gst.MessageType.ERROR)
        if message is not None:
            raise SystemExit(message.parse_error())
    collected = watch_collections()
    for steps.on in (False, True):
        before, first, began = thread_seconds(), sum(counts(made, options.streams)), time.monotonic()
        time.sleep(options.seconds)
        frames = sum(counts(made, options.streams)) - first
        each = (time.monotonic() - began) / frames
        print(f"{options.net}, {options.streams} streams: {1 / each:.0f} fps, {each * 1e6:.0f} us a frame")
        print(f"threads, us of CPU a frame: {shown(thread_seconds() - before, frames, 8)}")
    print(f"garbage collections, by generation: {collected}")
    for _, name in places:
        wall, cpu = steps.wall[name] / frames * 1e6, steps.cpu[name] / frames * 1e6
        print(f"{name:32s} wall {wall:9.1f}  cpu {cpu:7.1f}{tail(steps.walls[name])}")
    sys.stdout.flush()
    made.set_state(Gst.State.NULL)


if __name__ == "__main__":
    main()
    os._exit(0)
