"""Python's time of drawing 20 objects on a 1080p frame: what the CPU draws, and what a GPU is told.

    python benchmarks/overlay.py [--frames N]

The kernel and its launch are left out. Objects move and their confidences change from frame to frame. Each kind is timed
frame after frame, and with 5 ms of sleep before each frame, as a stream has them.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from gstinfer.image import FORMATS, Device, Image
from gstinfer.overlay import Overlay, Style
from gstinfer.overlay import draw as draw_module
from gstinfer.overlay.cuda import CudaEngine, Slot
from gstinfer.overlay.cuda_canvas import CudaCanvas
from gstinfer.results import Detections, FrameResults, Mask

OBJECTS = 20
PAUSE = 0.005


class Idle:
    """A backend that launches nothing."""

    def slot(self, size: int) -> Slot:
        table = np.zeros(size, np.uint8)
        return Slot(table, table, table)

    def run(self, slot: Slot, size: int, samples: int, height: int, planes: int) -> Any:
        return SimpleNamespace(synchronize=lambda: None)


class Plane:
    """Stands for a plane in CUDA memory."""

    def __init__(self, pixels: np.ndarray) -> None:
        address = pixels.__array_interface__["data"][0]
        self.__cuda_array_interface__ = {"data": (address, False), "strides": pixels.strides}
        self.pixels = pixels

    def keep_until(self, event: Any) -> None:
        pass


def scene(number: int, rich: bool) -> FrameResults:
    """Twenty boxes that move with the frame's number, with labels; with ``rich`` masks and keypoints too."""
    index = np.arange(OBJECTS)
    x, y = (index * 397 + number * 7) % 2020 - 50.0, (index * 211 + number * 3) % 980 - 20.0
    found = np.stack([x, y, x + 60 + index * 11, y + 50 + index * 9], 1).astype(np.float32)
    confidence = 0.5 + (index * 7 + number * 3) % 50 / 100
    detections = Detections(found, confidence, index % 8, label=[f"class {k % 8}" for k in index.tolist()])
    if rich:
        mask = np.hypot(*(np.mgrid[:70, :90] - np.array([35, 45])[:, None, None])) < 34
        detections.mask = [Mask(int(b[0]), int(b[1]), mask.copy()) for b in found]
        angle = np.arange(17) * 2.4
        circle = np.stack([np.cos(angle), np.sin(angle)], -1) * (np.arange(17) / 17)[:, None] * 60
        middle = (found[:, None, :2] + found[:, None, 2:]) / 2
        points = np.concatenate([circle + middle, np.ones((OBJECTS, 17, 1))], -1)
        detections.keypoints = points.astype(np.float32)
    return FrameResults(detections=detections)


def picture(device: Device) -> Image:
    planes: Any = tuple(np.full(shape, 100, np.uint8) for shape in FORMATS["NV12"].plane_shapes(1920, 1080))
    if device.is_cuda:
        planes = tuple(map(Plane, planes))
    return Image("NV12", planes, 1920, 1080, device=device)


def times(image: Image, scenes: list[FrameResults], pause: float) -> np.ndarray:
    """Milliseconds of drawing each scene."""
    overlay, style, found = Overlay(), Style(), []
    for results in [*scenes, *scenes]:
        time.sleep(pause)
        began = time.perf_counter()
        overlay.draw(image, results, style)
        found.append(time.perf_counter() - began)
    return np.array(found[len(scenes) :]) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=300)
    frames = parser.parse_args().frames
    engine, plain = CudaEngine(Idle()), draw_module.canvas_of
    draw_module.canvas_of = lambda image: CudaCanvas(image, engine) if image.device.is_cuda else plain(image)
    for rich in (False, True):
        scenes = [scene(number, rich) for number in range(frames)]
        for device in (Device(), Device("cuda")):
            hot, cold = (np.median(times(picture(device), scenes, pause)) for pause in (0, PAUSE))
            what = "boxes, labels, masks, keypoints" if rich else "boxes and labels"
            print(f"{what}, {'system' if device.kind == 'cpu' else 'CUDA'} memory: {hot:.3f} ms, after a pause {cold:.3f} ms")


if __name__ == "__main__":
    main()
