"""Result kinds: columns are checked, picked, merged and named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gstinfer import (
    Attribute,
    Classifications,
    Detections,
    FrameResults,
    Mask,
    ResultError,
    SegmentationMap,
    Tensors,
    Text,
)

BOXES = np.array([[0, 0, 10, 10], [5, 5, 20, 30], [1, 2, 3, 4]], np.float32)


def full() -> Detections:
    masks = np.zeros((3, 40, 40), bool)
    masks[0, 2:5, 3:7] = True
    return Detections(
        BOXES,
        [0.9, 0.8, 0.7],
        [1, 2, 3],
        tracker_id=[7, -1, 9],
        label=["a", "b", "c"],
        mask=masks,
        obb=np.zeros((3, 5)),
        keypoints=np.zeros((3, 4, 3)),
        attributes=[(Attribute("red", 1, 0.5),), (), ()],
        data={"speed": np.array([1.0, 2.0, 3.0]), "note": ["x", "y", "z"]},
    )


def test_columns_have_one_type_each():
    found = full()
    types = [found.xyxy, found.confidence, found.class_id, found.tracker_id, found.component_id, found.obb]
    assert [c.dtype.name for c in types] == ["float32", "float32", "int32", "int64", "int32", "float32"]
    plain = Detections(BOXES.tolist())
    assert plain.confidence.tolist() == [1, 1, 1] and plain.class_id.tolist() == [0, 0, 0]
    assert plain.tracker_id is None and plain.mask is None


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"xyxy": np.zeros((3, 5))}, r"xyxy must have shape \[\?,4\], got \[3, 5\]"),
        ({"xyxy": "boxes"}, "xyxy cannot be read as float32"),
        ({"confidence": [1, 2]}, r"confidence must have shape \[3\], got \[2\]"),
        ({"confidence": []}, r"confidence must have shape \[3\], got \[0\]"),
        ({"class_id": np.zeros((3, 1))}, r"class_id must have shape \[3\]"),
        ({"tracker_id": [1]}, "tracker_id"),
        ({"label": ["a"]}, "label must have 3 entries, got 1"),
        ({"obb": np.zeros((3, 4))}, "obb"),
        ({"keypoints": np.zeros((3, 17, 2))}, r"keypoints must have shape \[3,\?,3\]"),
        ({"mask": np.zeros((2, 4, 4))}, "mask"),
        ({"attributes": [()]}, "attributes"),
        ({"data": {"speed": [1]}}, r"data\['speed'\] must have 3 rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_columns_of_another_length_or_shape_are_refused(columns, words):
    with pytest.raises(ResultError, match=words):
        Detections(**{"xyxy": BOXES, **columns})


def test_rotated_boxes_alone_give_their_hull():
    found = Detections(None, obb=[[10, 20, 4, 2, np.pi / 2]])
    assert np.allclose(found.xyxy, [[9, 18, 11, 22]], atol=1e-5)


@pytest.mark.parametrize(
    ("index", "rows"),
    [([2, 0], [2, 0]), (slice(1, None), [1, 2]), (np.array([True, False, True]), [0, 2]), (1, [1]), (-1, [2]),
     ([], []), (np.array([], int), [])],
)  # fmt: skip
def test_picking_rows_picks_in_every_column(index, rows):
    found, all_ = full()[index], full()
    assert len(found) == len(rows)
    for n, row in enumerate(rows):
        assert found.xyxy[n].tolist() == BOXES[row].tolist()
        assert found.label[n] == all_.label[row] and found.tracker_id[n] == all_.tracker_id[row]
        assert found.mask[n].bitmap.tolist() == all_.mask[row].bitmap.tolist()
        assert found.attributes[n] == all_.attributes[row]
        assert found.data["speed"][n] == all_.data["speed"][row] and found.data["note"][n] == all_.data["note"][row]
    assert found.keypoints.shape == (len(rows), 4, 3)


def test_names():
    found = Detections(BOXES, class_id=[0, 2, 99])
    assert found.named(["cat", "dog", "owl"]).label == ["cat", "owl", "99"]
    assert found.named({99: "ufo"}).label == ["0", "2", "ufo"]
    assert found.named(None).label == ["0", "2", "99"]
    assert full().named(["x"] * 9).label == ["a", "b", "c"], "names that are there stay"


def test_merge_fills_what_only_some_have():
    merged = Detections.merge([full(), Detections.empty(), Detections(BOXES[:1], class_id=[5])])
    assert len(merged) == 4
    assert merged.tracker_id.tolist() == [7, -1, 9, -1]
    assert merged.label == ["a", "b", "c", "5"]
    assert merged.mask[3].bitmap.size == 0 and merged.attributes[3] == ()
    assert merged.obb[3].tolist() == [5, 5, 10, 10, 0]
    assert merged.keypoints[3, :, 2].tolist() == [-1] * 4, "absent points"
    assert merged.data["note"] == ["x", "y", "z", None]
    assert len(Detections.merge([])) == 0


def test_rle_of_a_hand_made_mask():
    """Column-major, zeros first: the 3 x 4 picture below reads 0 0 1 | 1 1 1 | 0 1 0 | 0 0 0 down its columns."""
    picture = np.array([[0, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0]], bool)
    assert Mask(0, 0, picture).rle(4, 3) == {"size": [3, 4], "counts": [2, 4, 1, 1, 4]}
    assert Mask(0, 0, np.ones((3, 4), bool)).rle(4, 3) == {"size": [3, 4], "counts": [0, 12]}
    assert Mask(0, 0, np.zeros((0, 0), bool)).rle(4, 3) == {"size": [3, 4], "counts": [12]}
    assert Mask(3, 2, np.ones((1, 1), bool)).rle(4, 3) == {"size": [3, 4], "counts": [11, 1]}


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-4, 10), st.integers(-4, 10), st.integers(0, 2**32 - 1))
def test_rle_decodes_to_the_frame(width, height, x, y, seed):
    bitmap = np.random.default_rng(seed).random((4, 5)) < 0.6
    mask = Mask(x, y, bitmap)
    code = mask.rle(width, height)
    counts = code["counts"]
    assert sum(counts) == width * height and min(counts[1:], default=1) > 0
    flat = np.concatenate([np.full(n, i % 2, bool) for i, n in enumerate(counts)])
    assert np.array_equal(flat.reshape(width, height).T, mask.to_frame(width, height))


def test_masks_are_cut_to_their_boxes():
    whole = np.zeros((40, 50), bool)
    whole[10:20, 5:9] = True
    tight = Mask.from_frame(whole)
    assert (tight.x, tight.y, tight.bitmap.shape) == (5, 10, (10, 4))
    assert np.array_equal(tight.to_frame(50, 40), whole)
    boxed = Mask.from_frame(whole, (4.5, 9.2, 7.1, 15))
    assert (boxed.x, boxed.y, boxed.bitmap.shape) == (4, 9, (6, 4))
    assert Mask.from_frame(np.zeros((4, 4))).bitmap.size == 0
    assert np.array_equal(full().mask[0].to_frame(40, 40)[2:5, 3:7], np.ones((3, 4), bool))


def test_classifications():
    found = Classifications([3, 1], [0.9, 0.1])
    assert found.named(["a", "b", "c", "d"]).label == ["d", "b"]
    assert [a.label for a in found.attributes()] == ["3", "1"]
    assert len(Classifications(4, 0.5)) == 1
    with pytest.raises(ResultError, match="as many"):
        Classifications([1, 2], [0.5])
    with pytest.raises(ResultError, match="label"):
        Classifications([1], [0.5], label=["a", "b"])


def test_segmentation_needs_a_map():
    assert SegmentationMap(np.zeros((2, 3))).class_map.dtype == np.int32
    with pytest.raises(ResultError, match=r"\[h,w\], got \[1, 2, 3\]"):
        SegmentationMap(np.zeros((1, 2, 3)))


def test_frame_results_collect_every_kind():
    results = FrameResults()
    words, raw = Text("a street"), Tensors({"out": np.zeros(3)})
    results.add(None)
    assert results.detections is None
    results.add((Detections(BOXES), Classifications([1], [0.5]), SegmentationMap(np.zeros((2, 2))), words, raw))
    results.add(Detections(BOXES[:1]))
    assert len(results.detections) == 4
    assert len(results.classifications) == 1 and results.segmentation is not None
    assert results.texts == [words] and results.tensors == [raw]
    with pytest.raises(ResultError, match="type dict"):
        results.add({"boxes": []})


class TestParents:
    """Rows of the objects that others were found on stay right whatever becomes of the rows."""

    def found(self) -> Detections:
        boxes = [[n, 0, n + 1, 1] for n in range(5)]
        return Detections(boxes, parent=[-1, -1, 0, 1, 3])

    @pytest.mark.parametrize(
        ("rows", "right"),
        [
            ([0, 1, 2, 3, 4], [-1, -1, 0, 1, 3]),
            ([1, 3, 4], [-1, 0, 1]),
            ([4, 3, 1], [1, 2, -1]),
            ([2, 4], [-1, -1]),
            ([1, 1, 3], [-1, -1, 0]),
            ([], []),
            (slice(2, None), [-1, -1, 1]),
            (np.array([True, False, True, False, False]), [-1, 0]),
        ],
        ids=str,
    )
    def test_choosing_rows(self, rows, right):
        assert self.found()[rows].parent.tolist() == right

    def test_merging(self):
        other = Detections([[0, 0, 9, 9]])
        assert Detections.merge([other, self.found(), self.found()[[1, 3]]]).parent.tolist() == [
            -1, -1, -1, 1, 2, 4, -1, 6,
        ]  # fmt: skip
        assert Detections.merge([other, other]).parent is None

    def test_wrong_ones_are_refused(self):
        with pytest.raises(ResultError, match=r"Detections.parent must have shape \[1\]"):
            Detections([[0, 0, 1, 1]], parent=[0, 0])


def test_rows_of_classifications():
    found = Classifications([3, 1, 2], [0.5, 0.3, 0.2], ["c", "a", "b"])
    assert found[found.confidence > 0.25].label == ["c", "a"]
    assert found[:1].class_id.tolist() == [3] and found[[2, 0]].confidence.tolist() == pytest.approx([0.2, 0.5])
