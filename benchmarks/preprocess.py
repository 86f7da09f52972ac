"""Times our CPU preprocessing against the usual way: convert to RGB, resize, letterbox, transpose, scale.

    python benchmarks/preprocess.py [--rounds 100]

Prints medians and their ratio for 1080p frames into a 640x640 float32 input. Both run in turns, in one process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import cv2
import numpy as np

from gstinfer.image import ColorInfo, Image
from gstinfer.preprocess import Preprocessing, prepare

WIDTH, HEIGHT, SIDE = 1920, 1080, 640


def frames() -> dict[str, tuple[np.ndarray, Image, int]]:
    """By format: the memory as OpenCV wants it, the same memory as an Image, and OpenCV's conversion."""
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT * 3 // 2, WIDTH), np.uint8)
    memory = cv2.GaussianBlur(noise, (0, 0), 3)
    luma, quarter = memory[:HEIGHT], (HEIGHT // 2, WIDTH // 2)
    chroma = memory[HEIGHT:].reshape(-1)
    size = quarter[0] * quarter[1]
    nv12 = Image("NV12", (luma, chroma.reshape(*quarter, 2)), WIDTH, HEIGHT)
    i420 = Image("I420", (luma, chroma[:size].reshape(quarter), chroma[size:].reshape(quarter)), WIDTH, HEIGHT)
    hd = Image("NV12", nv12.planes, WIDTH, HEIGHT, ColorInfo("bt709"))
    return {
        "I420": (memory, i420, cv2.COLOR_YUV2RGB_I420),
        "NV12": (memory, nv12, cv2.COLOR_YUV2RGB_NV12),
        "NV12 bt709": (memory, hd, cv2.COLOR_YUV2RGB_NV12),
    }


def usual(memory: np.ndarray, code: int) -> np.ndarray:
    """What most Python code does with a decoded frame."""
    rgb = cv2.cvtColor(memory, code)
    ratio = min(SIDE / WIDTH, SIDE / HEIGHT)
    width, height = round(WIDTH * ratio), round(HEIGHT * ratio)
    small = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR)
    dx, dy = SIDE - width, SIDE - height
    sides = (dy // 2, dy - dy // 2, dx // 2, dx - dx // 2)
    boxed = cv2.copyMakeBorder(small, *sides, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    return (np.ascontiguousarray(boxed.transpose(2, 0, 1)).astype(np.float32) / 255)[None]


def median_times(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each call, taken in turns so that a busy machine hits all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 5):
        for call, found in zip(calls, times):
            start = time.perf_counter()
            call()
            if number >= 5:
                found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    out = np.empty((1, 3, SIDE, SIDE), np.float32)
    print(f"{'1080p frame':14}{'usual ms':>10}{'fast ms':>10}{'ratio':>8}{'exact ms':>10}{'ratio':>8}")
    for name, (memory, image, code) in frames().items():
        calls: list[Callable[[], object]] = [lambda m=memory, c=code: usual(m, c)]  # type: ignore[misc]
        for quality in ("fast", "exact"):
            spec = Preprocessing((SIDE, SIDE), quality=quality)
            calls.append(lambda i=image, s=spec: prepare([i], s, out=out))  # type: ignore[misc]
        slow, fast, exact = (seconds * 1e3 for seconds in median_times(calls, rounds))
        print(f"{name:14}{slow:10.2f}{fast:10.2f}{fast / slow:8.2f}{exact:10.2f}{exact / slow:8.2f}")


if __name__ == "__main__":
    main()
