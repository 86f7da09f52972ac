"""The overlay stage on plain frames."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.elements.overlay.stage import OverlaySettings, OverlayStage
from gstinfer.errors import ConfigError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.image import Image
from gstinfer.results import Detections, FrameResults, Text
from gstinfer.stage import Stage

SECOND = 1_000_000_000


def drawn(stage: OverlayStage, seconds: float | None, stream: str = "0", **results: object) -> bool:
    """Whether anything was drawn on a frame."""
    pixels = np.zeros((60, 80, 3), np.uint8)
    pts = None if seconds is None else round(seconds * SECOND)
    frame = Frame(Image.from_array(pixels), stream, pts, results=FrameResults(**results))  # type: ignore[arg-type]
    before = frame.results
    stage.process(FrameBatch((frame,)))
    assert frame.results is before
    return bool(pixels.any())


def box() -> Detections:
    return Detections([[10, 10, 50, 50]])


def started(**settings: object) -> OverlayStage:
    stage = OverlayStage(OverlaySettings(**settings))
    stage.start()
    return stage


def test_is_a_stage_and_draws() -> None:
    stage = started()
    assert isinstance(stage, Stage)
    assert drawn(stage, 0, detections=box(), inferred=True) and not drawn(stage, 0.1, inferred=True)
    assert stage.stats() == {"frames": 2, "objects": 1}


def test_boxes_stay_on_skipped_frames_up_to_max_age() -> None:
    stage = started(max_age=0.5)
    assert drawn(stage, 0, detections=box(), inferred=True)
    assert drawn(stage, 0.2, inferred=False) and drawn(stage, 0.5, inferred=False)
    assert not drawn(stage, 0.6, inferred=False) and not drawn(stage, 0.4, inferred=False)


def test_a_second_by_default_and_none_without_timestamps() -> None:
    stage = started()
    drawn(stage, 0, detections=box(), inferred=True)
    assert drawn(stage, 1, inferred=False) and not drawn(stage, 1.01, inferred=False)
    drawn(stage, None, detections=box(), inferred=True)
    assert not drawn(stage, None, inferred=False)


def test_nothing_is_held_where_nothing_was_found_or_nothing_looked() -> None:
    stage = started()
    drawn(stage, 0, detections=box(), inferred=True)
    assert not drawn(stage, 0.1, inferred=True) and not drawn(stage, 0.2, inferred=False)
    drawn(stage, 0.3, detections=box(), inferred=True)
    assert not drawn(stage, 0.4, inferred=None)


def test_streams_and_resets_are_kept_apart() -> None:
    stage = started()
    drawn(stage, 0, "a", detections=box(), inferred=True)
    assert not drawn(stage, 0.1, "b", inferred=False) and drawn(stage, 0.1, "a", inferred=False)
    stage.reset("a")
    assert not drawn(stage, 0.2, "a", inferred=False)


def test_the_newest_text_stays_until_it_is_old() -> None:
    stage = started(max_age=2)
    assert drawn(stage, 0, texts=[Text("hello")])
    assert drawn(stage, 2) and not drawn(stage, 2.1)
    # Its age counts from the end of what it speaks of.
    drawn(stage, 3, texts=[Text("late", end=round(1.5 * SECOND))])
    assert drawn(stage, 3.4) and not drawn(stage, 3.6)
    stage = started()
    drawn(stage, 0, texts=[Text("hello")])
    assert drawn(stage, 10) and not drawn(stage, 10.1)


def test_settings_change_while_it_runs() -> None:
    stage = started()
    stage.settings.labels = "cat"
    assert not drawn(stage, 0, detections=box(), inferred=True)


def test_a_font_that_is_not_there_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="No Such Family"):
        started(font="No Such Family")


def test_properties_have_their_unset_values() -> None:
    option = OverlaySettings.options()["max_age"]
    assert option.unset == -1 and OverlaySettings(max_age=-1).max_age is None
    with pytest.raises(ConfigError, match="color-by"):
        OverlaySettings(color_by="shape")


def shown(stage: OverlayStage, seconds: float, *texts: Text) -> list[str]:
    """Words that are drawn on a frame."""
    frame = Frame(Image.from_array(np.zeros((60, 80, 3), np.uint8)), "0", round(seconds * SECOND))
    frame.results.texts = list(texts)
    return [text.text for text in stage._shown(frame).texts][-1:]


def test_an_answer_that_was_overtaken_does_not_replace_a_newer_one() -> None:
    stage = started()
    assert shown(stage, 5, Text("about 4", end=4 * SECOND)) == ["about 4"]
    assert shown(stage, 6, Text("about 2", end=2 * SECOND)) == ["about 4"]
    assert shown(stage, 7, Text("about 5", end=5 * SECOND)) == ["about 5"]


def test_words_about_one_object_are_no_caption() -> None:
    stage = started()
    assert shown(stage, 0, Text("a red car", tracker_id=3)) == []
    assert shown(stage, 1, Text("a street"), Text("a red car", tracker_id=3)) == ["a street"]
