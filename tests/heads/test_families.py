"""The other families on outputs made here."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.geometry import ImageTransform
from gstinfer.heads import TensorInfo, Thresholds, choose
from gstinfer.results import Classifications, SegmentationMap, Tensors

from .support import network

FRAME = (1000, 500)
BOXES = np.array([[100, 50, 400, 350], [600, 200, 900, 450]], np.float32)


def letterboxed(size, mode="letterbox"):
    return ImageTransform.plan(FRAME, size, mode)


@pytest.mark.parametrize(
    ("size", "classes", "bins", "strides"),
    [((416, 416), 80, 11, (8, 16, 32)), ((320, 320), 7, 8, (8, 16, 32, 64)), ((640, 384), 1, 17, (8, 16, 32))],
)
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_gfl(size, classes, bins, strides, logits, backwards):
    transform = letterboxed(size)
    outputs = {}
    for stride in strides:
        cells = -(-size[0] // stride) * -(-size[1] // stride)
        outputs[f"scores{stride}"] = np.full((2, cells, classes), 0.02, np.float32)
        outputs[f"boxes{stride}"] = np.zeros((2, cells, 4 * bins), np.float32)
    for i, box in enumerate(transform.boxes_to_input(BOXES)):
        # The stride whose bins reach the sides; the cell of the box's middle.
        stride = next(s for s in strides if (box[2:] - box[:2]).max() / 2 + s < s * (bins - 1))
        column, row = ((box[:2] + box[2:]) / 2 // stride).astype(int)
        cell = row * -(-size[0] // stride) + column
        point = (np.array([column, row]) + 0.5) * stride
        outputs[f"scores{stride}"][1, cell, (i * 3) % classes] = 0.9 - i / 10
        for side, distance in enumerate(np.concatenate([point - box[:2], box[2:] - point]) / stride):
            low = int(distance)
            weights = np.full(bins, 1e-9)
            weights[low], weights[low + 1] = 1 - (distance - low) + 1e-9, distance - low + 1e-9
            outputs[f"boxes{stride}"][1, cell, side * bins : (side + 1) * bins] = np.log(weights)
    if logits:
        for name in [n for n in outputs if n.startswith("scores")]:
            outputs[name] = np.log(outputs[name] / (1 - outputs[name]))
    if backwards:
        outputs = dict(reversed(outputs.items()))
    decision = choose(network(outputs, size))
    assert decision.head.name == "gfl"
    nothing, found = decision.head.decode(outputs, [transform, transform], decision.head.thresholds)
    assert len(nothing) == 0
    np.testing.assert_allclose(found.xyxy, BOXES, atol=0.1)
    assert found.class_id.tolist() == [0, 3 % classes]
    np.testing.assert_allclose(found.confidence, [0.9, 0.8], atol=1e-4)


@pytest.mark.parametrize(
    ("columns", "labels", "column", "class_id", "name"),
    [
        (90, None, 12, 13, "stop sign"),
        (90, None, 89, 90, "toothbrush"),
        (91, None, 13, 13, "stop sign"),
        (3, ("a", "b", "c"), 2, 2, "c"),
        (4, ("a", "b", "c"), 3, 2, "c"),
        (5, None, 4, 4, "4"),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_ssd_classes(columns, labels, column, class_id, name, deep):
    transform = letterboxed((300, 300), "stretch")
    scores = np.zeros((1, 50, columns), np.float32)
    boxes = np.zeros((1, 50, 4), np.float32)
    unit = BOXES[0] / [*FRAME, *FRAME]
    boxes[0, 7] = boxes[0, 8] = unit[[1, 0, 3, 2]]
    scores[0, 7, column], scores[0, 8, column] = 0.9, 0.8
    if columns == 91 or (labels and columns == len(labels) + 1):
        scores[0, :, 0] = 0.95  # the background, loud everywhere
    outputs = {"scores": scores, "boxes": boxes[:, :, None] if deep else boxes}
    decision = choose(network(outputs, (300, 300), labels=labels), "auto" if deep else "ssd")
    assert decision.head.name == "ssd"
    found = decision.head.decode(outputs, [transform], decision.head.thresholds)[0].named(decision.head.labels)
    np.testing.assert_allclose(found.xyxy, BOXES[:1], atol=0.05)
    assert found.class_id.tolist() == [class_id] and found.label == [name]


def queries(count=30):
    """Boxes ``[1,Q,4]`` as cx, cy, w, h in 0..1, the two objects at 3 and 20."""
    boxes = np.full((1, count, 4), 0.5, np.float32)
    unit = BOXES / [*FRAME, *FRAME]
    boxes[0, [3, 20]] = np.concatenate([(unit[:, :2] + unit[:, 2:]) / 2, unit[:, 2:] - unit[:, :2]], 1)
    return boxes


def logit(p):
    return np.log(p / (1 - p))


@pytest.mark.parametrize(
    ("names", "columns", "labels", "loud", "ids"),
    [
        (("dets", "labels"), 4, None, 3, [2, 0]),
        (("dets", "labels"), 91, None, None, [90, 13]),
        (("labels_", "boxes_"), 6, None, None, [5, 0]),
        (("pred_boxes", "logits"), 80, None, None, [79, 3]),
        (("pred_boxes", "logits"), 4, ("a", "b", "c"), 3, [2, 0]),
        (("pred_boxes", "logits"), 3, ("a", "b", "c"), None, [2, 0]),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_detr_background(names, columns, labels, loud, ids, swapped):
    transform = letterboxed((560, 560), "stretch")
    scores = np.full((1, 30, columns), -6, np.float32)
    scores[0, 3, ids[0]], scores[0, 20, ids[1]] = logit(0.9), logit(0.7)
    if loud is not None:
        scores[..., loud] = 5
    boxes, logits = names if names[0] != "labels_" else names[::-1]
    outputs = {boxes: queries(), logits: scores}
    if swapped:
        outputs = dict(reversed(outputs.items()))
    head = choose(network(outputs, (560, 560), labels=labels), "auto" if names[0] != "labels_" else "detr").head
    found = head.decode(outputs, [transform], head.thresholds)[0].named(head.labels)
    np.testing.assert_allclose(found.xyxy, BOXES, atol=0.05)
    np.testing.assert_allclose(found.confidence, [0.9, 0.7], atol=1e-4)
    assert found.class_id.tolist() == ids
    if columns == 91:
        assert found.label == ["toothbrush", "stop sign"]


def test_the_original_detr_takes_a_softmax():
    scores = np.zeros((1, 30, 92), np.float32)
    scores[..., 91] = 12
    scores[0, 3, 17], scores[0, 3, 91] = 12, 0
    outputs = {"logits": scores, "pred_boxes": queries()}
    info = network(outputs, (560, 560))
    head = choose(info).head
    assert type(head).preprocessing(info)["mean"] == (0.485, 0.456, 0.406)
    found = head.decode(outputs, [letterboxed((560, 560), "stretch")], head.thresholds)[0].named(head.labels)
    assert found.label == ["cat"] and found.confidence[0] > 0.99


def test_finished_rows_in_pixels_of_the_fed_size():
    transform = letterboxed((640, 480), "stretch")
    inputs = [TensorInfo("images", (None, 3, 480, 640)), TensorInfo("orig_target_sizes", (None, 2), "int64")]
    outputs = {
        "labels": np.array([[4, 1, 7]]),
        "boxes": np.concatenate([transform.boxes_to_input(BOXES), np.zeros((1, 4))])[None].astype(np.float32),
        "scores": np.array([[0.6, 0.9, 0.1]], np.float32),
    }
    head = choose(network(outputs, inputs=inputs)).head
    feeds = head.feeds([transform, transform])
    assert feeds["orig_target_sizes"].dtype == np.int64 and feeds["orig_target_sizes"].tolist() == [[640, 480]] * 2
    found = head.decode(outputs, [transform], head.thresholds)[0]
    assert found.class_id.tolist() == [1, 4]
    np.testing.assert_allclose(found.xyxy, BOXES[::-1], atol=0.05)


@pytest.mark.parametrize("classes", [3, 80])
def test_one_output_of_boxes_and_probabilities(classes):
    rows = np.zeros((1, 30, 4 + classes), np.float32)
    rows[..., :4] = queries()
    rows[0, 3, 4 + classes - 1] = 0.8
    info = network({"o": rows}, metadata={"description": "Ultralytics rtdetr-x model", "task": "detect"})
    head = choose(info).head
    found = head.decode({"o": rows}, [letterboxed((640, 640), "stretch")], head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, BOXES[:1], atol=0.05)
    assert found.class_id.tolist() == [classes - 1]


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("size", [(640, 640), (416, 256)])
def test_yolox(decoded, size):
    transform = letterboxed(size, "letterbox-topleft")
    cells = [(-(-size[0] // s), -(-size[1] // s), s) for s in (8, 16, 32)]
    count = sum(w * h for w, h, _ in cells)
    random = np.random.default_rng(0)
    rows = np.zeros((1, count, 8), np.float32)
    rows[0, :, :4] = random.uniform(20, 90, (count, 4)) if decoded else random.normal(0, 1, (count, 4))
    for i, box in enumerate(transform.boxes_to_input(BOXES)):
        level = i + 1
        width, _, stride = cells[level]
        centre, extent = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
        column, row = (centre // stride).astype(int)
        index = sum(w * h for w, h, _ in cells[:level]) + row * width + column
        rows[0, index, :2] = centre if decoded else centre / stride - [column, row]
        rows[0, index, 2:4] = extent if decoded else np.log(extent / stride)
        rows[0, index, 4] = 0.9
        rows[0, index, 5 + i] = 0.8
    head = choose(network({"o": rows}, size), "yolox").head
    found = head.decode({"o": rows}, [transform], head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, BOXES, atol=0.05)
    np.testing.assert_allclose(found.confidence, 0.72, atol=1e-5)
    assert found.class_id.tolist() == [0, 1]


def test_movenet():
    transform = letterboxed((320, 256))
    points = np.random.default_rng(0).uniform(100, 400, (17, 2)).astype(np.float32)
    out = np.zeros((1, 6, 56), np.float32)
    unit = transform.points_to_input(points) / [320, 256]
    out[0, 2, :51] = np.concatenate([unit[:, ::-1], np.full((17, 1), 0.6)], 1).ravel()
    x1, y1, x2, y2 = transform.boxes_to_input(BOXES)[0] / [320, 256, 320, 256]
    out[0, 2, 51:] = [y1, x1, y2, x2, 0.8]
    picture = TensorInfo("input", (1, 256, 320, 3), "int32")
    decision = choose(network({"o": out}, inputs=[picture]))
    assert decision.head.name == "movenet"
    found = decision.head.decode({"o": out}, [transform], decision.head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, BOXES[:1], atol=0.05)
    np.testing.assert_allclose(found.keypoints[0, :, :2], points, atol=0.05)
    np.testing.assert_allclose(found.keypoints[0, :, 2], 0.6)
    assert found.confidence.tolist() == pytest.approx([0.8]) and decision.head.labels == ("person",)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0)])
def test_centerface(order):
    transform = letterboxed((320, 160))
    maps = {n: np.zeros((1, c, 40, 80), np.float32) for n, c in (("heat", 1), ("a", 2), ("b", 2), ("marks", 10))}
    for i, box in enumerate(transform.boxes_to_input(BOXES)):
        centre, (w, h) = (box[:2] + box[2:]) / 8 - 0.5, box[2:] - box[:2]
        column, row = centre.astype(int)
        maps["heat"][0, 0, row, column] = 0.9 - i / 10
        maps["heat"][0, 0, row, column + 1] = 0.5  # a neighbour that is the same face
        for x in (column, column + 1):
            maps["a"][0, :, row, x] = np.log(h / 4), np.log(w / 4)
            maps["b"][0, :, row, x] = centre[1] - row, centre[0] - column
            maps["marks"][0, :, row, x] = [0.3, 0.2, 0.3, 0.8, 0.5, 0.5, 0.7, 0.3, 0.7, 0.7]
    outputs = {name: maps[name] for name in [list(maps)[i] for i in order]}
    decision = choose(network(outputs, (320, 160)))
    assert decision.head.name == "centerface"
    found = decision.head.decode(outputs, [transform], decision.head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, BOXES, atol=0.1)
    assert found.keypoints.shape == (2, 5, 3)
    np.testing.assert_allclose(found.keypoints[0, 0, :2], [100 + 0.2 * 300, 50 + 0.3 * 300], atol=0.1)


@pytest.mark.parametrize("form", ["logits", "softmax", "deep", "uint8"])
def test_classes_and_their_probabilities(form):
    scores = np.array([[1.0, 3.0, 0.0], [-1.0, -2.0, 5.0]], np.float32)
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    given = scores if form in ("logits", "deep") else expected
    if form == "uint8":
        given = np.round(expected * 256).clip(0, 255).astype(np.uint8)
    given = given[..., None, None] if form == "deep" else given
    head = choose(network({"o": given}, labels=["a", "b", "c"])).head
    transforms = [letterboxed((224, 224), "stretch")] * 2
    first, second = head.decode({"o": given}, transforms, head.thresholds)
    assert isinstance(first, Classifications)
    assert first.named(head.labels).label == ["b", "a", "c"] and second.class_id.tolist() == [2, 0, 1]
    np.testing.assert_allclose(first.confidence, expected[0][[1, 0, 2]], atol=0.01)
    assert head.decode({"o": given}, transforms, Thresholds(confidence=0.5, limit=5))[0].class_id.tolist() == [1]
    assert len(head.decode({"o": given}, transforms, Thresholds(confidence=0, limit=2))[0]) == 2


@pytest.mark.parametrize("layout", ["channels-first", "channels-last"])
@pytest.mark.parametrize("mode", ["letterbox", "letterbox-topleft", "stretch"])
def test_semantic_maps_span_the_frame_without_the_padding(layout, mode):
    transform = letterboxed((128, 128), mode)
    scores = np.zeros((1, 4, 64, 64), np.float32)
    scores[0, 3] = 1  # the padding
    left, top = (p // 2 for p in transform.pad)
    width, height = (c // 2 for c in transform.content)
    scores[0, 1, top : top + height, left : left + width // 2] = 2
    scores[0, 2, top : top + height, left + width // 2 : left + width] = 2
    out = scores if layout == "channels-first" else scores.transpose(0, 2, 3, 1)
    head = choose(network({"o": out}, (128, 128), labels="abcd")).head
    assert (head.name, head.layout) == ("semantic", layout)
    found = head.decode({"o": out}, [transform], head.thresholds)[0]
    assert isinstance(found, SegmentationMap) and found.label == list("abcd")
    assert found.class_map.shape == (height, width)
    assert (found.class_map[:, : width // 2] == 1).all() and (found.class_map[:, width // 2 :] == 2).all()


def test_semantic_maps_that_are_finished_or_single():
    transform = letterboxed((64, 64), "stretch")
    finished = np.arange(64 * 64).reshape(1, 64, 64) % 5
    head = choose(network({"o": finished}), "semantic").head
    assert (head.decode({"o": finished}, [transform], head.thresholds)[0].class_map == finished[0]).all()
    for low, high in ((-3.0, 3.0), (0.1, 0.9)):
        single = np.full((1, 1, 64, 64), low, np.float32)
        single[0, 0, :10] = high
        head = choose(network({"o": single}), "semantic").head
        assert head.decode({"o": single}, [transform], head.thresholds)[0].class_map.sum() == 640


def test_raw_tensors_are_copies_of_each_frames_rows():
    outputs = {"a": np.arange(12.0).reshape(3, 4), "b": np.ones((1, 2)), "c": np.float32(5)}
    head = choose(network({"a": (3, 4)}), "raw").head
    first, second = head.decode(outputs, [letterboxed((64, 64))] * 2, head.thresholds)
    assert isinstance(first, Tensors)
    assert second.outputs["a"].tolist() == [4, 5, 6, 7] and second.outputs["b"].tolist() == [1, 1]
    outputs["a"][:] = 0
    assert first.outputs["a"].tolist() == [0, 1, 2, 3] and first.outputs["c"] == 5
