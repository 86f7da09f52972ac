"""Whether anything grows: memory, threads and open files over many frames, model exchanges, and starts and stops.

    .venv/bin/python benchmarks/soak.py MODEL OTHER_MODEL [--frames 3000] [--swaps 50] [--cycles 200] [--long 40000]
        [--returns 20]

MODEL and OTHER_MODEL are exchanged for each other. Each row tells what grew between the first tenth, when everything is warm,
and the end; a cross marks what is over its budget (30 MB; no thread, no file; 200 ms without a frame).
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import gstinfer

MEGABYTES, GAP = 30.0, 0.2


def state() -> tuple[float, int, int]:
    """(resident MB, threads, open files) of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


class Table:
    """Rows as they come, and whether all are within budget."""

    good = True

    def row(self, name: str, before: tuple[float, int, int], after: tuple[float, int, int], more: str = "") -> None:
        grown = [a - b for a, b in zip(after, before)]
        bad = grown[0] >= MEGABYTES or grown[1] > 0 or grown[2] > 0
        self.good &= not bad
        text = f"{grown[0]:+7.1f} MB  {grown[1]:+3d} threads  {grown[2]:+3d} files"
        print(f"{name:42s} {text}  {'✗' if bad else ' '} {more}", flush=True)

    def gap(self, name: str, seconds: float) -> None:
        bad = seconds > GAP
        self.good &= not bad
        print(f"{name:42s} {1e3 * seconds:7.0f} ms longest gap  {'✗' if bad else ' '}", flush=True)


def chain(model: str, frames: int, size: str, key: str = "", name: str = "") -> str:
    shared = f"model-instance-id={key}" if key else ""
    return (
        f"videotestsrc num-buffers={frames} pattern=blue ! video/x-raw,format=I420,{size} ! "
        f"pyinfer {f'name={name}' if name else ''} model={model} {shared} ! pytrack ! pyoverlay ! "
        "fakesink sync=false async=false"
    )


def finish(pipeline, seconds: float = 3600) -> None:
    from gi.repository import Gst

    message = pipeline.get_bus().timed_pop_filtered(int(seconds * Gst.SECOND), Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message is None or message.type == Gst.MessageType.ERROR:
        sys.exit("it does not end" if message is None else message.parse_error()[0].message)


def frames(table: Table, model: str, count: int, size: str, branches: int, name: str) -> None:
    """So many frames through so many branches that share a model."""
    from gi.repository import Gst

    each = count // branches
    pipeline = Gst.parse_launch(" ".join(chain(model, each, size, "soak", f"i{n}") for n in range(branches)))
    seen = [0]
    warm: list[tuple[float, int, int]] = []
    last: list[tuple[float, int, int]] = []
    lock = threading.Lock()

    def probe(pad, info):
        with lock:
            seen[0] += 1
            if seen[0] == max(1, count // 10):
                warm.append(state())
            elif seen[0] == count - branches:
                last.append(state())
        return Gst.PadProbeReturn.OK

    for n in range(branches):
        pipeline.get_by_name(f"i{n}").get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, probe)
    began = time.perf_counter()
    pipeline.set_state(Gst.State.PLAYING)
    finish(pipeline)
    # Streams that ended meanwhile have given their threads back; that is no growth.
    table.row(name, warm[0], last[0], f"{seen[0]} frames, {seen[0] / (time.perf_counter() - began):.0f} fps")


def swaps(table: Table, models: list[str], count: int) -> None:
    """So many exchanges under a stream that runs, and the longest time without a frame."""
    from gi.repository import Gst

    pipeline = Gst.parse_launch(
        "videotestsrc is-live=true pattern=blue ! video/x-raw,format=I420,width=1280,height=720,framerate=30/1 ! "
        f"pyinfer name=infer model={models[0]} on-late=wait ! fakesink sync=false"
    )
    element, done, times = pipeline.get_by_name("infer"), threading.Semaphore(0), [0.0]
    failed: list[str] = []

    def updated(_, status, spec):
        failed.extend([spec] if status else [])
        done.release()

    def probe(pad, info):
        times.append(time.monotonic())
        return Gst.PadProbeReturn.OK

    element.connect("model-updated", updated)
    element.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, probe)
    pipeline.set_state(Gst.State.PLAYING)
    time.sleep(1)
    warm = state()
    for number in range(count):
        element.set_property("model", models[(number + 1) % 2])
        done.acquire()
        time.sleep(0.1)
        if number == count // 10:
            warm = state()
    after = state()
    pipeline.set_state(Gst.State.NULL)
    if failed:
        sys.exit(f"{failed[0]} could not be loaded")
    table.row(f"{count} model exchanges", warm, after)
    table.gap("  the stream meanwhile", max(b - a for a, b in pairwise(times[10:])))


