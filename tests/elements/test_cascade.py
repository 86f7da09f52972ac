"""Inference on objects, without GStreamer: crops, choice, batches, memory of tracked objects, what is attached."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gstinfer import ConfigError, Detections, FrameResults, PredictError, ResultError
from gstinfer.elements.infer import objects
from gstinfer.elements.infer.objects import ObjectStage
from gstinfer.elements.infer.settings import InferSettings
from gstinfer.frames import DropFrame, Frame, FrameBatch
from gstinfer.image import ColorInfo, Image

sys.path.insert(0, str(Path(__file__).parent))
from objects_for_tests import SEEN

BOXES = [[10, 20, 30, 50], [100, 40, 160, 100], [200, 10, 240, 30]]


def gradient(width: int = 256, height: int = 128) -> Image:
    """Red is x, green is y."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[..., 0], picture[..., 1] = np.arange(width), np.arange(height)[:, None]
    return Image.from_array(picture)


def frame(boxes=BOXES, *, sequence: int = 0, stream: str = "s", image: Image | None = None, **columns) -> Frame:
    columns.setdefault("component_id", [1] * len(boxes))
    found = Detections(np.reshape(np.asarray(boxes, np.float32), (-1, 4)), **columns)
    results = FrameResults("first", True, found, stream_id=stream)
    return Frame(image or gradient(), stream, sequence * 40_000_000, sequence, results=results)


@pytest.fixture()
def make():
    """Makes started stages of a model of ``objects_for_tests``."""
    SEEN.clear()
    made = []

    def stage(model: str, notify=None, **settings) -> ObjectStage:
        values = {"process_mode": 2, "device": "cpu", "unique_id": 7, **settings}
        made.append(ObjectStage(InferSettings(model=f"objects_for_tests:{model}", **values), {}, notify))
        made[-1].start()
        return made[-1]

    yield stage
    for one in made:
        one.stop()


def words(one: Frame) -> list[list[tuple[str, int]]]:
    """(label, component) of the attributes of each object."""
    rows = one.results.detections.attributes
    return [[(a.label, a.component_id) for a in row] for row in rows or [()] * len(one.results.detections)]


