"""Identities over time, in scenes whose right answer is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gstinfer import registry
from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.results import Attribute, Detections, Mask
from gstinfer.trackers.bytetrack import ByteTrack

Make = Callable[..., Any]


def ids(found: Detections) -> list[int]:
    assert found.tracker_id is not None
    return found.tracker_id.tolist()


def run(tracker: ByteTrack, make_frame: Make, scene: list[Detections | None], fps: float | None = 30) -> list[list[int]]:
    return [ids(tracker.update([found], [make_frame(k, fps=fps)])[0]) for k, found in enumerate(scene)]


def test_is_registered() -> None:
    assert registry.find("tracker", "bytetrack") is ByteTrack


def test_objects_of_the_first_frame_have_ids_from_one_at_once(make_frame: Make, make_boxes: Make) -> None:
    scene = [make_boxes((100, 100, 40, 80), (300, 100, 40, 80))] * 3
    assert run(ByteTrack(), make_frame, scene) == [[1, 2]] * 3


def test_ids_stay_through_a_crossing(make_frame: Make, make_boxes: Make) -> None:
    scene = [make_boxes((200 + 10 * k, 300, 60, 120), (800 - 10 * k, 340, 60, 120)) for k in range(60)]
    assert run(ByteTrack(), make_frame, scene) == [[1, 2]] * 60


def test_ids_stay_when_the_detector_changes_its_order(make_frame: Make, make_boxes: Make) -> None:
    rows = [(200, 300, 60, 120), (800, 340, 60, 120), (500, 100, 60, 120)]
    scene = [make_boxes(*rows), make_boxes(*rows[::-1]), make_boxes(rows[1], rows[2], rows[0])]
    assert run(ByteTrack(), make_frame, scene) == [[1, 2, 3], [3, 2, 1], [2, 3, 1]]


def test_an_occluded_object_gets_its_id_back(make_frame: Make, make_boxes: Make) -> None:
    still = (1000, 500, 50, 50)
    scene = [
        make_boxes(still) if 30 <= k < 42 else make_boxes(still, (100 + 6 * k, 300, 80, 160)) for k in range(60)
    ]
    found = run(ByteTrack(), make_frame, scene)
    assert found[29] == [1, 2] and found[35] == [1] and found[42] == [1, 2] and found[-1] == [1, 2]


def test_the_id_of_an_object_long_out_of_sight_is_not_given_again(make_frame: Make, make_boxes: Make) -> None:
    still, gone = (1000, 500, 50, 50), (100, 100, 50, 50)
    scene = [make_boxes(still, gone) if k < 5 or k >= 45 else make_boxes(still) for k in range(48)]
    found = run(ByteTrack(), make_frame, scene)
    assert found[4] == [1, 2] and found[45] == [1, -1] and found[46] == [1, 3]


def test_lost_time_is_time_and_not_a_number_of_frames(make_frame: Make, make_boxes: Make) -> None:
    seen, gone = make_boxes((100, 100, 50, 50)), make_boxes()
    scene = [seen, seen, *[gone] * 15, seen, seen]
    assert run(ByteTrack(), make_frame, scene, fps=30)[-1] == [1]
    assert run(ByteTrack(), make_frame, scene, fps=10)[-1] == [2]
    assert run(ByteTrack(lost_time=2), make_frame, scene, fps=10)[-1] == [1]
    assert run(ByteTrack(), make_frame, scene, fps=None)[-1] == [1]


def test_one_missed_frame_at_a_frame_a_second_keeps_the_id(make_frame: Make, make_boxes: Make) -> None:
    seen = make_boxes((100, 100, 50, 50))
    assert run(ByteTrack(), make_frame, [seen, seen, make_boxes(), seen], fps=1)[-1] == [1]
    assert run(ByteTrack(lost_time=0), make_frame, [seen, seen, make_boxes(), seen], fps=1)[-1] == [-1]


def test_a_low_score_continues_a_track_but_starts_none(make_frame: Make, make_boxes: Make) -> None:
    scene = [
        make_boxes((100 + 4 * k, 100, 60, 120, 0.9 if k < 5 or k > 14 else 0.2), (900, 400, 60, 60, 0.2))
        for k in range(20)
    ]
    assert run(ByteTrack(), make_frame, scene) == [[1, -1]] * 20
    assert run(ByteTrack(low_threshold=0.3), make_frame, scene)[10] == [-1, -1]


def test_a_new_object_is_confirmed_by_its_second_frame(make_frame: Make, make_boxes: Make) -> None:
    old, new, flash = (100, 100, 50, 50), (500, 500, 50, 50), (900, 200, 50, 50)
    scene = [make_boxes(old), make_boxes(old, new, flash), make_boxes(old, new), make_boxes(old, new)]
    assert run(ByteTrack(), make_frame, scene) == [[1], [1, -1, -1], [1, 2], [1, 2]]
    assert run(ByteTrack(confirm_frames=1), make_frame, scene)[1] == [1, 2, 3]
    assert run(ByteTrack(confirm_frames=3), make_frame, scene)[2:] == [[1, -1], [1, 2]]


def test_a_fast_object_is_followed_by_its_velocity(make_frame: Make, make_boxes: Make) -> None:
    # It speeds up until it leaves its own width behind in every frame.
    steps = np.minimum(np.arange(60) * 1.5, 60)
    assert steps[-1] > 50
    scene = [make_boxes((x, 300, 50, 50)) for x in np.cumsum(steps) - 400]
    assert run(ByteTrack(), make_frame, scene) == [[1]] * 60


def test_variable_frame_rate_moves_tracks_by_time(make_boxes: Make, make_frame: Make) -> None:
    """Ten times the usual gap: the box is where its velocity says, far from where it was last seen."""
    tracker, step = ByteTrack(), 1 / 30
    times = [k * step for k in range(30)] + [29 * step + 10 * step]
    for t in times:
        picture = make_frame(0)
        picture.pts = round(t * 1e9)
        found = tracker.update([make_boxes((100 + 300 * t, 300, 60, 60))], [picture])[0]
    assert ids(found) == [1]


def test_a_class_is_kept_where_two_overlap_and_may_change_where_it_is_alone(make_frame: Make, make_boxes: Make) -> None:
    rider, bike = (300, 300, 80, 160, 0.9, 0), (304, 306, 80, 160, 0.9, 1)
    swapped = (304, 306, 80, 160, 0.9, 0), (300, 300, 80, 160, 0.9, 1)
    scene = [make_boxes(rider, bike), make_boxes(*swapped)]
    assert run(ByteTrack(), make_frame, scene)[1] == [1, 2]
    assert run(ByteTrack(class_factor=1), make_frame, scene)[1] == [2, 1]
    flicker = [make_boxes((300, 300, 80, 160, 0.9, k % 2)) for k in range(4)]
    assert run(ByteTrack(), make_frame, flicker) == [[1]] * 4
    assert run(ByteTrack(class_factor=0), make_frame, flicker)[1] == [-1]


def test_objects_of_different_elements_are_never_confused(make_frame: Make, make_boxes: Make) -> None:
    row = (300, 300, 80, 160)
    scene = [make_boxes(row, component_id=[1]), make_boxes(row, component_id=[2])]
    assert run(ByteTrack(), make_frame, scene) == [[1], [-1]]


def test_three_hundred_objects_keep_their_ids(make_frame: Make, make_boxes: Make) -> None:
    rng = np.random.default_rng(1)
    spots = np.stack(np.meshgrid(np.arange(20) * 60 + 30, np.arange(15) * 46 + 25), -1).reshape(-1, 2)
    speed = rng.uniform(-0.4, 0.4, spots.shape)
    scene = [
        make_boxes(*np.concatenate([spots + speed * k + rng.normal(0, 0.5, spots.shape), np.full((300, 2), 42)], 1))
        for k in range(30)
    ]
    assert run(ByteTrack(), make_frame, scene) == [list(range(1, 301))] * 30


def test_streams_have_ids_of_their_own_whatever_the_batch(make_frame: Make, make_boxes: Make) -> None:
    """Each of five streams gives the same ids alone and in batches that vary in members and order."""
    rng = np.random.default_rng(2)
    names = [f"cam{k}" for k in range(5)]
    start = {name: rng.uniform(100, 600, (4, 2)) for name in names}
    scene = {
        name: [
            make_boxes(*[(x + 3 * k, y, 70, 70, 0.9 if rng.random() > 0.1 else 0.3) for x, y in start[name]])[
                rng.permutation(4)[: rng.integers(2, 5)]
            ]
            for k in range(40)
        ]
        for name in names
    }
    alone = {n: [ids(t.update([d], [make_frame(k, n)])[0]) for k, d in enumerate(scene[n])]
             for n, t in ((n, ByteTrack()) for n in names)}  # fmt: skip
    tracker, done = ByteTrack(), dict.fromkeys(names, 0)
    together: dict[str, list[list[int]]] = {name: [] for name in names}
    while any(n < 40 for n in done.values()):
        batch = [n for n in rng.permutation(names * 2)[: rng.integers(1, 9)].tolist()]
        picked = []
        for name in batch:
            if done[name] < 40:
                picked.append((name, done[name]))
                done[name] += 1
        out = tracker.update([scene[n][k] for n, k in picked], [make_frame(k, n) for n, k in picked])
        for (name, _), found in zip(picked, out):
            together[name].append(ids(found))
    assert together == alone
    assert all(1 in first for first in (alone[n][0] for n in names))


def test_reset_forgets_one_stream_only(make_frame: Make, make_boxes: Make) -> None:
    tracker = ByteTrack()
    found = make_boxes((100, 100, 50, 50), (400, 100, 50, 50))
    for k in range(3):
        tracker.update([found, found], [make_frame(k, "a"), make_frame(k, "b")])
    tracker.reset("a")
    tracker.reset("never seen")
    moved = make_boxes((700, 500, 50, 50), (400, 100, 50, 50))
    a, b = tracker.update([moved, moved], [make_frame(3, "a"), make_frame(3, "b")])
    assert ids(a) == [1, 2] and ids(b) == [-1, 2]


def test_state_stays_bounded_over_many_streams_and_resets(make_frame: Make, make_boxes: Make) -> None:
    tracker = ByteTrack()
    found = make_boxes((100, 100, 50, 50))
    for k in range(200):
        tracker.update([found], [make_frame(0, f"stream {k}")])
        tracker.reset(f"stream {k}")
    assert len(tracker._tracks) == 0 and len(tracker._next_id) == 1 and not tracker._streams
    rng = np.random.default_rng(3)
    for k in range(300):
        noise = make_boxes(*np.concatenate([rng.uniform(0, 700, (10, 2)), np.full((10, 2), 30)], 1))
        tracker.update([noise], [make_frame(k)])
    assert len(tracker._tracks) < 10 * 40


def test_every_other_column_stays(make_frame: Make, make_boxes: Make) -> None:
    found = make_boxes(
        (100, 100, 50, 50),
        (400, 100, 50, 50, 0.05, 3),
        label=["cat", "dog"],
        mask=[Mask(80, 80, np.ones((4, 4), bool))] * 2,
        keypoints=np.ones((2, 5, 3)),
        obb=np.ones((2, 5)),
        component_id=[7, 8],
        attributes=[(), (Attribute("red", 0, 0.5),)],
        data={"depth": [1.5, 2.5]},
    )
    tracked = ByteTrack().update([found], [make_frame(0)])[0]
    assert found.tracker_id is None and ids(tracked) == [1, -1]
    for name in ("xyxy", "confidence", "class_id", "component_id", "label", "mask", "obb", "keypoints", "attributes"):
        assert getattr(tracked, name) is getattr(found, name)
    assert tracked.data == {"depth": [1.5, 2.5]}


def test_skipped_frames_show_predicted_objects(make_frame: Make, make_boxes: Make) -> None:
    tracker = ByteTrack()
    for k in range(20):
        shape = (200 + 6 * k, 300, 60, 120)
        found = make_boxes(
            shape, (900, 300, 40, 40, 0.2), label=["person", "dot"], keypoints=np.full((2, 1, 3), 200 + 6 * k),
            mask=[Mask(200 + 6 * k, 300, np.ones((2, 2), bool))] * 2,
        )  # fmt: skip
        tracker.update([found], [make_frame(k)])
    for k in (20, 21):
        guess = tracker.update([None], [make_frame(k)])[0]
        assert ids(guess) == [1] and guess.label == ["person"] and list(guess.data["predicted"]) == [True]
        assert guess.xyxy[0] == pytest.approx([170 + 6 * k, 240, 230 + 6 * k, 360], abs=2)
        assert guess.keypoints is not None and guess.keypoints[0, 0, 0] == pytest.approx(200 + 6 * k, abs=2)
        assert guess.mask is not None and abs(guess.mask[0].x - (200 + 6 * k)) <= 2
    assert ids(tracker.update([make_boxes((200 + 6 * 22, 300, 60, 120))], [make_frame(22)])[0]) == [1]


def test_skipping_does_not_count_as_missing(make_frame: Make, make_boxes: Make) -> None:
    seen = make_boxes((100, 100, 50, 50))
    scene = [seen, seen, *[None] * 90, seen]
    found = run(ByteTrack(), make_frame, scene)
    assert found[2] == [1] and found[80] == [] and found[-1] == [1]


def test_skipped_before_anything_was_seen(make_frame: Make) -> None:
    assert len(ByteTrack().update([None], [make_frame(0)])[0]) == 0


def test_a_predicted_box_stays_inside_the_picture(make_frame: Make, make_boxes: Make) -> None:
    tracker = ByteTrack()
    for k in range(10):
        tracker.update([make_boxes((1100 + 15 * k, 300, 60, 60))], [make_frame(k)])
    for k in range(10, 30):
        guess = tracker.update([None], [make_frame(k)])[0]
        assert (guess.xyxy[:, 2] <= 1280).all() and (guess.xyxy[:, 2] > guess.xyxy[:, 0]).all()
    assert len(guess) == 0


def test_empty_frames_and_empty_batches(make_frame: Make, make_boxes: Make) -> None:
    tracker = ByteTrack()
    assert tracker.update([], []) == []
    assert run(tracker, make_frame, [make_boxes(), make_boxes(), make_boxes((9, 9, 8, 8)), make_boxes()])[3] == []


def test_time_that_runs_backwards_or_stands_is_survived(make_boxes: Make, make_frame: Make) -> None:
    tracker, found = ByteTrack(), make_boxes((100, 100, 50, 50))
    for k in (0, 1, 2, 2, 1, 0, 3):
        assert ids(tracker.update([found], [make_frame(k)])[0]) == [1]


def test_unusable_boxes_are_left_untracked(make_frame: Make) -> None:
    xyxy = np.array([[10, 10, 50, 50], [np.nan, 0, 9, 9], [0, 0, np.inf, 9], [50, 50, 20, 20], [5, 5, 5, 9]])
    found = Detections(xyxy)
    tracker = ByteTrack()
    for k in range(3):
        assert ids(tracker.update([found], [make_frame(k)])[0]) == [1, -1, -1, -1, -1]
    assert all(np.isfinite(tracker._tracks[name]).all() for name in ("position", "velocity", "var_position"))


def test_settings_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="high-threshold"):
        ByteTrack(hi_threshold=1)
    with pytest.raises(ConfigError, match="out of range"):
        ByteTrack(match_iou=1.5)


row = st.tuples(
    st.floats(-50, 700), st.floats(-50, 700), st.floats(0, 200), st.floats(0, 200), st.floats(0, 1), st.integers(0, 2)
)
one_frame = st.one_of(st.none(), st.lists(row, max_size=8))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), one_frame), max_size=24), st.integers(1, 5))
def test_whatever_comes_rows_stay_and_ids_are_unique(events: list[Any], size: int) -> None:
    tracker, picture = ByteTrack(), Image.from_array(np.zeros((720, 1280, 3), np.uint8))
    largest: dict[str, int] = {}
    for k in range(0, len(events), size):
        batch = events[k : k + size]
        given_: list[Detections | None] = []
        for _, rows in batch:
            full = np.array(rows or [], np.float32).reshape(-1, 6)
            xyxy = np.concatenate([full[:, :2], full[:, :2] + full[:, 2:4]], 1)
            given_.append(None if rows is None else Detections(xyxy, full[:, 4], full[:, 5].astype(int)))
        frames = [Frame(picture, name, k * 10**8) for name, _ in batch]
        for (name, _), before, after in zip(batch, given_, tracker.update(given_, frames)):
            assert after.tracker_id is not None and np.isfinite(after.xyxy).all()
            known = after.tracker_id[after.tracker_id != -1]
            assert (known >= 1).all() and len(np.unique(known)) == len(known)
            if before is None:
                assert (known <= largest.get(name, 0)).all() and len(known) == len(after)
            else:
                assert after.xyxy is before.xyxy
            largest[name] = max([largest.get(name, 0), *known.tolist()])
