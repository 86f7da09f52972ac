"""The same pipelines in several processes, measured together."""

from __future__ import annotations

import multiprocessing
import multiprocessing.sharedctypes
import os
import resource
import time
from typing import Any

import torch
from common import Gst, Rate, begin, counts, fill, on_core, pipeline
from threads import shown, thread_seconds

SLICE = 0.05


def measure_workers(workers: int, streams: int, elements: str, frames: int, limit: float, warm: int = 60) -> Rate:
    """As ``common.measure``, the streams dealt out over processes; ``cpu`` is of all of them.

    Args:
        workers: Processes.
        streams: Of all processes.
        elements: Between decoder and sink.
        frames: Of the slowest stream.
        limit: Seconds.
        warm: Frames of each stream that do not count.
    """
    context = multiprocessing.get_context("spawn")
    shared = context.Array("q", streams, lock=False)
    times = context.Array("d", workers, lock=False)
    phase, errors = context.Value("i", 0, lock=False), context.SimpleQueue()
    parts = [range(n, streams, workers) for n in range(workers)]
    processes = [
        context.Process(target=_work, args=(n, workers, parts[n], elements, shared, times, phase, errors))
        for n in range(workers)
    ]
    for process in processes:
        process.start()

    def failed() -> bool:
        return not errors.empty() or not all(process.is_alive() for process in processes)

    patience = time.monotonic() + 150
    while min(shared) < warm and not failed() and time.monotonic() < patience:
        time.sleep(0.02)
    phase.value = 1
    time.sleep(2 * SLICE)
    began, first, free = time.monotonic(), list(shared), torch.cuda.mem_get_info()[0]
    last = first
    while not failed() and time.monotonic() - began < limit:
        time.sleep(0.05)
        last = list(shared)
        if min(n - f for n, f in zip(last, first)) >= frames:
            break
    seconds, last = time.monotonic() - began, list(shared)
    grown = (free - torch.cuda.mem_get_info()[0]) / 2**20
    phase.value = 2
    for process in processes:
        process.join(30)
        if process.is_alive():
            process.kill()
    done = sum(last) - sum(first)
    print(f"GPU memory of all processes while measuring: {grown:+.0f} MiB", flush=True)
    error = errors.get() if not errors.empty() else ""
    return Rate(done / seconds, sum(times) / max(1, done), min(n - f for n, f in zip(last, first)), error)


def _work(
    number: int, workers: int, part: Any, elements: str, shared: Any, times: Any, phase: Any, errors: Any
) -> None:
    try:
        _play(number, part, on_core(elements, number, workers), shared, times, phase, errors)
    except BaseException as error:
        errors.put(repr(error))
        raise


def _play(number: int, part: Any, elements: str, shared: Any, times: Any, phase: Any, errors: Any) -> None:

    begin()
    made = pipeline(len(part), elements)
    bus = made.get_bus()
    made.set_state(Gst.State.PLAYING)
    cpu, threads, done = 0.0, thread_seconds(), 0
    while phase.value < 2:
        time.sleep(SLICE)
        for place, count in zip(part, counts(made, len(part))):
            shared[place] = count
        message = bus.pop_filtered(Gst.MessageType.ERROR | Gst.MessageType.EOS)
        if message is not None:
            errors.put(message.parse_error()[0].message if message.type == Gst.MessageType.ERROR else "end of the clip")
            break
        usage = resource.getrusage(resource.RUSAGE_SELF)
        if phase.value == 0:
            cpu, threads, done = usage.ru_utime + usage.ru_stime, thread_seconds(), sum(counts(made, len(part)))
        times[number] = usage.ru_utime + usage.ru_stime - cpu
    if number == 0:
        frames = sum(counts(made, len(part))) - done
        spent = shown(thread_seconds() - threads, frames)
        print(f"process 0: {fill(made):.1f} frames a batch; threads, us of CPU a frame: {spent}", flush=True)
    made.set_state(Gst.State.NULL)
    # Destructors of the GPU's libraries take seconds.
    os._exit(0)
