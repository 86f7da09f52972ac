"""``gstinfer run`` itself at full speed: many streams of one clip, in one process or in several, as the command makes them.

    python benchmarks/gpu/product.py [--net yolo26s] [--streams 32] [--workers 1,2] [--frames 3000] [--limit 20]
        [--set KEY=VALUE ...]

Steady state: from the moment all streams have some frames until the slowest has ``--frames`` more, or the limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from typing import Any

from common import CLIP

HERE = os.path.dirname(os.path.abspath(__file__))
WARM = 60


def frames(running: Any) -> list[int]:
    """Of each stream."""
    return [int(row["frames"]) for row in running.report()["streams"]]


def measure(running: Any, least: int, limit: float) -> tuple[float, int]:
    """(frames a second of all streams, frames of the slowest); the job is stopped."""
    thread = threading.Thread(target=running.run)
    thread.start()
    patience = time.monotonic() + 180
    while thread.is_alive() and time.monotonic() < patience and min(frames(running)) < WARM:
        time.sleep(0.05)
    # A worker tells of its streams now and then: what is told then belongs to that moment.
    began, first = _moment(running)
    last, ended = first, began
    while thread.is_alive() and ended - began < limit and min(b - a for a, b in zip(first, last)) < least:
        time.sleep(0.2)
        ended, last = _moment(running)
    running.stop()
    thread.join(60)
    return (sum(last) - sum(first)) / max(1e-9, ended - began), min(b - a for a, b in zip(first, last))


def _moment(running: Any) -> tuple[float, list[int]]:
    """Waits until something new was told."""
    before = frames(running)
    patience = time.monotonic() + 5
    while (now := frames(running)) == before and time.monotonic() < patience:
        time.sleep(0.005)
    return time.monotonic(), now


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="yolo26s")
    parser.add_argument("--model", default=f"{HERE}/networks.py:TableModel")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--input", default=CLIP)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    os.environ["BENCH_NET"] = options.net
    from gstinfer.app.session import Job, Session
    from gstinfer.app.workers import Workers

    for workers in map(int, options.workers.split(",")):
        job = Job([options.input] * options.streams, options.model, device=options.device, settings=options.settings)
        running: Any = Session(job) if workers == 1 else Workers(job, workers)
        rate, slowest = measure(running, options.frames, options.limit)
        bad = [row["error"] for row in running.report()["streams"] if row["error"]]
        print(
            f"gstinfer run, {options.net}, {options.streams} streams, {workers} processes: {rate:.0f} fps, slowest stream "
            f"{slowest} frames{'; ' + str(bad[:2]) if bad else ''}",
            flush=True,
        )


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
