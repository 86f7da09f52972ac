"""Our preprocessing and decoding against Ultralytics' own, on its architectures with random weights.

Both run the same ONNX file on the same picture through ONNX Runtime. Random weights give boxes everywhere, many of them
alike, so that a wrong rule shows; that boxes mean something is for trained networks to show.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from ultralytics_networks import exported, library, picture

from gstinfer import as_model
from gstinfer.convert import to_result
from gstinfer.geometry import obb_corners
from gstinfer.sanitize import Dropped, sanitize

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

CONFIDENCE, IOU, MOST = 0.25, 0.6, 3000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Exports architectures, each once."""
    before = dict(os.environ)
    folder = tmp_path_factory.mktemp("ultralytics")
    library(folder)
    files: dict = {}

    def make(name, classes, size, **changes):
        key = (name, classes, size, str(changes))
        if key not in files:
            place = folder / f"made{len(files)}"
            place.mkdir()
            files[key] = exported(place, name, classes, size, seed=4, **changes)
        return files[key]

    yield make
    os.environ.clear()
    os.environ.update(before)


def both(path, frame, confidence=CONFIDENCE):
    """(theirs, ours) for one RGB frame: the same input tensor, then the same output tensors decoded by each."""
    import torch
    from ultralytics import YOLO

    bgr = np.ascontiguousarray(frame[..., ::-1])
    settings = {"conf": CONFIDENCE, "iou": IOU, "max_det": MOST, "verbose": False, "rect": False, "retina_masks": True}
    yolo = YOLO(str(path))
    yolo.predict(bgr, **settings)
    model = as_model(str(path), confidence_threshold=confidence, iou_threshold=IOU, max_detections=MOST)
    runtime, seen = model.model._runtime, {}
    run = runtime.run

    def recorded(feeds):
        seen["input"], seen["outputs"] = feeds["images"].copy(), run(feeds)
        return {name: value.copy() for name, value in seen["outputs"].items()}

    runtime.run = recorded
    ours = model.predict(frame)[0]
    pixels = yolo.predictor.preprocess([bgr])
    # Division by 255 and multiplication by 1/255 differ in the last bit.
    assert np.abs(pixels.numpy() - seen["input"]).max() < 1e-6
    tensors = [torch.from_numpy(value.copy()) for value in seen["outputs"].values()]
    theirs = yolo.predictor.postprocess(tensors if len(tensors) > 1 else tensors[0], pixels, [bgr])[0]
    found = to_result(theirs)
    if getattr(found, "obb", None) is not None:
        found = found[(found.obb[:, 2:4] > 0).all(1)]  # random sides may be negative, which is no box for us
    return sanitize(found, frame.shape[1], frame.shape[0], Dropped()), ours


def check(theirs, ours, part=0.98):
    """The same objects but for two in a hundred; gives both in the same order.

    Where random scores are equal the order is free, and overlaps at the threshold itself depend on the last bit. Ultralytics
    scales both axes by one factor, where ours are those of the picture that was really resized: up to 0.3 pixels here.
    """
    assert 1 <= len(theirs) < MOST, "the network is no test"
    assert abs(len(theirs) - len(ours)) <= (1 - part) * len(theirs)
    same = (theirs.class_id[:, None] == ours.class_id) & (np.abs(theirs.confidence[:, None] - ours.confidence) < 1e-3)
    where = [d.xyxy if d.obb is None else np.concatenate([d.xyxy, d.obb[:, :2]], 1) for d in (theirs, ours)]
    apart = np.where(same, np.abs(where[0][:, None] - where[1]).max(-1), np.inf)
    best = apart.argmin(1)
    rows = np.flatnonzero(apart.min(1) < 0.3)
    assert len(rows) >= part * len(theirs)
    return theirs[rows], ours[best[rows]]


FRAMES = [(272, 640), (500, 333), (97, 131)]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("name", "classes", "size"),
    [("yolo11n", 3, (320, 320)), ("yolov8n", 80, (192, 320)), ("yolo26n", 2, (320, 256)), ("yolo26n", 80, (320, 320))],
)
def test_detection(made, name, classes, size, frame):
    path = made(name, classes, size)
    theirs, ours = check(*both(path, picture(*frame, seed=frame[0])))
    assert theirs.label == ours.label


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(("name", "classes"), [("yolo11n-seg", 2), ("yolo26n-seg", 7)])
def test_masks(made, name, classes, frame):
    theirs, ours = check(*both(made(name, classes, (320, 320)), picture(*frame, seed=frame[0])))
    height, width = frame
    scores = []
    for their, our in zip(theirs.mask, ours.mask):
        a, b = their.to_frame(width, height), our.to_frame(width, height)
        if max(a.sum(), b.sum()) >= 50:
            scores.append((a & b).sum() / (a | b).sum())
    # Masks of random weights are all edge. Ultralytics cuts the padding at whole pixels of enlarged prototypes, which is
    # exact where the padding is a whole number of cells, as in the first frame.
    assert len(scores) > 3 and np.mean(scores) > (0.97 if frame == FRAMES[0] else 0.8)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("name", "classes", "points"), [("yolo11n-pose", 1, [17, 3]), ("yolo11n-pose", 4, [5, 2]), ("yolo26n-pose", 2, [6, 3])]
)
def test_keypoints(made, name, classes, points, frame):
    path = made(name, classes, (256, 320), kpt_shape=points)
    theirs, ours = check(*both(path, picture(*frame, seed=frame[0])))
    assert theirs.keypoints.shape == ours.keypoints.shape == (len(theirs), points[0], 3)
    inside = (ours.keypoints[..., :2] > 0).all(-1) & (ours.keypoints[..., :2] < [frame[1] - 1, frame[0] - 1]).all(-1)
    assert inside.any() or len(ours) < 5
    assert np.abs(theirs.keypoints - ours.keypoints)[inside].max(initial=0) < 0.3


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(("name", "classes"), [("yolo11n-obb", 5), ("yolo26n-obb", 3)])
def test_rotated_boxes(made, name, classes, frame):
    # Random weights of the end-to-end head give sides below zero, which only we leave out.
    part = 0.95 if "26" in name else 0.98
    theirs, ours = check(*both(made(name, classes, (320, 320)), picture(*frame, seed=frame[0])), part=part)
    # The same rectangle has several spellings of sides and angle: corners are compared, in any order.
    distance = np.linalg.norm(obb_corners(theirs.obb)[:, :, None] - obb_corners(ours.obb)[:, None], axis=-1)
    assert distance.min(2).max() < 0.6