class TestCrops:
    def test_they_are_the_pixels_of_the_boxes_and_one_batch(self, make):
        one = frame()
        make("FirstPixel").process(FrameBatch((one,)))
        (pictures,) = SEEN
        assert [p.shape for p in pictures] == [(30, 20, 3), (60, 60, 3), (20, 40, 3)]
        assert [p[0, 0].tolist() for p in pictures] == [[10, 20, 0], [100, 40, 0], [200, 10, 0]]
        assert [p[-1, -1].tolist() for p in pictures] == [[29, 49, 0], [159, 99, 0], [239, 29, 0]]
        assert words(one) == [[("10", 7)], [("100", 7)], [("200", 7)]]
        assert one.results.detections.attributes[1][0].confidence == 0.75

    @pytest.mark.parametrize("end", ["finish", "wait"])
    def test_pixels_are_let_go_when_it_is_done(self, make, end):
        one = frame()
        pending = make("Keeps").submit(FrameBatch((one,)))
        getattr(pending, end)()
        assert [f.image.planes for f in SEEN[0]] == [()] * 3
        assert len(one.image.planes) == 1

    def test_whole_frame_facts_stay_as_they_were(self, make):
        one = frame()
        make("FirstPixel").process(FrameBatch((one,)))
        assert (one.results.model, one.results.inferred) == ("first", True)
        bare = Frame(gradient(), "s")
        make("FirstPixel").process(FrameBatch((bare,)))
        assert bare.results == FrameResults()

    @pytest.mark.parametrize("form", ["NV12", "I420"])
    def test_boxes_at_odd_places_begin_at_a_chroma_sample(self, make, form):
        luma = np.tile(np.arange(128, dtype=np.uint8), (64, 1))
        chroma = np.full((32, 64), 128, np.uint8)
        planes = (luma, np.dstack([chroma, chroma])) if form == "NV12" else (luma, chroma, chroma)
        image = Image(form, planes, 128, 64, ColorInfo(full_range=True))
        make("FirstPixel").process(FrameBatch((frame([[11, 7, 31, 28]], image=image),)))
        (picture,) = SEEN[0]
        assert picture.shape == (20, 18, 3)
        assert picture[0, :, 0].tolist() == list(range(12, 30))

    @pytest.mark.parametrize("form", ["RGB", "I420"])
    def test_what_is_next_to_nothing_is_skipped_and_counted(self, make, form):
        image = gradient(64, 64)
        if form == "I420":
            image = Image("I420", (np.zeros((63, 63), np.uint8), *(np.zeros((32, 32), np.uint8),) * 2), 63, 63)
        boxes = [[5, 5, 5.4, 9], [5, 5, 6, 20], [20, 20, 40, 21], [-30, 5, 1, 30]]
        one = frame(boxes, image=image)
        stage = make("Recorder")
        stage.process(FrameBatch((one,)))
        assert SEEN == [] and words(one) == [[]] * 4
        assert stage.stats()["objects-too-small"] == 4

    def test_two_odd_pixels_hold_no_whole_chroma_sample(self, make):
        image = Image("I420", (np.zeros((63, 63), np.uint8), *(np.zeros((32, 32), np.uint8),) * 2), 63, 63)
        stage = make("Recorder")
        stage.process(FrameBatch((frame([[5, 5, 7, 30], [60.5, 60.5, 63, 63]], image=image),)))
        assert stage.stats()["objects-too-small"] == 2 and SEEN == []

    def test_rotated_boxes_are_cut_out_upright(self, make):
        picture = np.zeros((200, 200, 3), np.uint8)
        angle, (cx, cy), (w, h) = 0.5, (100, 90), (80, 30)
        ys, xs = np.mgrid[:200, :200] + 0.5
        along = (xs - cx) * np.cos(angle) + (ys - cy) * np.sin(angle)
        across = -(xs - cx) * np.sin(angle) + (ys - cy) * np.cos(angle)
        picture[(abs(along) < w / 2) & (abs(across) < h / 2)] = (0, 255, 0)
        picture[(along < 0) & (along > -w / 2) & (abs(across) < h / 2)] = (255, 0, 0)
        obb = [[cx, cy, w, h, angle]]
        one = _rotated(picture, obb)
        make("Inner").process(FrameBatch((one,)))
        (crop,) = SEEN[0]
        assert crop.shape == (30, 80, 3)
        assert crop[3:-3, 3:37].reshape(-1, 3).mean(0) == pytest.approx([255, 0, 0], abs=2)
        assert crop[3:-3, 43:-3].reshape(-1, 3).mean(0) == pytest.approx([0, 255, 0], abs=2)
        found = one.results.detections
        # The right lower quarter of the crop, in the frame.
        centre = np.array([cx, cy]) + np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ [20, 7.5]
        assert found.obb[1] == pytest.approx([*centre, 40, 15, angle], abs=0.05)
        assert found.keypoints[1, 0, :2] == pytest.approx([cx, cy], abs=0.05)
        inside = (along > 0.5) & (along < w / 2 - 0.5) & (across > 0.5) & (across < h / 2 - 0.5)
        outside = (along < -0.5) | (across < -0.5) | (along > w / 2 + 0.5) | (across > h / 2 + 0.5)
        mask = found.mask[1].to_frame(200, 200)
        assert mask[inside].all() and not mask[outside].any()


def _rotated(picture, obb) -> Frame:
    found = Detections(None, obb=np.asarray(obb, np.float32), component_id=[1] * len(obb))
    return Frame(Image.from_array(picture), "s", results=FrameResults("first", True, found))


