"""Metadata on plain GStreamer: milliseconds to write results on a buffer and to read them back, by number of objects.

Budget: 2 ms for write and read of 300 objects, each with box, confidence, class, label and track.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst

Gst.init(None)

import numpy as np

from gstinfer import Detections, FrameResults, Mask
from gstinfer.hosts.metas import MetaCodec, analytics, carrier

ROUNDS = 200
SIZE = (1920, 1080)


def median_ms(work: Callable[[], object]) -> float:
    """Median time of a call in ms."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def objects(count: int, masks: bool) -> FrameResults:
    """A frame's worth of tracked objects."""
    rng = np.random.default_rng(count)
    corner = rng.uniform(0, 900, (count, 2))
    xyxy = np.concatenate([corner, corner + rng.uniform(20, 100, (count, 2))], 1)
    bitmap = rng.random((60, 60)) > 0.5
    return FrameResults(
        "benchmark",
        True,
        Detections(
            xyxy,
            rng.random(count),
            rng.integers(0, 80, count),
            np.arange(count),
            [f"class {n % 80}" for n in range(count)],
            mask=[Mask(int(x), int(y), bitmap) for x, y in corner] if masks else None,
        ),
    )


def measure(mode: str, results: FrameResults) -> tuple[float, float, float]:
    """ms to write on a fresh buffer, to write again on the same one, and to read."""
    codec = MetaCodec(mode)
    buffers = [Gst.Buffer.new_allocate(None, 16, None) for _ in range(ROUNDS)]
    fresh = iter(buffers)
    write = median_ms(lambda: codec.write(next(fresh), results, SIZE))
    again = median_ms(lambda: codec.write(buffers[0], results, SIZE))
    read = median_ms(lambda: carrier.read(buffers[0], SIZE))
    return write, again, read


def main() -> None:
    print(f"{Gst.version_string()}, median of {ROUNDS}, ms; budget of write + read: 2 ms at 300 objects")
    print(f"{'objects':>8} {'masks':>6} {'write-meta':>11} {'write':>7} {'again':>7} {'read':>7} {'write+read':>11}")
    modes = ["carrier", "roi"] + (["analytics"] if analytics.available() else [])
    for count in (0, 20, 300):
        for masks in (False, True):
            results = objects(count, masks)
            for mode in modes:
                write, again, read = measure(mode, results)
                print(
                    f"{count:>8} {'yes' if masks else 'no':>6} {mode:>11} {write:>7.3f} {again:>7.3f} {read:>7.3f} "
                    f"{write + read:>11.3f}"
                )


if __name__ == "__main__":
    main()
