"""The track stage on plain frames."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.elements.track.stage import TrackSettings, TrackStage
from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.image import Image
from gstinfer.results import Classifications, Detections, FrameResults
from gstinfer.stage import Stage

PICTURE = Image.from_array(np.zeros((100, 200, 3), np.uint8))


def batch(*found: tuple[Detections | None, bool | None], number: int = 0) -> FrameBatch:
    return FrameBatch(
        tuple(
            Frame(PICTURE, str(k), number * 33_000_000, results=FrameResults(inferred=inferred, detections=d))
            for k, (d, inferred) in enumerate(found)
        )
    )


def one() -> Detections:
    return Detections([[10, 10, 50, 90]])


def started(**settings: str) -> TrackStage:
    stage = TrackStage(TrackSettings(**settings))
    stage.start()
    return stage


def test_is_a_stage_and_gives_ids_per_stream() -> None:
    stage = started()
    assert isinstance(stage, Stage)
    frames = batch((one(), True), (one(), True))
    stage.process(frames)
    assert [f.results.detections.tracker_id.tolist() for f in frames] == [[1], [1]]
    assert stage.stats() == {"frames": 2, "objects": 2}


def test_skipped_frames_get_predicted_objects_and_stay_not_inferred() -> None:
    stage = started()
    for number in range(3):
        stage.process(batch((one(), True), number=number))
    frames = batch((None, False), number=3)
    stage.process(frames)
    results = frames[0].results
    assert results.inferred is False and results.detections is not None
    assert results.detections.tracker_id.tolist() == [1] and results.detections.data["predicted"].all()


def test_a_frame_where_nothing_was_found_counts_as_looked_at() -> None:
    """None with ``inferred`` True is an empty frame: nothing is predicted, and the track is lost in time."""
    stage = started(tracker_args="lost-time=0")
    for number in range(3):
        stage.process(batch((one(), True), number=number))
    frames = batch((None, True), number=3)
    stage.process(frames)
    assert frames[0].results.detections is None
    frames = batch((one(), True), number=4)
    stage.process(frames)
    assert frames[0].results.detections.tracker_id.tolist() == [-1]


def test_frames_that_no_inference_saw_stay_as_they_are() -> None:
    stage = started()
    frames = batch((None, None))
    frames[0].results.classifications.append(Classifications([1], [0.5]))
    stage.process(frames)
    assert frames[0].results.detections is None and len(frames[0].results.classifications) == 1


def test_reset_starts_ids_again() -> None:
    stage = started()
    stage.process(batch((one(), True)))
    stage.reset("0")
    frames = batch((Detections([[100, 10, 150, 90]]), True))
    stage.process(frames)
    assert frames[0].results.detections.tracker_id.tolist() == [1]


def test_arguments_reach_the_tracker() -> None:
    stage = started(tracker_args="confirm-frames=1, high-threshold = 0.95,new_track_threshold=0.95")
    frames = batch((Detections([[10, 10, 50, 90], [100, 10, 150, 90]], [0.9, 0.99]), True))
    stage.process(frames)
    assert frames[0].results.detections.tracker_id.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tracker": "bytetrak"}, UnknownNameError, "did you mean 'bytetrack'"),
        ({"tracker_args": "lost"}, ConfigError, "'lost' is not key=value"),
        ({"tracker_args": "=3"}, ConfigError, "'=3' is not key=value"),
        ({"tracker_args": "lost-time=1,lost_time=2"}, ConfigError, "given twice"),
        ({"tracker_args": "lost-time=soon"}, ConfigError, "lost-time='soon'"),
        ({"tracker_args": "colour=red"}, UnknownNameError, "lost-time"),
    ],
)
def test_wrong_settings_are_refused_at_start(settings: dict[str, str], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        started(**settings)
