"""YOLO heads on outputs made here: any class count, size, batch, orientation and output order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform, obb_corners
from gstinfer.heads import TensorInfo, Thresholds, choose
from gstinfer.heads.masks import cut_masks
from gstinfer.sanitize import Dropped, sanitize

from .support import network

WIDE = ImageTransform.plan((1280, 720), (640, 640))
TALL = ImageTransform.plan((400, 900), (640, 640))


def raw(batch, count, classes, objects, extra=0, objectness=False):
    """``[B,4+nc+extra,N]`` of weak noise with objects ``(frame, xyxy in the input, class, score[, extra])``."""
    random = np.random.default_rng(3)
    first = 5 if objectness else 4
    out = np.zeros((batch, first + classes + extra, count), np.float32)
    out[:, :4] = random.uniform(5, 20, (batch, 4, count))
    out[:, first : first + classes] = random.uniform(0, 0.1, (batch, classes, count))
    for place, (frame, box, class_id, score, *more) in enumerate(objects):
        column = out[frame, :, 7 + 11 * place]
        x1, y1, x2, y2 = box
        column[:4] = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
        if objectness:
            column[4] = 0.8
        column[first + class_id] = score / 0.8 if objectness else score
        if more:
            column[first + classes :] = more[0]
    return out


def in_input(box, transform):
    return transform.boxes_to_input(np.array([box], np.float32))[0]


@pytest.mark.parametrize("classes", [1, 2, 3, 20, 80, 365])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_raw_in_a_batch(classes, transposed, dtype):
    last = classes - 1
    first, second = [100, 50, 700, 600], [20, 300, 380, 850]
    out = raw(3, 8400, classes, [(0, in_input(first, WIDE), last, 0.9), (1, in_input(second, TALL), 0, 0.7)])
    out = out.transpose(0, 2, 1) if transposed else out
    info = network({"o": out}, (640, 640))
    head = choose(info, "yolo").head
    assert head.layout == ("channels-last" if transposed else "channels-first")
    got = head.decode({"o": out.astype(dtype)}, [WIDE, TALL], head.thresholds)
    assert len(got) == 2  # the third row is padding
    np.testing.assert_allclose(got[0].xyxy, [first], atol=0.05 if dtype is np.float32 else 1.5)
    np.testing.assert_allclose(got[1].xyxy, [second], atol=0.05 if dtype is np.float32 else 1.5)
    assert [got[0].class_id.tolist(), got[1].class_id.tolist()] == [[last], [0]]
    assert got[0].xyxy.dtype == np.float32


def test_a_box_past_the_padding_does_not_vanish():
    transform = ImageTransform.plan((1920, 1080), (640, 640))
    out = raw(1, 8400, 2, [(0, [308.406, 376.330, 463.912, 500.436], 1, 0.9)])
    head = choose(network({"o": out}, (640, 640)), "yolo").head
    found = head.decode({"o": out}, [transform], head.thresholds)[0]
    clean = sanitize(found, 1920, 1080, Dropped())
    np.testing.assert_allclose(clean.xyxy, [[925.2, 709.0, 1391.7, 1080]], atol=0.6)


def test_the_threshold_is_inclusive_and_the_limit_holds():
    objects = [(0, [40 * i, 10, 40 * i + 20, 30], 0, 0.5) for i in range(10)]
    out = raw(1, 8400, 1, objects)
    head = choose(network({"o": out}, (640, 640)), "yolo").head
    assert len(head.decode({"o": out}, [WIDE], Thresholds(confidence=0.5))[0]) == 10
    assert len(head.decode({"o": out}, [WIDE], Thresholds(confidence=0.501))[0]) == 0
    assert len(head.decode({"o": out}, [WIDE], Thresholds(confidence=0.5, limit=4))[0]) == 4


def test_dirty_candidates_suppress_nobody_and_are_counted():
    box = [100, 200, 200, 300]
    out = raw(1, 8400, 2, [(0, box, 0, 0.6), (0, box, 0, np.inf), (0, box, 0, np.nan), (0, box, 0, 3.0)])
    out[0, 0, 5000], out[0, 4, 5000] = np.nan, 0.9
    out[0, 2, 5001], out[0, 4, 5001] = -5, 0.9
    head = choose(network({"o": out}, (640, 640)), "yolo").head
    dropped = Dropped()
    clean = sanitize(head.decode({"o": out}, [WIDE], head.thresholds)[0], 1280, 720, dropped)
    assert len(clean) == 1 and clean.confidence[0] == pytest.approx(0.6)
    assert dropped == {"non-finite": 3, "confidence": 1, "empty": 1}


def test_shapes_known_only_at_run_time():
    out = raw(1, 8400, 2, [(0, in_input([100, 50, 700, 600], WIDE), 1, 0.9)])
    head = choose(network({"o": (None, None, None)}, (640, 640)), "yolo").head
    assert head.layout == ""
    assert head.decode({"o": out}, [WIDE], head.thresholds)[0].class_id.tolist() == [1]
    assert head.layout == "channels-first"
    assert choose(network({"o": (None, 84, None)}, (640, 640)), "yolo").layout == "channels-first"
    assert choose(network({"o": (None, None, 84)}, (640, 640)), "yolo").layout == "channels-last"


@pytest.mark.parametrize("classes", [1, 2, 80])
def test_objectness_multiplies(classes):
    out = raw(1, 25200, classes, [(0, in_input([100, 50, 700, 600], WIDE), classes - 1, 0.6)], objectness=True)
    out = out.transpose(0, 2, 1)
    head = choose(network({"o": out}, (640, 640)), "yolov5").head
    found = head.decode({"o": out}, [WIDE], head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, [[100, 50, 700, 600]], atol=0.05)
    assert found.class_id.tolist() == [classes - 1] and found.confidence[0] == pytest.approx(0.6)
    assert len(head.decode({"o": out}, [WIDE], Thresholds(confidence=0.65))[0]) == 0


@pytest.mark.parametrize("transposed", [False, True])
def test_end_to_end_rows_are_not_suppressed_again(transposed):
    out = np.zeros((2, 300, 6), np.float32)
    out[0, :3] = [[10, 150, 60, 250, 0.9, 3], [10, 150, 60, 251, 0.8, 3], [0, 0, 9, 9, 0.1, 1]]
    out[1, 200] = [100, 0, 200, 640, 0.3, 79]
    out[1, 3] = [np.nan, 0, 200, 640, 0.5, np.nan]
    out = out.transpose(0, 2, 1) if transposed else out
    layout = "channels-first" if transposed else "auto"
    head = choose(network({"o": out}, (640, 640)), "yolo-e2e", layout).head
    first, second = head.decode({"o": out}, [WIDE, TALL], head.thresholds)
    np.testing.assert_allclose(first.xyxy, [[20, 20, 120, 220], [20, 20, 120, 222]], atol=0.05)
    dropped = Dropped()
    clean = sanitize(second, 400, 900, dropped)
    assert clean.class_id.tolist() == [79] and dropped == {"non-finite": 1}


def ring(size=160, count=32):
    """Prototypes whose first is positive left of the middle of the input, the second above it."""
    protos = np.zeros((count, size, size), np.float32)
    protos[0] = np.where(np.arange(size) < size / 2, 4, -4)
    protos[1] = np.where(np.arange(size)[:, None] < size / 2, 4, -4)
    return protos


@pytest.mark.parametrize("count", [16, 32])
@pytest.mark.parametrize("end2end", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_masks_follow_their_coefficients(count, end2end, swapped):
    left, above = np.eye(count, dtype=np.float32)[:2]
    boxes = [[100, 50, 1000, 600], [600, 100, 700, 700]]
    inside = [in_input(b, WIDE) for b in boxes]
    if end2end:
        rows = np.zeros((1, 300, 6 + count), np.float32)
        rows[0, 0] = [*inside[0], 0.9, 1, *left]
        rows[0, 1] = [*inside[1], 0.8, 0, *above]
    else:
        rows = raw(1, 8400, 2, [(0, inside[0], 1, 0.9, left), (0, inside[1], 0, 0.8, above)], extra=count)
    outputs = {"output0": rows, "output1": ring(count=count)[None]}
    if swapped:
        outputs = dict(reversed(outputs.items()))
    metadata = {"task": "segment", "names": "['a', 'b']", "end2end": str(end2end)}
    head = choose(network(outputs, (640, 640), metadata=metadata)).head
    assert head.name == "yolo-seg"
    found = head.decode(outputs, [WIDE], head.thresholds)[0]
    np.testing.assert_allclose(found.xyxy, boxes, atol=0.05)
    first, second = (mask.to_frame(1280, 720) for mask in found.mask)
    assert first[50:600, 100:639].all() and not first[:, 641:].any() and not first[:49].any() and not first[601:].any()
    assert second[100:359, 601:699].all() and not second[361:].any() and not second[:, :599].any()


def test_masks_without_metadata_are_known_by_labels():
    info = network({"a": (1, 38, 8400), "b": (1, 32, 160, 160)}, (640, 640), labels=["x", "y"])
    assert choose(info).head.name == "yolo-seg"


@pytest.mark.parametrize("frame", [(1280, 720), (333, 777), (64, 64)])
def test_masks_of_objects_half_outside(frame):
    transform = ImageTransform.plan(frame, (640, 640))
    width, height = frame
    boxes = [[-width / 2, -height / 2, width / 2, height / 2], [width + 5, 0, width + 50, height]]
    coefficients = np.zeros((2, 32), np.float32)
    protos = np.ones((32, 160, 160), np.float32)
    coefficients[:, 0] = 1
    objects = [(0, in_input(b, transform), 0, 0.9 - i / 10, coefficients[i]) for i, b in enumerate(boxes)]
    rows = raw(1, 8400, 1, objects, extra=32)
    outputs = {"r": rows, "p": protos[None]}
    head = choose(network(outputs, (640, 640)), "yolo-seg").head
    found = head.decode(outputs, [transform], head.thresholds)[0]
    mask = found.mask[0]
    assert (mask.x, mask.y) == (0, 0) and mask.bitmap.all()
    assert mask.bitmap.shape == (math.ceil(found.xyxy[0, 3]), math.ceil(found.xyxy[0, 2]))
    assert found.mask[1].bitmap.size == 0
    clean = sanitize(found, width, height, Dropped())
    assert len(clean) == len(clean.mask) == 1


def test_masks_end_at_the_pixels_where_ultralytics_ends_them():
    """A pixel belongs to a box where x1 <= column < x2 and y1 <= row < y2."""
    transform = ImageTransform.plan((640, 640), (640, 640))
    boxes = np.array([[10.2, 20.0, 50.0, 60.7], [100.9, 7.4, 140.1, 30.5], [-3.5, -0.2, 9.5, 8.0]], np.float32)
    protos = np.ones((1, 160, 160), np.float32)
    column, row = np.arange(640), np.arange(640)[:, None]
    for mask, (x1, y1, x2, y2) in zip(cut_masks(np.ones((3, 1), np.float32), protos, boxes, transform), boxes):
        inside = (column >= x1) & (column < x2) & (row >= y1) & (row < y2)
        assert (mask.to_frame(640, 640) == inside).all()


def test_masks_of_a_crop_lie_in_the_frame():
    transform = ImageTransform.plan((1280, 720), (640, 640), origin=(400, 100), region=(320, 320))
    rows = raw(1, 8400, 1, [(0, [100, 100, 500, 500], 0, 0.9, np.eye(32)[0])], extra=32)
    outputs = {"r": rows, "p": ring()[None]}
    head = choose(network(outputs, (640, 640)), "yolo-seg").head
    mask = head.decode(outputs, [transform], head.thresholds)[0].mask[0].to_frame(1280, 720)
    ys, xs = np.nonzero(mask)
    assert (xs.min(), ys.min(), ys.max() + 1) == (450, 150, 350) and abs(xs.max() + 1 - 560) <= 1


@pytest.mark.parametrize(("points", "dims"), [(17, 3), (5, 3), (4, 2), (1, 3)])
@pytest.mark.parametrize("end2end", [False, True])
@pytest.mark.parametrize("classes", [1, 3])
def test_keypoints(points, dims, end2end, classes):
    truth = np.random.default_rng(0).uniform(50, 350, (points, 2)).astype(np.float32)
    inside = TALL.points_to_input(truth)
    scored = np.concatenate([inside, np.full((points, 1), 0.7)], 1)[:, :dims].ravel()
    box = in_input([20, 300, 380, 850], TALL)
    if end2end:
        rows = np.zeros((1, 300, 6 + points * dims), np.float32)
        rows[0, 4] = [*box, 0.9, classes - 1, *scored]
    else:
        rows = raw(1, 8400, classes, [(0, box, classes - 1, 0.9, scored)], extra=points * dims)
    names = str({i: str(i) for i in range(classes)})
    metadata = {"task": "pose", "kpt_shape": f"[{points}, {dims}]", "names": names, "end2end": str(end2end)}
    head = choose(network({"o": rows}, (640, 640), metadata=metadata)).head
    found = head.decode({"o": rows}, [TALL], head.thresholds)[0]
    assert found.class_id.tolist() == [classes - 1]
    np.testing.assert_allclose(found.xyxy, [[20, 300, 380, 850]], atol=0.05)
    np.testing.assert_allclose(found.keypoints[0, :, :2], truth, atol=0.05)
    np.testing.assert_allclose(found.keypoints[0, :, 2], 0.7 if dims == 3 else 1.0, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 56, 8400), (1, 8400, 56), (1, 300, 57)])
def test_the_number_of_keypoints_without_metadata(shape):
    head = choose(network({"o": shape}, (640, 640)), "yolo-pose").head
    assert head.extra == 51 and head.end2end == (shape == (1, 300, 57))


@pytest.mark.parametrize("transform", [WIDE, TALL])
@pytest.mark.parametrize("form", ["raw", "transposed", "end2end"])
def test_rotated_boxes(transform, form):
    truth = np.array([[200, 300, 120, 40, 0.4], [300, 500, 30, 90, 1.2]], np.float32)
    inside = truth.copy()
    inside[:, :2] = transform.points_to_input(truth[:, :2])
    inside[:, 2:4] *= transform.scale[0]
    if form == "end2end":
        rows = np.zeros((1, 300, 7), np.float32)
        for i, (cx, cy, w, h, angle) in enumerate(inside):
            rows[0, i] = [cx, cy, w, h, 0.9 - i / 10, 1 - i, angle]
    else:
        objects = [
            (0, [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1 - i, 0.9 - i / 10, [angle])
            for i, (cx, cy, w, h, angle) in enumerate(inside)
        ]
        # The same rectangle said with its sides swapped: one object, not two.
        cx, cy, w, h, angle = inside[0]
        swapped = [cx - h / 2, cy - w / 2, cx + h / 2, cy + w / 2]
        objects.append((0, swapped, 1, 0.5, [angle + math.pi / 2]))
        rows = raw(1, 8400, 2, objects, extra=1)
        rows = rows.transpose(0, 2, 1) if form == "transposed" else rows
    info = network({"o": rows}, (640, 640))
    head = choose(info, "yolo-obb").head
    found = head.decode({"o": rows}, [transform], head.thresholds)[0]
    assert found.class_id.tolist() == [1, 0]
    np.testing.assert_allclose(found.obb, truth, atol=0.1)
    corners = obb_corners(truth)
    np.testing.assert_allclose(found.xyxy, np.concatenate([corners.min(1), corners.max(1)], 1), atol=0.1)


@pytest.mark.parametrize("end2end", [False, True])
def test_rotated_boxes_with_negative_sides_are_dropped_and_counted(end2end):
    if end2end:
        rows = np.zeros((1, 300, 7), np.float32)
        rows[0, :2] = [[100, 300, 40, 10, 0.9, 0, 0.5], [300, 300, -40, 10, 0.8, 0, 0.5]]
    else:
        rows = raw(1, 8400, 1, [(0, [80, 295, 120, 305], 0, 0.9, [0.5]), (0, [320, 295, 280, 305], 0, 0.8, [0.5])], 1)
    head = choose(network({"o": rows}, (640, 640)), "yolo-obb").head
    dropped = Dropped()
    clean = sanitize(head.decode({"o": rows}, [WIDE], head.thresholds)[0], 1280, 720, dropped)
    assert len(clean) == 1 and clean.confidence[0] == pytest.approx(0.9) and dropped == {"empty": 1}


def test_rows_that_may_be_raw_or_finished_need_a_word():
    unknown = network({"o": (1, 500, 7)}, inputs=[TensorInfo("images", (1, 3, None, None))])
    with pytest.raises(ConfigError, match="raw or end-to-end"):
        choose(unknown, "yolo-obb")
    assert not choose(unknown, "yolo-obb", "channels-last").head.end2end
    assert choose(network({"o": (1, 500, 7)}, labels="abc"), "yolo-obb").head.end2end


def test_angles_are_said_one_way():
    rows = np.zeros((1, 300, 7), np.float32)
    rows[0, :3] = [[100, 100, 40, 10, 0.9, 0, 2.0], [100, 300, 40, 10, 0.8, 0, -0.3], [300, 100, 40, 10, 0.7, 0, 4.0]]
    square = ImageTransform.plan((640, 640), (640, 640))
    head = choose(network({"o": rows}, (640, 640)), "yolo-obb").head
    found = head.decode({"o": rows}, [square], head.thresholds)[0]
    assert ((found.obb[:, 4] >= 0) & (found.obb[:, 4] < math.pi / 2)).all()
    given = obb_corners(rows[0, :3][:, [0, 1, 2, 3, 6]])
    for mine, theirs in zip(obb_corners(found.obb), given):
        np.testing.assert_allclose(sorted(mine.round(2).tolist()), sorted(theirs.round(2).tolist()), atol=0.02)
