"""Networks for speed: Ultralytics architectures with random weights, and 20 objects a frame from a table."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import numpy as np

from gstinfer.frames import FrameBatch
from gstinfer.models import torch as torch_models
from gstinfer.models.torch import TorchModel

os.environ.setdefault("YOLO_OFFLINE", "1")
if sizes := os.environ.get("BENCH_SIZES"):
    # Fewer graphs load faster.
    torch_models.GRAPH_SIZES = tuple(map(int, sizes.split(",")))

OBJECTS, PERIOD = 20, 600


def _yolo(name: str) -> Any:
    import torch
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(1)
    net = DetectionModel(f"{name}.yaml", ch=3, nc=80, verbose=False).eval()
    net.end2end = True
    net.fuse(verbose=False)
    for part in net.modules():
        if hasattr(part, "export"):
            # Exported networks return the detections alone.
            part.export = True
            _keep_anchors(part)
    net.metadata = {"task": "detect", "imgsz": [640, 640], "names": dict(enumerate(map(str, range(80)))), "end2end": True}
    return net


def _keep_anchors(head: Any) -> None:
    """Lets the head make its anchors once. It makes them anew for every batch size, and frees those that the graphs of
    other sizes read."""
    kept: dict[Any, Any] = {}
    decode = head._get_decode_boxes

    def fixed(outputs: Any) -> Any:
        feature = outputs["feats"][0]
        key = feature.device, feature.dtype, feature.shape[2:]
        if key in kept:
            head.anchors, head.strides = kept[key]
            head.shape = feature.shape
        else:
            head.shape = None
        boxes = decode(outputs)
        kept[key] = head.anchors, head.strides
        return boxes

    head._get_decode_boxes = fixed


def yolo26n() -> Any:
    """End-to-end detector, nano."""
    return _yolo("yolo26n")


def yolo26s() -> Any:
    """End-to-end detector, small."""
    return _yolo("yolo26s")


def table() -> np.ndarray:
    """Candidates ``[PERIOD,OBJECTS,7]`` in pixels of a 640 x 640 input: each walks its own slow ellipse."""
    rng = np.random.default_rng(7)
    phase, speed = rng.uniform(0, 6.28, OBJECTS), rng.integers(1, 4, OBJECTS)
    centre, reach = rng.uniform((90, 190), (550, 450), (OBJECTS, 2)), rng.uniform(10, 60, (OBJECTS, 2))
    half = rng.uniform(8, 40, (OBJECTS, 2))
    turn = 2 * np.pi * np.arange(PERIOD)[:, None] * speed / PERIOD + phase
    middle = centre + reach * np.stack([np.cos(turn), np.sin(turn)], -1)
    rows = np.zeros((PERIOD, OBJECTS, 7), np.float32)
    rows[..., :2], rows[..., 2:4] = middle - half, middle + half
    rows[..., 4] = np.linspace(0.9, 0.5, OBJECTS)
    rows[..., 5] = rng.integers(0, 80, OBJECTS)
    rows[..., 6] = 1
    return rows


class TableModel(TorchModel):
    """The network runs as it is; the table's candidates take the place of the first it gives, before they are decoded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(f"{os.path.abspath(__file__)}:{os.environ.get('BENCH_NET', 'yolo26s')}", **options)
        self._table = table()
        self._numbers: deque[list[int]] = deque()

    def submit(self, batch: FrameBatch) -> Any:
        if self._engine is not None:
            self._numbers.append([frame.sequence % PERIOD for frame in batch])
        return super().submit(batch)

    def _finish(self, results: Any, transforms: Any) -> Any:
        numbers = self._numbers.popleft()
        with results as arrays:
            rows = arrays["rows"]
            rows[:, :OBJECTS] = self._table[numbers]
            return self._decoder.finish(rows, transforms, self.thresholds)
