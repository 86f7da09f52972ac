"""Decode alone, preprocessing alone, model alone, everything: frames a second, ratios, latency, memory.

    python benchmarks/gpu/speed.py [--frames N] [--limit SECONDS] [--decode-limit SECONDS] [--streams 1,16,32,48]
        [--workers 1,2] [--nets yolo26n,yolo26s] [--parts preprocess,model,decode,full,latency]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from common import Gst, begin, measure, on_core, pipeline
from workers import measure_workers

from gstinfer.frames import Frame, FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.hosts.cuda import Plane
from gstinfer.image import ColorInfo, Device, Image
from gstinfer.preprocess import Preprocessing, cuda, prepare

HERE = os.path.dirname(os.path.abspath(__file__))
BEHIND = os.environ.get("BENCH_BEHIND", "! pytrack")


def frames_1080p(count: int) -> list[Image]:
    """Random NV12 frames with a pitch of 2048, each in memory of its own, as the host opens them."""
    images = []
    for _ in range(count):
        memory = torch.randint(0, 256, (1620, 2048), dtype=torch.uint8, device="cuda")
        hold, first = SimpleNamespace(events=deque(maxlen=1), memory=memory), memory.data_ptr()
        luma = Plane(hold, first, (1080, 1920), (2048, 1), 0, True)
        chroma = Plane(hold, first + 1080 * 2048, (540, 960, 2), (2048, 2, 1), 0, True)
        images.append(Image("NV12", (luma, chroma), 1920, 1080, ColorInfo("bt709"), Device("cuda")))
    return images


def preprocessing() -> None:
    """Microseconds of the GPU, and of Python, a frame: batches of 16 over 64 frames, more than the cache holds."""
    images = frames_1080p(64)
    for dtype in ("float16", "float32"):
        spec = Preprocessing((640, 640), dtype=dtype)
        where = [ImageTransform.plan(images[0].size, spec.size)] * 16
        out = torch.empty(spec.input_shape(16), dtype=getattr(torch, dtype), device="cuda")
        groups = [images[i : i + 16] for i in range(0, 64, 16)]
        for group in groups * 3:
            prepare(group, spec, transforms=where, out=out)
        torch.cuda.synchronize()
        host = time.perf_counter()
        for group in groups * 8:
            prepare(group, spec, transforms=where, out=out)
        host = time.perf_counter() - host
        torch.cuda.synchronize()
        tables = uploaded(groups, spec, where)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for table in tables:
                cuda.engine(0).backend.launch(table, out, spec, 16, tuple(out.stride()))
        times = [replay(graph) for _ in range(30)]
        print(
            f"preprocess 1080p NV12 -> 640 {dtype}: kernel {statistics.median(times) / 64 * 1e3:.2f} us a frame, "
            f"Python {host / (8 * 64) * 1e6:.1f} us a frame (batches of 16)"
        )


def uploaded(groups: Any, spec: Any, where: Any) -> list[Any]:
    """The groups' tables on the GPU."""
    engine, tables = cuda.engine(0), []
    for group in groups:
        slot = engine.backend.slot(16)
        slot.paired = engine._tables(spec).fill(slot.rows, group, where)
        engine.backend.upload(slot, 16)
        tables.append(slot)
    torch.cuda.synchronize()
    return tables