class TestChoice:
    @pytest.mark.parametrize(
        ("settings", "columns", "right"),
        [
            ({}, {}, [0, 1, 2]),
            ({"infer_on_gie_id": 3}, {"component_id": [1, 3, 3]}, [1, 2]),
            ({"infer_on_class_ids": "0:2"}, {"class_id": [0, 1, 2]}, [0, 2]),
            ({"infer_on_gie_id": 1, "infer_on_class_ids": "5;9"}, {"class_id": [9, 5, 2]}, [0, 1]),
            ({"input_object_min_width": 40}, {}, [1, 2]),
            ({"input_object_max_width": 40}, {}, [0, 2]),
            ({"input_object_min_height": 30, "input_object_max_height": 59}, {}, [0]),
            ({}, {"data": {"predicted": np.array([True, False, True])}}, [1]),
            ({}, {"data": {"predicted": [None, True, None]}}, [0, 2]),
        ],
        ids=str,
    )
    def test_by_element_class_size_and_truth(self, make, settings, columns, right):
        one = frame(**columns)
        make("FirstPixel", **settings).process(FrameBatch((one,)))
        assert [row for row, said in enumerate(words(one)) if said] == right
        assert len(SEEN[0]) == len(right)

    def test_an_element_that_finds_nothing_is_named_once(self, make):
        told = []
        stage = make("Recorder", told.append, infer_on_gie_id=2)
        for number in range(120):
            stage.process(FrameBatch((frame(sequence=number),)))
        (error,) = told
        assert "none of the objects of 50 frames is of that element, they are of 1" in str(error)

    def test_limits_that_exclude_each_other_are_refused(self):
        with pytest.raises(ConfigError, match="input-object-max-width=5 is less than input-object-min-width=9"):
            ObjectStage(InferSettings(process_mode=2, input_object_min_width=9, input_object_max_width=5))

    def test_a_tracker_inside_is_refused(self):
        with pytest.raises(ConfigError, match="tracker follows objects of whole frames"):
            ObjectStage(InferSettings(process_mode=2, tracker="bytetrack"))

    def test_every_nth_batch(self, make):
        stage = make("FirstPixel", interval=2)
        frames = [frame(sequence=n) for n in range(7)]
        for one in frames:
            stage.process(FrameBatch((one,)))
        assert [bool(words(one)[0]) for one in frames] == [True, False, False, True, False, False, True]
        assert stage.stats()["skipped"] == 4


class TestBatches:
    def test_objects_of_several_frames_and_streams_share_one(self, make):
        frames = (frame(stream="a"), frame(BOXES[:1], stream="b"), frame([], stream="c"), frame(BOXES[1:], stream="a"))
        make("FirstPixel").process(FrameBatch(frames))
        assert [len(batch) for batch in SEEN] == [6]
        assert [words(one) for one in frames] == [
            [[("10", 7)], [("100", 7)], [("200", 7)]],
            [[("10", 7)]],
            [],
            [[("100", 7)], [("200", 7)]],
        ]

    def test_more_objects_than_batch_size_are_split(self, make):
        one = frame(BOXES * 3)
        make("FirstPixel", batch_size=4).process(FrameBatch((one,)))
        assert [len(batch) for batch in SEEN] == [4, 4, 1]
        assert [said[0][0] for said in words(one)] == ["10", "100", "200"] * 3


