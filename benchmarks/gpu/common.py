"""Pipelines of many streams and what is measured on them."""

from __future__ import annotations

import ctypes
import os
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gi
import numpy as np

gi.require_version("Gst", "1.0")
from gi.repository import Gst

import gstinfer
from gstinfer.hosts import cuda_context
from gstinfer.hosts.system import SystemHost
from gstinfer.image import Image

CLIP = os.environ.get("BENCH_CLIP", "clip.h264")


@dataclass
class Rate:
    """Frames a second over all streams, CPU seconds of the process a frame, and frames of the slowest stream."""

    fps: float
    cpu: float
    least: int
    error: str = ""


def pipeline(streams: int, elements: str, clip: str = CLIP) -> Any:
    """``streams`` branches of one clip; ``{i}`` in ``elements`` is the branch's number."""
    branches = [
        f"filesrc location={clip} ! h264parse ! nvh264dec ! queue max-size-buffers=4 ! {elements.format(i=i)} "
        f"! fakesink name=sink{i} sync=false"
        for i in range(streams)
    ]
    return Gst.parse_launch(" ".join(branches))


def downloaded(elements: str, count: int) -> Iterator[Image]:
    """The first frames behind ``elements`` as NV12 with planes of their own."""
    made = Gst.parse_launch(f"{elements} ! capsfilter caps=video/x-raw,format=NV12 ! appsink name=sink sync=false")
    made.set_state(Gst.State.PLAYING)
    host, sink = None, made.get_by_name("sink")
    stream = SimpleNamespace(stream_id="", source="", component_id=0, sequence=0)
    for _ in range(count):
        sample = sink.emit("pull-sample")
        if sample is None:
            break
        host = host or SystemHost(sample.get_caps(), stream)
        with host.open(sample.get_buffer()) as batch:
            image: Image = batch[0].image
            yield Image("NV12", tuple(np.array(p) for p in image.planes), image.width, image.height, image.color)
    made.set_state(Gst.State.NULL)


def on_core(elements: str, number: int = 0, processes: int = 1) -> str:
    """``elements`` with ``{core}`` filled in: the last cores are for the Python of one process each, and what this process
    starts from now on, decoders above all, keeps off them."""
    if "{core}" not in elements:
        return elements
    cores = sorted(os.sched_getaffinity(0))
    own = cores[len(cores) - processes :]
    os.sched_setaffinity(0, set(cores) - set(own))
    return elements.replace("{core}", str(own[number]))


def passes(label: str, check: Callable[[], str], end: float) -> bool:
    """Runs a check and prints what it saw, or its traceback; one whose time is over is not begun. Whether it did not fail.

    Args:
        label: Its name.
        check: Raises where something is wrong.
        end: ``time.monotonic()`` from which on none is begun.
    """
    began = time.monotonic()
    if began > end:
        print(f"-- {label}: not begun, the time is over", flush=True)
        return True
    try:
        print(f"ok {label}: {check()} ({time.monotonic() - began:.1f} s)", flush=True)
    except BaseException as error:
        traceback.print_exc()
        print(f"FAILED {label} ({time.monotonic() - began:.1f} s): {type(error).__name__}: {error}", flush=True)
        return False
    return True


def begin() -> None:
    """GStreamer and our elements, before anything uses the GPU.

    ``BENCH_CONTEXT=own``: decoders keep a context of their own. ``BENCH_SCHED=blocking``: threads that wait for the GPU sleep.
    """
    Gst.init(None)
    if os.environ.get("BENCH_SCHED") == "blocking":
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxSetFlags_v2(0, 4)
    if os.environ.get("BENCH_CONTEXT") == "own":
        cuda_context.announce = lambda element, index: False
    gstinfer.register()


def counts(made: Any, streams: int) -> list[int]:
    """Frames that reached each sink."""
    return [made.get_by_name(f"sink{i}").get_property("stats").get_value("rendered") for i in range(streams)]


def fill(made: Any) -> float:
    """Mean frames a batch so far; 0 where nothing is inferred."""
    element = next((e for e in made.children if e.get_factory().get_name() == "pyinfer"), None)
    return 0.0 if element is None else float(element.get_property("stats").get_value("batch-fill"))


def measure(streams: int, elements: str, frames: int, limit: float, warm: int = 60) -> Rate:
    """Steady state: from the moment all streams have ``warm`` frames until the slowest has ``frames`` more, or a limit.

    Args:
        streams: Branches.
        elements: Between decoder and sink.
        frames: Of the slowest stream.
        limit: Seconds.
        warm: Frames of each stream that do not count.
    """
    made = pipeline(streams, elements)
    bus = made.get_bus()
    made.set_state(Gst.State.PLAYING)
    error = ""

    def failed() -> bool:
        nonlocal error
        message = bus.pop_filtered(Gst.MessageType.ERROR | Gst.MessageType.EOS)
        if message is not None and message.type == Gst.MessageType.ERROR:
            error = message.parse_error()[0].message
        return message is not None

    patience = time.monotonic() + 120
    while min(counts(made, streams)) < warm and not failed() and time.monotonic() < patience:
        time.sleep(0.02)
    began, first, cpu = time.monotonic(), counts(made, streams), _cpu()
    last = first
    while not error and time.monotonic() - began < limit:
        time.sleep(0.05)
        last = counts(made, streams)
        if min(n - f for n, f in zip(last, first)) >= frames or failed():
            break
    seconds, cpu = time.monotonic() - began, _cpu() - cpu
    done = sum(last) - sum(first)
    made.set_state(Gst.State.NULL)
    return Rate(done / seconds, cpu / max(1, done), min(n - f for n, f in zip(last, first)), error)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
