"""Trained networks on real pictures: what is found must make sense."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gstinfer.geometry import ImageTransform
from gstinfer.heads import choose
from gstinfer.heads.facts import input_size
from gstinfer.preprocess import Preprocessing

from .support import described, session


@pytest.fixture(scope="module")
def pictures(bikes):
    """Every twentieth frame of the video, BGR."""
    import cv2

    video, frames = cv2.VideoCapture(str(bikes)), []
    for index in range(250):
        more, frame = video.read()
        if not more:
            break
        if index % 20 == 0:
            frames.append(frame)
    assert len(frames) == 13
    return frames


def shown(picture, spec, transform):
    """A picture as the network's input, by OpenCV and NumPy alone."""
    import cv2

    canvas = np.full((spec.size[1], spec.size[0], 3), spec.pad_value, np.uint8)
    (left, top), (width, height) = transform.pad, transform.content
    canvas[top : top + height, left : left + width] = cv2.resize(picture, transform.content)
    canvas = canvas if spec.color == "bgr" else canvas[..., ::-1]
    values = (canvas * spec.scale - np.array(spec.mean)) / np.array(spec.std)
    values = values if spec.layout == "NHWC" else values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None].astype(spec.dtype))


def found(path, pictures, labels=None, size=None):
    opened = session(path) if not isinstance(path, bytes) else session_of(path)
    info = described(opened, labels)
    decision = choose(info)
    fields = type(decision.head).preprocessing(info)
    fields |= {"size": size or input_size(info), "dtype": info.inputs[0].dtype}
    spec = Preprocessing(**fields)
    results = []
    for picture in pictures:
        transform = ImageTransform.plan((picture.shape[1], picture.shape[0]), spec.size, spec.resize)
        values = opened.run(None, {info.inputs[0].name: shown(picture, spec, transform)})
        outputs = dict(zip([o.name for o in info.outputs], values))
        results += decision.head.decode(outputs, [transform], decision.head.thresholds)
    return decision, [r.named(decision.head.labels) for r in results]


def session_of(model):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def nanodet(assets, pictures):
    labels = tuple((assets / "coco80.txt").read_text().split("\n")[:80])
    return found(assets / "models" / "nanodet_coco_416.onnx", pictures, labels)


@pytest.fixture(scope="module")
def movenet(assets, pictures):
    return found(assets / "models" / "movenet_multipose_256x320.onnx", pictures)


def test_nanodet_finds_people_and_cars(nanodet):
    decision, results = nanodet
    assert decision.head.name == "gfl"
    counts = Counter(label for r in results for label in r.label)
    assert counts["person"] >= 6 and counts["car"] >= 6
    assert counts["refrigerator"] == 0  # what a stretched input made it see


def test_ssd_finds_people_cars_and_bicycles(assets, pictures):
    decision, results = found(assets / "models" / "ssdlite_mobilenet_v2_coco_300.onnx", pictures)
    assert decision.head.name == "ssd"
    counts = Counter(label for r in results for label in r.label)
    assert counts["person"] >= 3 and counts["car"] >= 2 and counts["bicycle"] >= 1
    assert sum(counts.values()) - counts["person"] - counts["car"] - counts["bicycle"] <= 3


def test_movenet_finds_people_head_up(movenet):
    decision, results = movenet
    assert decision.head.name == "movenet" and decision.head.labels == ("person",)
    people = [(k, b) for r in results for k, b in zip(r.keypoints, r.xyxy)]
    assert len(people) >= 3
    upright = 0
    for keypoints, box in people:
        nose, ankles = keypoints[0, 1], keypoints[15:, 1].mean()
        upright += nose < ankles
        inside = (keypoints[:, 0] > box[0] - 30) & (keypoints[:, 0] < box[2] + 30)
        assert inside[keypoints[:, 2] > 0.4].all()
    assert upright >= 0.8 * len(people)


def test_movenet_agrees_with_nanodet_about_people(nanodet, movenet):
    detected, posed = nanodet[1], movenet[1]
    agreed = total = 0
    for people, poses in zip(detected, posed):
        boxes = people.xyxy[[label == "person" for label in people.label]]
        for pose in poses.xyxy:
            total += 1
            shared = np.minimum(boxes[:, 2:], pose[2:]) - np.maximum(boxes[:, :2], pose[:2])
            area = np.maximum(shared, 0).prod(1)
            whole = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (pose[2:] - pose[:2]).prod() - area
            agreed += bool((area / whole > 0.5).any())
    assert agreed >= 0.6 * total


def test_centerface_finds_faces_where_movenet_finds_noses(assets, pictures, movenet):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(assets / "models" / "centerface.onnx"))
    for value in [*model.graph.input[:1], *model.graph.output]:
        dims = value.type.tensor_type.shape.dim
        for index, name in ((0, "batch"), (2, f"{value.name}_h"), (3, f"{value.name}_w")):
            dims[index].dim_param = name
    del model.graph.value_info[:]
    decision, results = found(model.SerializeToString(), pictures, size=(640, 288))
    assert decision.head.name == "centerface"
    faces = [(b, k) for r in results for b, k in zip(r.xyxy, r.keypoints)]
    assert len(faces) >= 3
    for box, keypoints in faces:
        assert (box[2:] - box[:2]).max() < 100
        eyes, mouth = keypoints[:2, 1].mean(), keypoints[3:, 1].mean()
        assert box[1] < eyes < mouth < box[3]
    for people, heads in zip(movenet[1], results):
        for nose in people.keypoints[:, :1, :2]:
            assert ((heads.xyxy[:, :2] - 20 < nose) & (nose < heads.xyxy[:, 2:] + 20)).all(1).any()
