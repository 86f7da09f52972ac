"""Outputs of networks read the slow and plain way, one candidate after the other: written apart from ``heads``, to check them.

Everything here is in pixels of the input.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.heads.base import NetworkInfo, Thresholds

__all__ = ["READERS", "Candidate", "Facts", "Output", "decode", "suppress"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass
class Candidate:
    """One object.

    Attributes:
        box: x1, y1, x2, y2; of a rotated one cx, cy, w, h.
        score: 0..1.
        class_id: Its class.
        angle: Radians, or None for an upright box.
        points: K times x, y, score.
        coefficients: Of its mask.
    """

    box: NDArray[np.float64]
    score: float
    class_id: int
    angle: float | None = None
    points: NDArray[np.float64] | None = None
    coefficients: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Facts:
    """What the reader of outputs is told.

    Attributes:
        size: (width, height) of the input.
        info: The network.
        names: Its class names, or None.
        layout: ``"channels-first"``, ``"channels-last"`` or ``"auto"``.
        thresholds: What is kept.
    """

    size: tuple[int, int]
    info: NetworkInfo
    names: tuple[str, ...] | None
    layout: str
    thresholds: Thresholds

    def literal(self, key: str) -> Any:
        """A metadata text as a value; None where absent."""
        text = self.info.metadata.get(key)
        try:
            return None if text is None else ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text == "true"


@dataclass
class Output:
    """What a frame's outputs say; ``suppressed`` where the network itself removed what overlaps."""

    candidates: list[Candidate] = field(default_factory=list)
    suppressed: bool = False
    probabilities: NDArray[np.float64] | None = None
    class_map: NDArray[np.int64] | None = None
    prototypes: NDArray[np.float64] | None = None


def decode(family: str, outputs: Arrays, facts: Facts) -> Output | None:
    """The candidates above the threshold, not yet suppressed; None for a family that is not known here."""
    reader = READERS.get(family)
    return None if reader is None else reader({n: np.asarray(o[0], np.float64) for n, o in outputs.items()}, facts)


def suppress(output: Output, thresholds: Thresholds) -> list[Candidate]:
    """The strongest first; each that overlaps a kept one of its class too much goes."""
    ordered = sorted(output.candidates, key=lambda c: -c.score)
    if output.suppressed:
        return ordered[: thresholds.limit]
    kept: list[Candidate] = []
    fallen: list[Candidate] = []
    for candidate in ordered:
        # Among rotated boxes those that fell still make others fall: so does Ultralytics.
        rivals = kept + fallen if candidate.angle is not None else kept
        same = [c for c in rivals if thresholds.class_agnostic or c.class_id == candidate.class_id]
        if candidate.angle is not None:
            falls = any(probable_overlap(candidate, other) >= thresholds.iou for other in same)
        else:
            falls = any(overlap(candidate.box, other.box) > thresholds.iou for other in same)
        (fallen if falls else kept).append(candidate)
    return kept[: thresholds.limit]