def replay(graph: Any) -> float:
    """Milliseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def model_alone(net: str) -> tuple[float, float]:
    """Best frames a second over the captured sizes, and milliseconds of one picture, one after another."""
    from networks import TableModel

    os.environ["BENCH_NET"] = net
    model = TableModel()
    began = time.perf_counter()
    model.load(Device("cuda"))
    loaded = time.perf_counter() - began
    images = frames_1080p(model.max_batch)
    best, one, pause = 0.0, 0.0, 0.005
    picture, contents = model._engine.input, ("blank", "noise")
    for size, content in itertools.product(sorted(model._engine._graphs), contents):
        graph = model._engine._graphs[size][0]
        with torch.cuda.stream(model._engine.stream):
            picture.uniform_() if content == "noise" else picture.zero_()
            for _ in range(5):
                graph.replay()
            times = [replay(graph) for _ in range(40)]
        ms = statistics.median(times)
        best = max(best, size / ms * 1e3)
        print(f"model {net} batch {size}, {content}: {ms:.3f} ms, {size / ms * 1e3:.0f} fps")
        if size == 1 and content == contents[-1]:
            one, paced = ms, []
            with torch.cuda.stream(model._engine.stream):
                for _ in range(400):
                    time.sleep(pause)
                    paced.append(replay(graph))
            half, most = np.percentile(paced, (50, 99))
            print(f"model {net} batch 1, a pause of {pause * 1e3:.0f} ms before each: p50 {half:.3f} ms, p99 {most:.3f} ms")
    batch = FrameBatch(tuple(Frame(image, sequence=i) for i, image in enumerate(images)))
    for count in (16, 32):
        part = FrameBatch(batch.frames[:count])
        pending = [model.submit(part)]
        began = time.perf_counter()
        for _ in range(60):
            pending.append(model.submit(part))
            pending.pop(0).result()
        pending.pop().result()
        print(f"model {net} submit/result batches of {count}: {61 * count / (time.perf_counter() - began):.0f} fps")
    print(f"model {net}: loaded and captured in {loaded:.1f} s")
    model.close()
    return best, one


def latency(net: str, frames: int, alone: float) -> None:
    """Time of each buffer inside pyinfer, one stream, held back to 200 frames a second; and what timing itself takes."""
    os.environ["BENCH_NET"] = net
    every = os.sched_getaffinity(0)
    nothing, _ = _spans("identity", frames)
    ms, steps = _spans(on_core(element(net, "one")), frames)
    os.sched_setaffinity(0, every)
    half, tail, most = np.percentile(ms, (50, 95, 99))
    print(
        f"latency {net}, one stream, {len(ms)} frames: p50 {half:.2f} ms, p95 {tail:.2f}, p99 {most:.2f}; "
        f"model alone {alone:.2f} ms; "
        f"added p50 {half - alone:.2f}, p99 {most - alone:.2f}; "
        f"around identity p50 {np.percentile(nothing, 50):.3f}, p99 {np.percentile(nothing, 99):.3f}\n{steps}"
    )


def _spans(elements: str, frames: int) -> tuple[Any, str]:
    """(milliseconds of each buffer inside an element, its stats)."""
    made = pipeline(1, elements + " name=infer")
    pads = made.get_by_name("infer")
    starts: list[float] = []
    spans: list[float] = []

    def came(*_: Any) -> Any:
        time.sleep(0.005)
        starts.append(time.perf_counter())
        return Gst.PadProbeReturn.OK

    def went(*_: Any) -> Any:
        spans.append(time.perf_counter() - starts[-1])
        return Gst.PadProbeReturn.OK

    pads.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, came)
    pads.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, went)
    made.set_state(Gst.State.PLAYING)
    patience = time.monotonic() + 60
    while len(spans) < frames and time.monotonic() < patience:
        time.sleep(0.05)
    steps = pads.get_property("stats").to_string() if pads.find_property("stats") else ""
    made.set_state(Gst.State.NULL)
    return np.array(spans[50:]) * 1e3, steps


def full(net: str, streams: int, workers: int, bound: float, options: argparse.Namespace) -> None:
    """Everything together, at one number of streams and of processes."""
    os.environ["BENCH_NET"] = net
    rate = measure_workers(workers, streams, f"{element(net, str(streams))} {BEHIND}", options.frames, options.limit)
    print(
        f"full {net}, {streams} streams, {workers} processes: {rate.fps:.0f} fps, {rate.fps / bound:.3f} of "
        f"min(decode, model) {bound:.0f}, {rate.cpu * 1e6:.0f} us of CPU a frame, slowest stream {rate.least} frames "
        f"{rate.error}",
        flush=True,
    )


def element(net: str, key: str) -> str:
    more = os.environ.get("BENCH_PYINFER", "")
    return f"pyinfer model={HERE}/networks.py:TableModel device=cuda:0 model-instance-id={net}-{key} {more}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--limit", type=float, default=8)
    parser.add_argument("--decode-limit", type=float, default=6)
    parser.add_argument("--streams", default="1,16,32,48")
    parser.add_argument("--workers", default="1", help="processes that the streams are dealt out over, one figure for each")
    parser.add_argument("--nets", default="yolo26s,yolo26n", help="as in yolo26s:1,yolo26n:2 with processes of their own")
    parser.add_argument("--parts", default="preprocess,model,decode,full,latency")
    options = parser.parse_args()
    begin()
    streams, parts = [int(n) for n in options.streams.split(",")], options.parts.split(",")
    context = os.environ.get("BENCH_CONTEXT", "shared")
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {Gst.version_string()}, context {context}")
    if "preprocess" in parts:
        preprocessing()
    decode = {}
    if "decode" in parts:
        for n in streams:
            rate = decode[n] = measure(n, "identity", options.frames, options.decode_limit)
            print(f"decode alone, {n} streams: {rate.fps:.0f} fps, {rate.cpu * 1e6:.0f} us of CPU a frame {rate.error}")
    for text in options.nets.split(","):
        net, _, own = text.partition(":")
        best, one = model_alone(net) if "model" in parts else (0.0, 0.0)
        for n in streams if "full" in parts else ():
            bound = min(best or np.inf, decode[n].fps if n in decode else np.inf)
            for workers in map(int, (own or options.workers).split(",")):
                full(net, n, workers, bound, options)
        if "latency" in parts:
            latency(net, 1000, one)


if __name__ == "__main__":
    main()