def cycles(table: Table, model: str, count: int) -> None:
    """So many starts and stops."""
    from gi.repository import Gst

    warm = state()
    for number in range(count):
        pipeline = Gst.parse_launch(chain(model, 3, "width=320,height=240"))
        pipeline.set_state(Gst.State.PLAYING)
        finish(pipeline, 60)
        del pipeline
        if number == count // 10:
            warm = state()
    time.sleep(1)
    table.row(f"{count} starts and stops", warm, state())


def returns(table: Table, model: str, count: int, source: str, name: str) -> None:
    """A source ``blue`` that ends after ten frames and comes back so often, beside two others."""
    from gstinfer.app.session import Job, Session

    live = "width=64&height=64&live=1&fps=30"
    session = Session(Job([f"test:red?{live}", f"test:green?{live}", source], model))
    last: dict[str, tuple[int, float]] = {}
    longest = [0.0]

    def tick(_):
        now = time.monotonic()
        for branch in session.branches[:2]:
            name = branch.source.stream_id
            seen, since = last.get(name, (0, now))
            if seen:
                longest[0] = max(longest[0], now - since)
            if branch.counts.frames != seen:
                last[name] = (branch.counts.frames, now)

    thread = threading.Thread(target=session.run, args=(tick,))
    thread.start()
    wait_until(lambda: session.find("blue").state == "ended")
    warm = state()
    for _ in range(count):
        session.add_source(source, "blue")
        wait_until(lambda: session.find("blue").state == "ended")
        if session.find("blue").counts.frames != 10:
            sys.exit("a frame of the returning source was lost")
    after = state()
    session.stop()
    thread.join()
    table.row(f"{count} returns of a {name}", warm, after)
    table.gap("  the other streams meanwhile", longest[0])


def video(path: str) -> str:
    """Makes a file of ten frames."""
    from gi.repository import Gst

    made = Gst.parse_launch(f"videotestsrc num-buffers=10 pattern=blue ! x264enc ! mp4mux ! filesink location={path}")
    made.set_state(Gst.State.PLAYING)
    finish(made)
    return path


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("it hangs")
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("other")
    for name, default in (("frames", 3000), ("swaps", 50), ("cycles", 200), ("long", 40_000), ("returns", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    gstinfer.register()
    table = Table()
    if options.frames:
        name = f"{options.frames} frames of 720p, 4 streams"
        frames(table, options.model, options.frames, "width=1280,height=720", 4, name)
    if options.swaps:
        swaps(table, [options.model, options.other], options.swaps)
    if options.cycles:
        cycles(table, options.model, options.cycles)
    if options.returns:
        returns(table, options.model, options.returns, "test:blue?frames=10", "source")
        with tempfile.TemporaryDirectory() as folder:
            returns(table, options.model, options.returns, video(f"{folder}/blue.mp4"), "file")
    if options.long:
        frames(table, options.model, options.long, "width=64,height=64", 8, f"{options.long} small frames, 8 streams")
    sys.exit(0 if table.good else 1)


if __name__ == "__main__":
    main()