class TestTrackedObjects:
    def run(self, stage, boxes, ids=(5,), sequence=0, stream="s", **columns):
        one = frame(boxes, sequence=sequence, stream=stream, tracker_id=list(ids), **columns)
        stage.process(FrameBatch((one,)))
        return one

    def test_classes_are_kept_until_the_object_has_grown(self, make):
        stage = make("FirstPixel")
        assert words(self.run(stage, [[10, 10, 30, 30]])) == [[("10", 7)]]
        for number, side in enumerate((20, 21, 21.8), 1):
            assert words(self.run(stage, [[12, 10, 12 + side, 10 + side]], sequence=number)) == [[("10", 7)]]
        assert len(SEEN) == 1 and stage.stats()["kept"] == 3
        assert words(self.run(stage, [[12, 10, 34, 32]], sequence=4)) == [[("12", 7)]]
        assert len(SEEN) == 2

    def test_growth_counts_from_the_last_time(self, make):
        stage = make("Recorder")
        for number in range(30):
            side = 20 + number
            self.run(stage, [[10, 10, 10 + side, 10 + side]], sequence=number)
        # 20 * sqrt(1.2) ** k, rounded up each time: 22, 25, 28, 31, 34, 38, 42, 47 after 20.
        assert [batch[0].shape[0] for batch in SEEN] == [20, 22, 25, 28, 31, 34, 38, 42, 47]

    def test_the_interval_is_of_frames(self, make):
        stage = make("Recorder", secondary_reinfer_interval=3)
        for number in range(12):
            self.run(stage, [[10, 10, 30, 30]], sequence=number)
        assert len(SEEN) == 3 and stage.stats()["inferred"] == 3

    def test_interval_zero_is_every_frame_and_the_untracked_are_never_known(self, make):
        stage = make("Recorder", secondary_reinfer_interval=0)
        for number in range(3):
            self.run(stage, [[10, 10, 30, 30]], sequence=number)
        assert len(SEEN) == 3
        stage = make("Recorder")
        for number in range(3):
            self.run(stage, [[10, 10, 30, 30]], ids=(-1,), sequence=number)
        assert len(SEEN) == 6

    def test_kept_on_frames_that_are_skipped_and_on_predicted_boxes(self, make):
        stage = make("FirstPixel", interval=1)
        self.run(stage, [[10, 10, 30, 30]])
        assert words(self.run(stage, [[14, 10, 34, 30]], sequence=1)) == [[("10", 7)]]
        told = self.run(stage, [[14, 10, 64, 60]], sequence=2, data={"predicted": np.array([True])})
        assert words(told) == [[("10", 7)]] and len(SEEN) == 1

    def test_streams_and_ids_are_apart_and_a_reset_forgets_one_stream(self, make):
        stage = make("FirstPixel")
        for stream, x in (("a", 10), ("b", 20)):
            self.run(stage, [[x, 10, x + 20, 30], [x + 100, 10, x + 120, 30]], (1, 2), stream=stream)
        assert len(SEEN) == 2 and stage.stats()["remembered"] == 4
        stage.reset("a")
        assert words(self.run(stage, [[40, 10, 60, 30]], (1,), sequence=1, stream="b")) == [[("20", 7)]]
        assert words(self.run(stage, [[40, 10, 60, 30]], (1,), sequence=1, stream="a")) == [[("40", 7)]]

    def test_memory_is_bounded_and_the_longest_unseen_go_first(self, make, monkeypatch):
        monkeypatch.setattr(objects, "REMEMBERED", 8)
        stage = make("FirstPixel")
        for number in range(50):
            self.run(stage, [[10, 10, 30, 30], [50, 10, 70, 30]], (0, 1 + number), sequence=number)
            assert stage.stats()["remembered"] <= 8
        assert sum(map(len, SEEN)) == 51

    def test_objects_found_on_objects_are_looked_for_in_every_frame(self, make):
        stage = make("Inner")
        for number in range(3):
            one = self.run(stage, [[10, 10, 30, 30]], sequence=number)
            assert len(one.results.detections) == 2
        assert len(SEEN) == 3
        stage = make("Inner", secondary_reinfer_interval=1)
        found = [len(self.run(stage, [[10, 10, 30, 30]], sequence=n).results.detections) for n in range(5)]
        assert found == [2, 1, 2, 1, 2]

    def test_another_model_or_threshold_forgets(self, make):
        stage = make("FirstPixel")
        self.run(stage, [[10, 10, 30, 30]])
        stage.change("confidence_threshold", 0.2)
        assert words(self.run(stage, [[14, 10, 34, 30]], sequence=1)) == [[("14", 7)]]