def overlap(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Intersection over union of two upright boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def probable_overlap(a: Candidate, b: Candidate) -> float:
    """Of two rotated boxes as Gaussians: one minus their Hellinger distance."""
    first, second = _covariance(a), _covariance(b)
    between = (first + second) / 2
    step = a.box[:2] - b.box[:2]
    determinants = np.linalg.det(first) * np.linalg.det(second)
    far = step @ np.linalg.inv(between) @ step / 8
    shape = math.log(np.linalg.det(between) / math.sqrt(max(determinants, 1e-12))) / 2
    return 1 - math.sqrt(max(0.0, 1 - math.exp(-(far + shape))))


def _covariance(candidate: Candidate) -> NDArray[np.float64]:
    cos, sin = math.cos(candidate.angle or 0), math.sin(candidate.angle or 0)
    turn = np.array([[cos, -sin], [sin, cos]])
    return turn @ np.diag(candidate.box[2:] ** 2 / 12) @ turn.T


def _corners(cx: float, cy: float, w: float, h: float) -> NDArray[np.float64]:
    return np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _rows(outputs: Arrays, facts: Facts, known: int) -> NDArray[np.float64]:
    """The matrix of candidates, one a row."""
    rows = next(o for o in outputs.values() if o.ndim == 2)
    if facts.layout != "auto":
        return rows.T if facts.layout == "channels-first" else rows
    if facts.names is not None:
        wanted = known + len(facts.names)
        return rows if rows.shape[1] == wanted and rows.shape[0] != wanted else rows.T
    return rows.T


def _ultralytics(extra: int, outputs: Arrays, facts: Facts) -> tuple[list[tuple[Candidate, NDArray[np.float64]]], bool]:
    """Candidates with their further columns, and whether the network suppressed them itself."""
    arguments = facts.literal("args")
    finished = facts.literal("end2end") is True or (isinstance(arguments, dict) and arguments.get("nms") is True)
    matrix = next(o for o in outputs.values() if o.ndim == 2)
    untold = extra and facts.layout == "auto" and "task" not in facts.info.metadata
    if untold and matrix.shape[1] == 6 + extra and matrix.shape[0] <= 300:
        finished = True
    found = []
    least = facts.thresholds.confidence
    if finished:
        for row in matrix:
            if row[4] >= least:
                found.append((Candidate(row[:4], float(row[4]), round(float(row[5]))), row[6:]))
        return found, True
    for row in _rows(outputs, facts, 4 + extra):
        classes = row[4 : len(row) - extra]
        if classes.max() >= least:
            best = int(classes.argmax())
            found.append((Candidate(row[:4], float(classes[best]), best), row[len(row) - extra :]))
    return found, False


def _yolo(outputs: Arrays, facts: Facts) -> Output:
    found, finished = _ultralytics(0, outputs, facts)
    return Output([_upright(c, finished) for c, _ in found], finished)


def _upright(candidate: Candidate, finished: bool) -> Candidate:
    if not finished:
        candidate.box = _corners(*candidate.box)
    return candidate


def _yolo_e2e(outputs: Arrays, facts: Facts) -> Output:
    rows = next(o for o in outputs.values() if o.ndim == 2)
    kept = [row for row in rows if row[4] >= facts.thresholds.confidence]
    return Output([Candidate(row[:4], float(row[4]), round(float(row[5]))) for row in kept], True)


def _yolo_seg(outputs: Arrays, facts: Facts) -> Output:
    prototypes = next(o for o in outputs.values() if o.ndim == 3)
    found, finished = _ultralytics(len(prototypes), outputs, facts)
    for candidate, rest in found:
        candidate.coefficients = rest
    return Output([_upright(c, finished) for c, _ in found], finished, prototypes=prototypes)


def _yolo_pose(outputs: Arrays, facts: Facts) -> Output:
    shape = facts.literal("kpt_shape")
    if shape is None:
        columns = min(next(o for o in outputs.values() if o.ndim == 2).shape)
        shape = ((columns - 5) // 3, 3)
    found, finished = _ultralytics(shape[0] * shape[1], outputs, facts)
    for candidate, rest in found:
        points = rest.reshape(shape)
        candidate.points = points if shape[1] == 3 else np.column_stack([points, np.ones(len(points))])
    return Output([_upright(c, finished) for c, _ in found], finished)


def _yolo_obb(outputs: Arrays, facts: Facts) -> Output:
    found, finished = _ultralytics(1, outputs, facts)
    for candidate, rest in found:
        candidate.angle = float(rest[0])
    return Output([c for c, _ in found], finished)


def _yolov5(outputs: Arrays, facts: Facts) -> Output:
    found = []
    for row in next(o for o in outputs.values() if o.ndim == 2):
        scores = row[4] * row[5:]
        if scores.max() >= facts.thresholds.confidence:
            found.append(Candidate(_corners(*row[:4]), float(scores.max()), int(scores.argmax())))
    return Output(found)


def _yolox(outputs: Arrays, facts: Facts) -> Output:
    rows = next(o for o in outputs.values() if o.ndim == 2)
    found, place = [], 0
    raw = rows[:, 2:4].min() < 0 or rows[:, 2:4].max() <= 8
    for stride in (8, 16, 32):
        for y in range(math.ceil(facts.size[1] / stride)):
            for x in range(math.ceil(facts.size[0] / stride)):
                row = rows[place]
                place += 1
                scores = row[4] * row[5:]
                if scores.max() < facts.thresholds.confidence:
                    continue
                box = row[:4]
                if raw:
                    box = np.array([(box[0] + x) * stride, (box[1] + y) * stride, *np.exp(box[2:]) * stride])
                found.append(Candidate(_corners(*box), float(scores.max()), int(scores.argmax())))
    return Output(found)


def _gfl(outputs: Arrays, facts: Facts) -> Output:
    found = []
    for stride in (8, 16, 32, 64):
        across, down = math.ceil(facts.size[0] / stride), math.ceil(facts.size[1] / stride)
        pair = [o for o in outputs.values() if o.ndim == 2 and len(o) == across * down]
        if len(pair) != 2:
            continue
        classes = len(facts.names or ())
        scores, reach = pair if pair[0].shape[1] == classes or pair[1].shape[1] in (32, 44, 68) else pair[::-1]
        if scores.min() < 0:
            scores = _sigmoid(scores)
        for place in np.flatnonzero(scores.max(1) >= facts.thresholds.confidence):
            x, y = (place % across + 0.5) * stride, (place // across + 0.5) * stride
            bins = _softmax(reach[place].reshape(4, -1))
            left, top, right, bottom = (bins * np.arange(bins.shape[1])).sum(1) * stride
            box = np.array([x - left, y - top, x + right, y + bottom])
            found.append(Candidate(box, float(scores[place].max()), int(scores[place].argmax())))
    return Output(found)


def _ssd(outputs: Arrays, facts: Facts) -> Output:
    boxes = next(o for o in outputs.values() if o.shape[-1] == 4).reshape(-1, 4)
    scores = next(o for o in outputs.values() if o.shape[-1] != 4)
    width, height = facts.size
    found = []
    # Column 0 is COCO's id 1, unless there is one for the background.
    first = 1 if facts.names is None and scores.shape[1] == 90 else 0
    for (top, left, bottom, right), row in zip(boxes, scores):
        if scores.shape[1] == 91:
            row = np.concatenate([[0], row[1:]])
        if row.max() >= facts.thresholds.confidence:
            box = np.array([left * width, top * height, right * width, bottom * height])
            found.append(Candidate(box, float(row.max()), int(row.argmax()) + first))
    return Output(found)


def _detr(outputs: Arrays, facts: Facts) -> Output:
    width, height = facts.size
    scale = np.array([width, height, width, height])
    least = facts.thresholds.confidence
    if "scores" in outputs:
        rows = zip(outputs["boxes"], outputs["scores"], outputs["labels"])
        return Output([Candidate(box, float(s), int(c)) for box, s, c in rows if s >= least], True)
    if len(outputs) == 1:
        (matrix,) = outputs.values()
        kept = [row for row in matrix if row[4] >= least]
        return Output([Candidate(_corners(*row[:4]) * scale, float(row[4]), round(float(row[5]))) for row in kept], True)
    names = {"dets": "labels", "pred_boxes": "logits"}
    key = next(name for name in names if name in outputs)
    boxes, logits = outputs[key], next(o for n, o in outputs.items() if n != key)
    if logits.shape[1] == 92:
        scores = _softmax(logits)[:, :91]
    else:
        columns = logits.shape[1]
        background = columns != 91 if facts.names is None and key == "dets" else columns == len(facts.names or ()) + 1
        scores = _sigmoid(logits)[:, : columns - background]
    hits = np.argwhere(scores >= least)
    return Output([Candidate(_corners(*boxes[q]) * scale, float(scores[q, c]), int(c)) for q, c in hits], True)


def _movenet(outputs: Arrays, facts: Facts) -> Output:
    width, height = facts.size
    found = []
    for person in next(iter(outputs.values())):
        if person[55] >= facts.thresholds.confidence:
            top, left, bottom, right = person[51:55]
            points = np.array([[x * width, y * height, s] for y, x, s in person[:51].reshape(17, 3)])
            box = np.array([left * width, top * height, right * width, bottom * height])
            found.append(Candidate(box, float(person[55]), 0, points=points))
    return Output(found, True)


def _centerface(outputs: Arrays, facts: Facts) -> Output:
    heat, sizes, offsets, marks = outputs.values()
    found = []
    for y, x in np.argwhere(heat[0] >= facts.thresholds.confidence):
        h, w = np.exp(sizes[:, y, x]) * 4
        cy, cx = (y + offsets[0, y, x] + 0.5) * 4, (x + offsets[1, y, x] + 0.5) * 4
        box, score = _corners(cx, cy, w, h), float(heat[0, y, x])
        marked = marks[:, y, x].reshape(5, 2)
        points = np.array([[box[0] + mx * w, box[1] + my * h, score] for my, mx in marked])
        found.append(Candidate(box, score, 0, points=points))
    return Output(found)


def _classify(outputs: Arrays, facts: Facts) -> Output:
    values = next(iter(outputs.values())).ravel()
    ready = values.min() >= 0 and abs(values.sum() - 1) < 0.02
    return Output(probabilities=values if ready else _softmax(values))


def _semantic(outputs: Arrays, facts: Facts) -> Output:
    scores = next(iter(outputs.values()))
    if scores.ndim == 3:
        last = facts.layout == "channels-last"
        scores = scores.argmax(2 if last else 0)
    return Output(class_map=scores.astype(np.int64))


READERS: dict[str, Callable[[Arrays, Facts], Output]] = {
    "yolo": _yolo,
    "yolo-e2e": _yolo_e2e,
    "yolo-seg": _yolo_seg,
    "yolo-pose": _yolo_pose,
    "yolo-obb": _yolo_obb,
    "yolo-cls": _classify,
    "yolov5": _yolov5,
    "yolox": _yolox,
    "gfl": _gfl,
    "ssd": _ssd,
    "detr": _detr,
    "movenet": _movenet,
    "centerface": _centerface,
    "classify": _classify,
    "semantic": _semantic,
}
