"""What the tracker costs a frame: python benchmarks/tracker.py

Objects move at random in 1920x1080, each stream with its own; the time is that of ``ByteTrack.update`` alone. The last
column compares with a batch of one stream, so that it holds on any machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.results import Detections
from gstinfer.trackers.bytetrack import ByteTrack


def measure(streams: int, objects: int, frames: int) -> tuple[float, float]:
    """Median and least microseconds a frame."""
    rng = np.random.default_rng(0)
    picture = Image.from_array(np.zeros((1080, 1920, 3), np.uint8))
    place = rng.uniform(0, 1, (streams, objects, 2)) * [1800, 960]
    speed, size = rng.normal(0, 3, place.shape), rng.uniform(40, 120, place.shape)
    tracker, spent = ByteTrack(), []
    for number in range(frames):
        low = place + speed * number + rng.normal(0, 1, place.shape)
        xyxy = np.concatenate([low, low + size], 2).astype(np.float32)
        confidence = rng.uniform(0.3, 1, (streams, objects)).astype(np.float32)
        found = [Detections(b, c) for b, c in zip(xyxy, confidence)]
        batch = [Frame(picture, str(k), round(number * 1e9 / 30), number) for k in range(streams)]
        start = time.perf_counter()
        tracker.update(found, batch)
        spent.append((time.perf_counter() - start) / streams * 1e6)
    settled = spent[frames // 5 :]
    return float(np.median(settled)), min(settled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    frames = parser.parse_args().frames
    print(f"{'streams':>8}{'objects':>9}{'median us':>12}{'least us':>11}{'of one stream':>15}")
    for objects in (0, 20, 300):
        alone = None
        for streams in (1, 16, 48):
            median, least = measure(streams, objects, frames if objects < 300 else frames // 4)
            alone = alone or median
            print(f"{streams:>8}{objects:>9}{median:>12.1f}{least:>11.1f}{median / alone:>15.2f}")


if __name__ == "__main__":
    main()