class TestWhatIsAttached:
    def test_as_many_classes_as_wanted(self, make):
        one = frame()
        make("FirstPixel", classes_per_object=2).process(FrameBatch((one,)))
        assert words(one)[0] == [("10", 7), ("20", 7)]

    def test_not_those_below_the_threshold(self, make):
        one = frame()
        make("FirstPixel", classes_per_object=2, confidence_threshold=0.5).process(FrameBatch((one,)))
        assert words(one)[0] == [("10", 7)]

    def test_others_words_stay_and_own_ones_are_replaced(self, make):
        one = frame()
        make("FirstPixel").process(FrameBatch((one,)))
        make("Recorder", unique_id=8).process(FrameBatch((one,)))
        assert words(one)[0] == [("10", 7), ("plain", 8)]
        make("Recorder").process(FrameBatch((one,)))
        assert words(one)[0] == [("plain", 8), ("plain", 7)]

    def test_objects_join_in_pixels_of_the_frame_with_their_parent(self, make):
        one = frame(tracker_id=[4, -1, 6], label=["a", "b", "c"], class_id=[5, 6, 7])
        make("Inner", infer_on_class_ids="6:7").process(FrameBatch((one,)))
        found = one.results.detections
        assert found.xyxy.tolist() == [*BOXES, [130, 70, 160, 100], [220, 20, 240, 30]]
        assert found.parent.tolist() == [-1, -1, -1, 1, 2]
        assert found.component_id.tolist() == [1, 1, 1, 7, 7]
        assert found.tracker_id.tolist() == [4, -1, 6, -1, -1]
        assert found.label == ["a", "b", "c", "inner", "inner"]
        assert found.keypoints[3, 0].tolist() == pytest.approx([130, 70, 0.9])
        assert (found.mask[3].x, found.mask[3].y, found.mask[3].bitmap.shape) == (130, 70, (30, 30))
        assert found[1:].parent.tolist() == [-1, -1, 0, 1]

    def test_a_third_element_goes_on_from_the_second(self, make):
        one = frame(BOXES[1:2])
        for unique_id, source in ((7, 1), (8, 7)):
            make("Inner", unique_id=unique_id, infer_on_gie_id=source).process(FrameBatch((one,)))
        found = one.results.detections
        assert found.parent.tolist() == [-1, 0, 1]
        assert found.xyxy[2].tolist() == [145, 85, 160, 100]

    def test_text_and_tensors(self, make):
        one = frame()
        make("Words", infer_on_class_ids="0").process(FrameBatch((one,)))
        assert words(one) == [[("AB 123", 7)]] * 3
        column = one.results.detections.data["tensor:7:embedding"]
        assert [row[0] for row in column] == [30, 60, 20]

    def test_a_map_cannot_be(self, make):
        with pytest.raises(ResultError, match="segmentation map of an object"):
            make("Map").process(FrameBatch((frame(),)))


class TestErrors:
    def test_stop(self, make):
        with pytest.raises(PredictError, match="ValueError: a hundred") as caught:
            make("Fails").process(FrameBatch((frame(),)))
        assert isinstance(caught.value.__cause__, ValueError)

    @pytest.mark.parametrize("policy", ["pass", "drop"])
    def test_pass_and_drop_count_and_go_on(self, make, policy):
        told = []
        stage = make("Fails", told.append, on_error=policy, batch_size=1)
        one = frame(tracker_id=[1, 2, 3])
        if policy == "drop":
            with pytest.raises(DropFrame):
                stage.process(FrameBatch((one,)))
        else:
            stage.process(FrameBatch((one,)))
            assert words(one) == [[]] * 3 and one.results.inferred is True
        assert stage.stats()["errors"] == 1 and "a hundred" in str(told[0])
        # What failed is not taken for known.
        good = frame(BOXES[::2], sequence=1, tracker_id=[1, 3])
        stage.process(FrameBatch((good,)))
        assert words(good) == [[("plain", 7)]] * 2
