"""Results of other libraries -> ours, by shape alone: stand-ins with the same attributes, and the real ones where installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gstinfer import Classifications, Detections, as_model
from gstinfer.convert import to_result
from gstinfer.convert.arrays import name_ids, to_numpy
from gstinfer.errors import ResultError
from gstinfer.geometry import obb_corners
from gstinfer.results import SegmentationMap

BOXES = np.array([[10, 20, 50, 60], [0, 0, 8, 8]], np.float32)
NAMES = {0: "person", 1: "bicycle", 2: "car"}


class Tensor:
    """A tensor on some device, in a type that NumPy may not know."""

    def __init__(self, array, dtype="torch.float32"):
        self.array, self.dtype = np.asarray(array), dtype

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self.array, "on the host, " + self.dtype)

    def float(self):
        return Tensor(self.array.astype(np.float32), "on the host, torch.float32")

    def numpy(self):
        assert self.dtype.startswith("on the host"), "read on its device"
        assert "bfloat16" not in self.dtype
        return self.array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        return self.array[index]


def test_tensors_are_brought_to_the_host():
    assert to_numpy(Tensor([1, 2])).tolist() == [1, 2]
    assert to_numpy(Tensor([1, 2], "torch.bfloat16")).dtype == np.float32
    assert to_numpy(np.ones(2, np.float16)).dtype == np.float32
    assert to_numpy([1, 2]).tolist() == [1, 2]


def test_names_without_numbers_keep_one_number():
    assert name_ids(["a", "b", "a"])[[0, 2]].tolist() == name_ids(["a", "a"]).tolist()
    assert len(set(name_ids(["a", "b"]).tolist())) == 2 and (name_ids(["a", "b", "ü"]) >= 0).all()


# Ultralytics


def results(**columns: Any) -> SimpleNamespace:
    empty = dict.fromkeys(("boxes", "masks", "probs", "keypoints", "obb", "semantic_mask"))
    return SimpleNamespace(**{**empty, "names": NAMES, "orig_shape": (100, 200), **columns})


def boxes(**columns: Any) -> SimpleNamespace:
    found = {"xyxy": Tensor(BOXES), "conf": Tensor([0.9, 0.4]), "cls": Tensor([2.0, 0.0]), "id": None}
    return SimpleNamespace(**{**found, **columns})


def test_ultralytics_boxes():
    found = to_result(results(boxes=boxes()))
    assert isinstance(found, Detections)
    assert found.xyxy.tolist() == BOXES.tolist() and found.class_id.tolist() == [2, 0]
    assert found.label == ["car", "person"] and found.tracker_id is None
    assert to_result(results(boxes=boxes(id=Tensor([7.0, 9.0])))).tracker_id.tolist() == [7, 9]


def test_ultralytics_names_may_be_a_list_and_classes_unknown():
    found = to_result(results(boxes=boxes(cls=Tensor([1.0, 9.0])), names=["a", "b"]))
    assert found.label == ["b", "9"]


def test_ultralytics_masks_lie_in_the_letterboxed_input():
    """A frame of 200x100 in an input of 64x64 has its rows 16..48."""
    mask = np.zeros((2, 64, 64), np.float32)
    mask[0, 24:32, 8:16] = 1
    placed = boxes(xyxy=Tensor([[20, 20, 60, 60], [0, 0, 8, 8]]))
    found = to_result(results(boxes=placed, masks=SimpleNamespace(data=Tensor(mask))))
    whole = found.mask[0].to_frame(200, 100)
    rows, columns = np.flatnonzero(whole.any(1)), np.flatnonzero(whole.any(0))
    assert abs(rows[0] - 25) <= 1 and abs(rows[-1] - 49) <= 1
    assert abs(columns[0] - 25) <= 1 and abs(columns[-1] - 49) <= 1
    assert not found.mask[1].bitmap.any()


def test_ultralytics_masks_of_the_frames_own_size():
    mask = np.zeros((2, 100, 200), np.float32)
    mask[0, 20:60, 10:50] = 1
    found = to_result(results(boxes=boxes(), masks=SimpleNamespace(data=Tensor(mask))))
    assert np.array_equal(found.mask[0].to_frame(200, 100), mask[0] > 0)


@pytest.mark.parametrize("columns", [2, 3])
def test_ultralytics_keypoints(columns):
    points = np.arange(2 * 4 * columns, dtype=np.float32).reshape(2, 4, columns)
    found = to_result(results(boxes=boxes(), keypoints=SimpleNamespace(data=Tensor(points))))
    assert found.keypoints.shape == (2, 4, 3)
    assert found.keypoints[..., :2].tolist() == points[..., :2].tolist()
    assert found.keypoints[0, 0, 2] == (1 if columns == 2 else points[0, 0, 2])


def test_ultralytics_rotated_boxes():
    rotated = np.array([[50, 50, 40, 20, 0.5], [20, 20, 4, 8, 0]], np.float32)
    columns = {"conf": Tensor([0.9, 0.4]), "cls": Tensor([1.0, 0.0]), "id": None}
    found = to_result(results(obb=SimpleNamespace(xywhr=Tensor(rotated), **columns)))
    assert np.allclose(found.obb, rotated)
    assert np.allclose(found.xyxy[1], [18, 16, 22, 24])


def test_ultralytics_classes():
    scores = np.array([0.05, 0.5, 0.1, 0.2, 0.1, 0.04, 0.01], np.float32)
    found = to_result(results(probs=SimpleNamespace(data=Tensor(scores))))
    assert isinstance(found, Classifications)
    assert found.class_id.tolist() == [1, 3, 2, 4, 0] and found.label[:2] == ["bicycle", "3"]
    assert found.confidence[0] == np.float32(0.5)


def test_ultralytics_class_map():
    classes = np.arange(6).reshape(2, 3)
    found = to_result(results(orig_shape=(2, 3), semantic_mask=SimpleNamespace(data=Tensor(classes))))
    assert isinstance(found, SegmentationMap) and found.class_map.tolist() == classes.tolist()


def test_ultralytics_nothing_found():
    none = boxes(xyxy=Tensor(np.zeros((0, 4))), conf=Tensor([]), cls=Tensor([]))
    assert len(to_result(results(boxes=none, keypoints=SimpleNamespace(data=Tensor(np.zeros((0, 17, 3))))))) == 0
    assert to_result(results()) is None


# supervision


@dataclass
class SvDetections:
    """The columns of ``supervision.Detections``."""

    xyxy: Any
    mask: Any = None
    confidence: Any = None
    class_id: Any = None
    tracker_id: Any = None
    data: dict = field(default_factory=dict)


def test_supervision_detections():
    found = to_result(SvDetections(BOXES, None, np.array([0.9, 0.4]), np.array([1, 2]), np.array([5, 6])))
    assert found.xyxy.tolist() == BOXES.tolist() and found.tracker_id.tolist() == [5, 6]
    assert found.class_id.tolist() == [1, 2] and found.label is None


def test_supervision_columns_that_are_none():
    found = to_result(SvDetections(BOXES))
    assert found.confidence.tolist() == [1, 1] and found.class_id.tolist() == [0, 0]


def test_supervision_masks_names_and_further_columns():
    masks = np.zeros((2, 100, 200), bool)
    masks[0, 30:40, 20:30] = True
    data = {"class_name": np.array(["cat", "dog"]), "speed": np.array([1.5, 2.5]), "source_shape": (100, 200)}
    found = to_result(SvDetections(BOXES, masks, np.array([0.9, 0.4]), np.array([0, 1]), data=data))
    assert found.label == ["cat", "dog"] and found.data["speed"].tolist() == [1.5, 2.5] and list(found.data) == ["speed"]
    assert found.mask[0].to_frame(200, 100).sum() == 100 and not found.mask[1].bitmap.any()


def test_supervision_rotated_boxes_are_read_from_their_corners():
    rotated = np.array([[50, 50, 40, 20, 0.5], [20, 20, 4, 8, -0.3]], np.float32)
    found = to_result(SvDetections(BOXES, confidence=np.ones(2), data={"xyxyxyxy": obb_corners(rotated)}))
    distance = np.linalg.norm(obb_corners(found.obb)[:, :, None] - obb_corners(rotated)[:, None], axis=-1)
    assert distance.min(2).max() < 1e-3


def test_supervision_keypoints():
    points = np.array([[[10, 20], [30, 50]], [[1, 2], [3, 4]]], np.float32)
    item = SimpleNamespace(xy=points, class_id=np.array([0, 0]), confidence=np.array([[0.9, 0.2], [0.5, 0.6]]), data={})
    found = to_result(item)
    assert found.keypoints[0].tolist() == [[10, 20, pytest.approx(0.9)], [30, 50, pytest.approx(0.2)]]
    assert found.xyxy[0].tolist() == [10, 20, 30, 50] and found.confidence.tolist() == [1, 1]


def test_supervision_classifications():
    found = to_result(SimpleNamespace(class_id=np.array([3, 1]), confidence=np.array([0.2, 0.7])))
    assert isinstance(found, Classifications) and found.class_id.tolist() == [1, 3]


def test_the_real_supervision():
    sv = pytest.importorskip("supervision")
    found = to_result(sv.Detections(BOXES, confidence=np.array([0.9, 0.4]), class_id=np.array([1, 2])))
    assert found.xyxy.tolist() == BOXES.tolist() and found.class_id.tolist() == [1, 2]
    assert len(to_result(sv.Detections.empty())) == 0


# torchvision


def test_torchvision_detector():
    found = to_result({"boxes": Tensor(BOXES), "labels": Tensor([18, 1]), "scores": Tensor([0.9, 0.4])})
    assert found.class_id.tolist() == [18, 1] and found.confidence.tolist() == pytest.approx([0.9, 0.4])


def test_torchvision_masks_and_keypoints():
    masks = np.zeros((2, 1, 100, 200), np.float32)
    masks[0, 0, 20:60, 10:50] = 0.7
    masks[1, 0] = 0.3
    found = to_result(
        {
            "boxes": Tensor(BOXES), "labels": Tensor([1, 1]), "scores": Tensor([0.9, 0.4]), "masks": Tensor(masks),
            "keypoints": Tensor(np.ones((2, 17, 3))), "keypoints_scores": Tensor(np.full((2, 17), 8.0)),
        }
    )  # fmt: skip
    assert found.mask[0].to_frame(200, 100).sum() == 1600 and not found.mask[1].bitmap.any()
    assert found.keypoints.shape == (2, 17, 3) and found.data["keypoint_logits"].shape == (2, 17)


def test_transformers_post_processing_with_names():
    found = to_result({"boxes": BOXES, "scores": [0.9, 0.4], "labels": ["a cat", "a dog"]})
    assert found.label == ["a cat", "a dog"] and found.class_id.tolist() == name_ids(["a cat", "a dog"]).tolist()


def test_transformers_post_processing_with_numbers_and_names():
    found = to_result({"boxes": BOXES, "scores": [0.9, 0.4], "labels": [3, 4], "text_labels": ["x", "y"]})
    assert found.label == ["x", "y"] and found.class_id.tolist() == [3, 4]


# transformers


def test_transformers_object_detection_pipeline():
    rows = [{"score": 0.9, "label": "cat", "box": {"xmin": 1, "ymin": 2, "xmax": 30, "ymax": 40}}]
    found = to_result(rows)
    assert found.xyxy.tolist() == [[1, 2, 30, 40]] and found.label == ["cat"]


def test_transformers_classification_pipeline():
    found = to_result([{"label": "cat", "score": 0.8}, {"label": "dog", "score": 0.1}])
    assert isinstance(found, Classifications) and found.label == ["cat", "dog"]
    assert found.confidence.tolist() == pytest.approx([0.8, 0.1])


def test_transformers_segmentation_pipeline():
    mask = np.zeros((10, 20), np.uint8)
    mask[2:5, 3:9] = 255
    found = to_result([{"label": "a", "score": None, "mask": mask}, {"label": "b", "score": 0.5, "mask": mask * 0}])
    assert found.xyxy.tolist() == [[3, 2, 9, 5]] and found.label == ["a"] and found.confidence.tolist() == [1]


def test_transformers_segments():
    areas = np.full((10, 20), -1)
    areas[2:5, 3:9], areas[6:8, 0:4] = 1, 2
    found = to_result(
        {"segmentation": Tensor(areas), "segments_info": [{"id": 1, "label_id": 7, "score": 0.9}, {"id": 2, "label_id": 3}]}
    )
    assert found.xyxy.tolist() == [[3, 2, 9, 5], [0, 6, 4, 8]] and found.class_id.tolist() == [7, 3]
    assert found.confidence.tolist() == pytest.approx([0.9, 1.0])
    with pytest.raises(ResultError, match=r"\[H,W\], got \[2, 10, 20\]"):
        to_result({"segmentation": np.zeros((2, 10, 20)), "segments_info": []})


def test_an_empty_list_is_nothing_found():
    assert to_result([]) is None


# All of them


@pytest.mark.parametrize("item", [3, "boxes", {"a": 1}, [1, 2], np.zeros((2, 6)), object(), {"boxes": BOXES}])
def test_what_is_not_known_is_refused_with_what_is(item):
    with pytest.raises(ResultError, match="is not supported") as caught:
        to_result(item)
    assert "supervision" in str(caught.value) and "Detections" in str(caught.value)


def test_columns_that_do_not_fit_are_said():
    with pytest.raises(ResultError, match=r"Detections\.confidence must have shape \[2\]"):
        to_result({"boxes": BOXES, "labels": [1, 2], "scores": [0.5]})


def test_a_model_may_return_any_of_them():
    answers = [results(boxes=boxes()), SvDetections(BOXES), {"boxes": BOXES, "scores": [1, 1], "labels": [0, 1]}, None]

    class Mixed:
        labels = ("x", "y", "z")

        def predict(self, batch):
            return [answers[frame.sequence] for frame in batch]

    found = as_model(Mixed()).predict([np.zeros((100, 200, 3), np.uint8)] * 4)
    assert [None if f is None else f.label for f in found] == [["car", "person"], ["x", "x"], ["x", "y"], None]


def test_ours_pass_as_they_are():
    item = Detections(BOXES)
    assert to_result(item) is item and to_result(None) is None
