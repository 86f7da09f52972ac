"""What decoding costs a frame, suppression included: python benchmarks/heads.py

Outputs have the shapes of the usual networks at 640x640 and hold 0, 20 or 300 objects of 80 classes, each seen by ten
neighbouring candidates where the family leaves suppression to us. Last comes the copying of the same bytes, so that the
table says something on any machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gstinfer.geometry import ImageTransform
from gstinfer.heads import NetworkInfo, TensorInfo, choose
from gstinfer.heads.base import Head

SIZE = (640, 640)
NEIGHBOURS = 10
CLASSES = 80
Outputs = dict[str, np.ndarray[Any, Any]]


def objects(rng: np.random.Generator, count: int, neighbours: int) -> tuple[Any, Any, Any]:
    """Boxes ``[count*neighbours,4]`` (cx, cy, w, h), scores and classes."""
    centre = rng.uniform(40, 600, (count, 1, 2)) + rng.normal(0, 2, (count, neighbours, 2))
    size = rng.uniform(20, 70, (count, 1, 2)) + rng.normal(0, 2, (count, neighbours, 2))
    score = rng.uniform(0.5, 0.9, count * neighbours)
    return np.concatenate([centre, size], -1).reshape(-1, 4), score, rng.integers(0, CLASSES, count).repeat(neighbours)


def raw(rng: np.random.Generator, count: int, extra: int = 0, classes: int = CLASSES) -> np.ndarray[Any, Any]:
    rows = rng.uniform(0, 0.1, (8400, 4 + classes + extra))
    boxes, scores, class_id = objects(rng, count, NEIGHBOURS)
    place = rng.permutation(8400)[: len(boxes)]
    rows[place, :4] = boxes
    rows[place, 4 + class_id % classes] = scores
    return np.ascontiguousarray(rows.T[None], np.float32)


def finished(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    rows = np.zeros((1, 300, 6), np.float32)
    boxes, scores, class_id = objects(rng, count, 1)
    rows[0, :count, :4] = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    rows[0, :count, 4], rows[0, :count, 5] = scores, class_id
    return rows


def yolov5(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    rows = rng.uniform(0, 0.05, (1, 25200, 5 + CLASSES))
    boxes, scores, class_id = objects(rng, count, NEIGHBOURS)
    place = rng.permutation(25200)[: len(boxes)]
    rows[0, place, :4], rows[0, place, 4], rows[0, place, 5 + class_id] = boxes, 0.95, scores
    return rows.astype(np.float32)


def yolox(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    rows = yolov5(rng, count)[:, :8400].copy()
    boxes, scores, class_id = objects(rng, count, NEIGHBOURS)
    place = rng.permutation(8400)[: len(boxes)]
    rows[0, :, 4] = 0.01
    rows[0, place, :4], rows[0, place, 4], rows[0, place, 5 + class_id] = boxes, 0.95, scores
    return rows


def gfl(rng: np.random.Generator, count: int) -> Outputs:
    outputs: Outputs = {}
    left = count
    for stride in (8, 16, 32):
        cells = (640 // stride) ** 2
        scores = rng.uniform(0, 0.1, (1, cells, CLASSES))
        share = min(left * NEIGHBOURS, cells) // NEIGHBOURS
        left -= share
        start = np.arange(share) * (cells // max(share, 1))
        place = (start[:, None] + np.arange(NEIGHBOURS)).ravel() % cells
        scores[0, place, rng.integers(0, CLASSES, share).repeat(NEIGHBOURS)] = rng.uniform(0.5, 0.9, len(place))
        outputs[f"scores{stride}"] = scores.astype(np.float32)
        outputs[f"boxes{stride}"] = rng.normal(0, 2, (1, cells, 44)).astype(np.float32)
    return outputs


def ssd(rng: np.random.Generator, count: int) -> Outputs:
    scores = rng.uniform(0, 0.1, (1, 6000, 90))
    boxes, score, class_id = objects(rng, count, NEIGHBOURS)
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1) / 640
    place = rng.permutation(6000)[: len(boxes)]
    all_boxes = np.zeros((1, 6000, 1, 4), np.float32)
    all_boxes[0, place, 0] = corners[:, [1, 0, 3, 2]]
    scores[0, place, class_id] = score
    return {"scores": scores.astype(np.float32), "boxes": all_boxes}


def detr(rng: np.random.Generator, count: int) -> Outputs:
    logits = rng.normal(-6, 1, (1, 300, CLASSES))
    boxes, _, class_id = objects(rng, count, 1)
    logits[0, np.arange(count), class_id] = 2
    all_boxes = np.full((1, 300, 4), 0.5, np.float32)
    all_boxes[0, :count] = boxes / 640
    return {"pred_boxes": all_boxes, "logits": logits.astype(np.float32)}


def segments(rng: np.random.Generator, count: int) -> Outputs:
    rows = raw(rng, count, 32)
    return {"output0": rows, "output1": rng.normal(0, 1, (1, 32, 160, 160)).astype(np.float32)}


FAMILIES: Mapping[str, tuple[Callable[[np.random.Generator, int], Any], dict[str, str]]] = {
    "yolo": (raw, {}),
    "yolo-e2e": (finished, {}),
    "yolov5": (yolov5, {}),
    "yolox": (yolox, {}),
    "yolo-seg": (segments, {}),
    "yolo-pose": (lambda rng, n: raw(rng, n, 51, 1), {"kpt_shape": "[17, 3]"}),
    "yolo-obb": (lambda rng, n: raw(rng, n, 1), {}),
    "gfl": (gfl, {}),
    "ssd": (ssd, {}),
    "detr": (detr, {}),
}


def best(work: Callable[[], object], seconds: float) -> float:
    """Least milliseconds of one call."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def made(name: str, count: int) -> tuple[Head, Outputs]:
    build, metadata = FAMILIES[name]
    built = build(np.random.default_rng(count), count)
    outputs = built if isinstance(built, dict) else {"output0": built}
    info = NetworkInfo(
        (TensorInfo("images", (1, 3, 640, 640)),),
        tuple(TensorInfo(key, array.shape) for key, array in outputs.items()),
        metadata,
    )
    return choose(info, name).head, outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="spent on each number")
    seconds = parser.parse_args().seconds
    transform = ImageTransform.plan((1920, 1080), SIZE)
    print(f"{'head':<11}{'0 objects':>11}{'20':>9}{'300':>9}{'found':>7}   copy of the outputs  (ms a frame, least)")
    for name in FAMILIES:
        row, found = [], 0
        for count in (0, 20, 300):
            head, outputs = made(name, count)
            row.append(best(lambda: head.decode(outputs, [transform], head.thresholds), seconds))  # noqa: B023
            found = len(head.decode(outputs, [transform], head.thresholds)[0])  # type: ignore[arg-type]
        copy = best(lambda: [array.copy() for array in outputs.values()], seconds / 3)  # noqa: B023
        print(f"{name:<11}{row[0]:>11.3f}{row[1]:>9.3f}{row[2]:>9.3f}{found:>7}{copy:>13.3f}")


if __name__ == "__main__":
    main()
