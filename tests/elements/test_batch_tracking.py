"""The tracker inside pyinfer: streams stay apart, whatever they are called."""

from __future__ import annotations

import numpy as np

from gstinfer.elements.infer.tracking import BatchTracking
from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.results import Detections

PICTURE = Image.from_array(np.zeros((100, 100, 3), np.uint8))
STEP = 33_333_333


def at(x: float) -> tuple[Detections]:
    return (Detections(np.array([[x, 10, x + 20, 40]], np.float32), np.array([0.9], np.float32)),)


def frames(names: str, number: int) -> list[Frame]:
    return [Frame(PICTURE, stream_id=name, pts=number * STEP, sequence=number) for name in names]


def ids(results: list[tuple[Detections]]) -> list[int]:
    return [int(parts[0].tracker_id[0]) for parts in results]


def test_two_elements_on_streams_of_one_name_have_tracks_of_their_own():
    tracking = BatchTracking("bytetrack", "")
    for number in range(5):
        # What moves right in one stream moves left in the other, and they meet.
        found = tracking(frames("aa", number), [at(10 + 5 * number), at(50 - 5 * number)], ["left", "right"])
        assert ids(found) == [1, 1]
        assert [parts[0].xyxy[0, 0] for parts in found] == [10 + 5 * number, 50 - 5 * number]


def test_a_reset_and_a_lane_that_leaves_concern_their_own_stream():
    tracking = BatchTracking("bytetrack", "")
    for number in range(3):
        tracking(frames("aa", number), [at(10), at(60)], ["left", "right"])
    tracking.reset("a", "right")
    left, right = (tracking(frames("a", 3), [at(x)], [lane]) for x, lane in ((10, "left"), (30, "right")))
    assert ids(left) == ids(right) == [1]
    tracking.forget("left")
    assert ids(tracking(frames("a", 4), [at(33)], ["right"])) == [1]
    # The name is free again, for tracks that start anew.
    assert ids(tracking(frames("a", 0), [at(80)], ["third"])) == [1]


def test_skipped_frames_show_their_own_streams_objects():
    tracking = BatchTracking("bytetrack", "")
    for number in range(3):
        tracking(frames("aa", number), [at(10), at(60)], ["left", "right"])
    for lane, x in (("left", 10), ("right", 60)):
        (frame,) = frames("a", 3)
        tracking.skipped([frame], lane)
        assert frame.stream_id == "a"
        assert abs(float(frame.results.detections.xyxy[0, 0]) - x) < 2
