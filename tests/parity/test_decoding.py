"""Heads against readers written apart from them, on random outputs: class counts, sizes, batches and output order vary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gstinfer.geometry import ImageTransform
from gstinfer.heads import NetworkInfo, TensorInfo, choose
from gstinfer.parity.decoding import Facts, decode, suppress
from gstinfer.parity.fitting import letterbox
from gstinfer.parity.matching import Agreement
from gstinfer.parity.references import _result
from gstinfer.sanitize import Dropped, sanitize

FRAME = (320, 180)


def cells(size, strides=(8, 16, 32)) -> int:
    return sum(-(-size[0] // s) * -(-size[1] // s) for s in strides)


def objects(rng, size, columns: int, count: int, extra: int) -> np.ndarray:
    """Rows ``[count,columns]``: a dozen objects, each seen by several neighbours, among rows that see nothing."""
    rows = rng.uniform(0, 0.15, (count, columns))
    rows[:, :2] = rng.uniform(0, size, (count, 2))
    rows[:, 2:4] = rng.uniform(4, 40, (count, 2))
    seen = rng.permutation(count)[: min(count, 60)]
    middle, sides = rng.uniform(10, np.array(size) - 10, (12, 2)), rng.uniform(15, 60, (12, 2))
    which = rng.integers(0, 12, len(seen))
    rows[seen, :2] = middle[which] + rng.normal(0, 2, (len(seen), 2))
    rows[seen, 2:4] = sides[which] + rng.normal(0, 2, (len(seen), 2))
    classes = columns - 4 - extra
    rows[seen, 4 + rng.integers(0, classes, 12)[which] % classes] = rng.uniform(0.3, 0.95, len(seen))
    return rows


def raw(rng, size, nc, extra=0):
    return objects(rng, size, 4 + nc + extra, cells(size), extra)


def ultralytics(task, nc, **more):
    return {"task": task, "names": str({i: f"c{i}" for i in range(nc)}), **more}


def yolo(rng, size, nc, batch):
    return {"output0": np.stack([raw(rng, size, nc).T for _ in range(batch)])}, ultralytics("detect", nc)


def seg(rng, size, nc, batch):
    rows = []
    for _ in range(batch):
        row = raw(rng, size, nc, 8)
        row[:, -8:] = rng.normal(0, 1, (len(row), 8))
        rows.append(row.T)
    protos = rng.normal(0, 1, (batch, 8, size[1] // 4, size[0] // 4))
    return {"output1": protos, "output0": np.stack(rows)}, ultralytics("segment", nc)


def pose(rng, size, nc, batch):
    rows = []
    for _ in range(batch):
        row = raw(rng, size, nc, 15)
        row[:, -15:] = rng.uniform(0, size[0], (len(row), 15))
        row[:, -13::3] = rng.uniform(0, 1, (len(row), 5))
        rows.append(row.T)
    return {"output0": np.stack(rows)}, ultralytics("pose", nc, kpt_shape="[5, 3]")


def obb(rng, size, nc, batch):
    rows = []
    for _ in range(batch):
        row = raw(rng, size, nc, 1)
        row[:, -1] = rng.uniform(-0.7, 2.3, len(row))
        rows.append(row.T)
    return {"output0": np.stack(rows)}, ultralytics("obb", nc)


def finished(rng, size, nc, batch):
    rows = np.zeros((batch, 100, 6))
    for row in rows:
        corner = rng.uniform(0, np.array(size) - 40, (30, 2))
        row[:30, :2], row[:30, 2:4] = corner, corner + rng.uniform(5, 40, (30, 2))
        row[:30, 4], row[:30, 5] = rng.uniform(0.05, 0.95, 30), rng.integers(0, nc, 30)
    return {"output0": rows}, ultralytics("detect", nc, end2end="True")


def yolov5(rng, size, nc, batch):
    rows = [np.insert(objects(rng, size, 4 + nc, 3 * cells(size), 0), 4, 0.9, axis=1) for _ in range(batch)]
    return {"output": np.stack(rows)}, {"head": "yolov5", "names": ultralytics("", nc)["names"]}


def yolox(rng, size, nc, batch):
    rows = np.stack([np.insert(raw(rng, size, nc), 4, 0.9, axis=1) for _ in range(batch)])
    rows[..., :2], rows[..., 2:4] = rng.normal(0, 1, rows[..., :2].shape), rng.normal(0.5, 0.4, rows[..., 2:4].shape)
    return {"output": rows}, {"head": "yolox", "names": ultralytics("", nc)["names"]}


def gfl(rng, size, nc, batch):
    outputs = {}
    for stride in (32, 8, 16):
        count = -(-size[0] // stride) * -(-size[1] // stride)
        scores = rng.uniform(0, 0.2, (batch, count, nc))
        some = min(6, count)
        scores[:, rng.permutation(count)[:some], rng.integers(0, nc, some)] = rng.uniform(0.45, 0.9, some)
        outputs[f"dis{stride}"], outputs[f"cls{stride}"] = rng.normal(0, 2, (batch, count, 44)), scores
    return outputs, {"names": ultralytics("", nc)["names"]}


def ssd(rng, size, nc, batch):
    corner = rng.uniform(0, 0.7, (batch, 300, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.05, 0.3, (batch, 300, 2))], -1)
    scores = rng.uniform(0, 0.3, (batch, 300, 90))
    scores[:, :20, rng.integers(0, 90, 20)] = rng.uniform(0.5, 0.9, 20)
    return {"scores": scores, "boxes": boxes[:, :, None]}, {"head": "ssd"}


def detr(rng, size, nc, batch):
    boxes, logits = rng.uniform(0.2, 0.5, (batch, 50, 4)), rng.normal(-3, 2, (batch, 50, nc + 1))
    return {"labels": logits, "dets": boxes}, {"names": ultralytics("", nc)["names"]}


CASES = [yolo, seg, pose, obb, finished, yolov5, yolox, gfl, ssd, detr]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("made", CASES, ids=lambda f: f.__name__)
def test_the_head_reads_what_a_plain_reader_reads(made, seed):
    rng = np.random.default_rng(seed)
    size = [(64, 64), (96, 64), (160, 128), (64, 128)][seed]
    nc, batch = [1, 2, 5, 80][seed], 1 + seed % 3
    if made is pose:
        nc = min(nc, 2)
    outputs, metadata = made(rng, size, nc, batch)
    outputs = {name: value.astype(np.float32) for name, value in outputs.items()}
    picture = TensorInfo("images", (None, 3, size[1], size[0]))
    info = NetworkInfo((picture,), tuple(TensorInfo(n, (None, *v.shape[1:])) for n, v in outputs.items()), metadata)
    head = choose(info, metadata.get("head", "auto")).head
    thresholds = replace(head.thresholds, confidence=0.4)
    transform = ImageTransform.plan(FRAME, size)
    found = head.decode(outputs, [transform] * batch, thresholds)
    names = tuple(head.labels) if isinstance(head.labels, (list, tuple)) else None
    facts = Facts(size, info, names, "auto", thresholds)
    fitted = letterbox(np.zeros((FRAME[1], FRAME[0], 3), np.uint8), size)
    agreement = Agreement()
    for i, ours in enumerate(found):
        read = decode(head.name, {n: v[i : i + 1] for n, v in outputs.items()}, facts)
        theirs = _result(read, suppress(read, thresholds), fitted, FRAME, thresholds.confidence)
        agreement.add([sanitize(ours, *FRAME, Dropped())], [theirs], FRAME)
    figures = agreement.as_dict()
    assert agreement.ours > 0
    assert agreement.matched == 1 and agreement.mean_iou > 0.9999 and agreement.mean_score < 1e-5, figures
    # Prototypes of noise are the worst case: the reader here enlarges twice, the head once.
    assert figures.get("mean_mask_iou", 1) > 0.9 and figures.get("mean_keypoint_distance", 0) < 1e-3, figures