@pytest.mark.parametrize(("name", "classes"), [("yolo11n-cls", 7), ("yolo26n-cls", 1000)])
def test_classes(made, name, classes):
    """On frames of the network's own size, so that cutting them to it plays no part."""
    path = made(name, classes, (224, 224))
    theirs, ours = both(path, picture(224, 224, seed=classes), confidence=0.0)
    ours.class_id, ours.confidence = ours.class_id[:5], ours.confidence[:5]
    ours.label = ours.label[:5]
    assert theirs.class_id.tolist() == ours.class_id.tolist() and theirs.label == ours.label
    assert np.abs(theirs.confidence - ours.confidence).max() < 1e-3


@pytest.mark.parametrize("frame", FRAMES)
def test_semantic_maps(made, frame):
    """Their export gives finished class maps, of which each shows the padded picture."""
    from ultralytics.utils import ROOT

    if not (ROOT / "cfg/models/26/yolo26-sem.yaml").is_file():
        pytest.skip("this release of ultralytics has no semantic segmentation")
    theirs, ours = both(made("yolo26n-sem", 4, (224, 320)), picture(*frame, seed=frame[0]))
    assert ours.label == list("0123") and len(np.unique(ours.class_map)) > 2, "the network is no test"
    # Ours has the resolution of the output, theirs that of the frame.
    rows, columns = (np.arange(n) * size // n for n, size in zip(frame, ours.class_map.shape))
    enlarged = ours.class_map[rows[:, None], columns]
    assert theirs.class_map.shape == frame
    assert (theirs.class_map == enlarged).mean() > 0.97


@pytest.mark.parametrize(
    ("name", "classes", "changes"),
    [
        ("yolo11n", 3, {}),
        ("yolo11n-seg", 2, {}),
        ("yolo26n-pose", 2, {"kpt_shape": [6, 3]}),
        ("yolo11n-obb", 5, {}),
        ("yolo11n-cls", 7, {}),
    ],
)
def test_openvino_gives_what_onnx_runtime_gives(made, name, classes, changes):
    pytest.importorskip("openvino")
    size = (224, 224) if "cls" in name else (256, 320) if "pose" in name else (320, 320)
    path, frame = made(name, classes, size, **changes), picture(272, 640, seed=272)
    options = {"max_detections": MOST} if "cls" in name else {"confidence_threshold": CONFIDENCE, "max_detections": MOST}
    one, other = (as_model(spec, **options).predict(frame)[0] for spec in (str(path), f"openvino:{path}"))
    if "cls" in name:
        assert one.class_id.tolist() == other.class_id.tolist()
        assert np.abs(one.confidence - other.confidence).max() < 1e-3
        return
    # Rounding of other kernels, multiplied by random weights.
    theirs, ours = check(one, other, part=0.95)
    if theirs.keypoints is not None:
        assert np.median(np.abs(theirs.keypoints - ours.keypoints)) < 0.1
    if theirs.mask is not None:
        assert sum(m.bitmap.sum() for m in ours.mask) == pytest.approx(sum(m.bitmap.sum() for m in theirs.mask), rel=0.02)


@pytest.mark.parametrize("name", ["yolo11n", "yolo26n-pose"])
def test_the_package_itself_as_a_model(made, name):
    """``ultralytics:FILE`` and our own decoding of the same file agree, in a batch of different frames."""
    path = made(name, 3, (256, 256))
    options = {"confidence_threshold": CONFIDENCE, "iou_threshold": IOU, "max_detections": MOST}
    frames = [picture(200, 320, seed=1), picture(180, 160, seed=2)]
    theirs = as_model(f"ultralytics:{path}", **options)
    ours = as_model(str(path), **options)
    for frame in frames:
        # The last bit of the input is multiplied by random weights.
        check(theirs.predict(frame)[0], ours.predict(frame)[0], part=0.97)


def test_an_architecture_is_made_from_yaml(made):
    made("yolo11n", 3, (256, 256))
    model = as_model("ultralytics:yolo11n.yaml")
    assert len(model.model.labels) == 80 and model.predict([picture(64, 64, 0)] * 2)[1] is not None
