"""The model that ships: what it finds on a real video, against counts measured once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gstinfer import ConfigError, as_model

PEOPLE, CARS, BICYCLES = 157, 188, 13
"""Measured over all 250 frames of the clip, letterboxed, at the model's own thresholds."""


@pytest.fixture(scope="module")
def frames(bikes):
    import cv2

    capture, found = cv2.VideoCapture(str(bikes)), []
    while True:
        good, frame = capture.read()
        if not good:
            break
        found.append(frame)
    assert len(found) == 250
    return found


@pytest.fixture(scope="module")
def model():
    with as_model("nanodet-coco") as loaded:
        yield loaded


def test_every_tenth_frame_holds_a_tenth_of_what_was_measured(model, frames):
    found = Counter(label for r in model.predict(frames[::10], color="bgr") if r is not None for label in r.label)
    assert 0.6 * PEOPLE / 10 <= found["person"] <= 1.5 * PEOPLE / 10
    assert 0.6 * CARS / 10 <= found["car"] <= 1.5 * CARS / 10
    assert sum(found.values()) <= 60, "no rain of false objects"


def test_red_and_blue_exchanged_find_less(model, frames):
    """The channel order is the right one: the other finds fewer of the same frames' people and cars."""
    picked = frames[::10]
    right, wrong = (
        Counter(label for r in model.predict(picked, color=order) if r is not None for label in r.label)
        for order in ("bgr", "rgb")
    )
    assert wrong["person"] + wrong["car"] < right["person"] + right["car"]


def test_stretched_finds_less(frames):
    picked = frames[::10]
    counts = []
    for resize in ("letterbox", "stretch"):
        with as_model("nanodet-coco", resize=resize) as loaded:
            results = loaded.predict(picked, color="bgr")
        counts.append(sum(r.label.count("person") + r.label.count("car") for r in results if r is not None))
    assert counts[1] < 0.6 * counts[0]


def test_boxes_lie_in_the_frame_and_above_the_threshold(model, frames):
    found = [r for r in model.predict(frames[::10], color="bgr") if r is not None and len(r)]
    assert len(found) >= 5
    for result in found:
        assert result.xyxy.min() >= 0 and (result.xyxy.max(0) <= (640, 272, 640, 272)).all()
        assert result.confidence.min() >= 0.4 and result.confidence.max() <= 1


def test_its_users_options_override_its_own(frames):
    with as_model("nanodet-coco", confidence_threshold=0.6) as strict:
        results = [r for r in strict.predict(frames[::25], color="bgr") if r is not None and len(r)]
        assert results and min(float(r.confidence.min()) for r in results) >= 0.6
        rows = {what: (value, why) for what, value, why in strict.model.describe()}
    assert rows["confidence-threshold"] == ("0.6", "set")
    assert rows["iou-threshold"] == ("0.6", "part of nanodet-coco")
    assert rows["labels"][0] == "80" and rows["color"][0] == "bgr"


def test_labels_that_do_not_fit_say_both_counts():
    with pytest.raises(ConfigError, match=r"\b2 labels.*\b80\b"):
        as_model("nanodet-coco", labels="person,car")


def test_nothing_is_found_in_nothing(model):
    (result,) = model.predict(np.zeros((272, 640, 3), np.uint8))
    assert result is None or len(result) == 0
