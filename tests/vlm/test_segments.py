"""Which frames are kept, and where segments end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gstinfer.image import ColorInfo, Image
from gstinfer.vlm.segments import Cut, SamplingPlan, StreamSampler, shrink

FRAME = 40_000_000
SECOND = 1_000_000_000


def picture(level: int = 0) -> Image:
    return Image.from_array(np.full((48, 64, 3), level, np.uint8))


def run(plan: SamplingPlan, times: range | list[int], levels: list[int] | None = None) -> list[Cut]:
    """The segments of a stream whose n-th frame's picture is kept as the number n."""
    sampler, cuts = StreamSampler(plan), []
    for number, pts in enumerate(times):
        cuts += sampler.advance(pts)
        if sampler.due(pts, picture(levels[number] if levels else 0)):
            sampler.keep(pts, np.array([number]))
    last = sampler.finish()
    assert sampler.nbytes == 0
    return cuts + ([last] if last is not None else [])


def kept(cuts: list[Cut]) -> list[list[int]]:
    return [[int(image[0]) for _, image in cut.samples] for cut in cuts]


def test_segments_follow_one_another_and_the_last_is_short() -> None:
    cuts = run(SamplingPlan(SECOND, interval=SECOND // 5), range(0, 60 * FRAME, FRAME))
    assert kept(cuts) == [[0, 5, 10, 15, 20], [25, 30, 35, 40, 45], [50, 55]]
    assert [(c.start, c.end) for c in cuts] == [
        (0, 24 * FRAME), (SECOND, 49 * FRAME), (2 * SECOND, 59 * FRAME)
    ]  # fmt: skip


def test_sampling_stays_on_its_grid_when_frames_do_not_divide_it() -> None:
    # 30 frames a second, 4 samples: every 7.5 frames.
    cuts = run(SamplingPlan(10 * SECOND, interval=SECOND // 4, most=100), [n * SECOND // 30 for n in range(90)])
    assert kept(cuts) == [[0, 8, 15, 23, 30, 38, 45, 53, 60, 68, 75, 83]]


@pytest.mark.parametrize("scene", [0.0, 0.1])
def test_frames_with_nothing_to_do_need_not_be_opened_and_nothing_changes(scene: float) -> None:
    plan = SamplingPlan(SECOND, interval=SECOND // 4, scene=scene)
    times = [n * SECOND // 30 for n in range(100)]
    levels = [120 * (n // 40 % 2) for n in range(100)]
    sampler, cuts, opened = StreamSampler(plan), [], 0
    for number, pts in enumerate(times):
        if sampler.idle(pts):
            continue
        opened += 1
        cuts += sampler.advance(pts)
        if sampler.due(pts, picture(levels[number])):
            sampler.keep(pts, np.array([number]))
    last = sampler.finish()
    cuts += [last] if last is not None else []
    whole = run(plan, times, levels)
    assert kept(cuts) == kept(whole) and [(c.start, c.end) for c in cuts] == [(c.start, c.end) for c in whole]
    assert opened <= 17


def test_overlap_shows_frames_again() -> None:
    cuts = run(SamplingPlan(SECOND, SECOND // 2, SECOND // 4), range(0, 51 * FRAME, FRAME))
    assert kept(cuts)[:3] == [[0, 7, 13, 19], [13, 19, 25, 32], [25, 32, 38, 44]]
    assert [c.start for c in cuts][:3] == [0, SECOND // 2, SECOND]


def test_a_gap_begins_a_segment_anew() -> None:
    cuts = run(SamplingPlan(SECOND, interval=SECOND // 2), [0, FRAME, 10 * SECOND + 7, 10 * SECOND + 7 + FRAME])
    assert [(c.start, c.end) for c in cuts] == [(0, FRAME), (10 * SECOND + 7, 10 * SECOND + 7 + FRAME)]


def test_time_that_goes_back_forgets_what_was_open() -> None:
    cuts = run(SamplingPlan(SECOND, interval=FRAME), [5 * SECOND, 5 * SECOND + FRAME, 0, FRAME])
    assert kept(cuts) == [[2, 3]] and cuts[0].start == 0


def test_every_nth_frame() -> None:
    assert kept(run(SamplingPlan(SECOND, every=10), range(0, 50 * FRAME, FRAME))) == [[0, 10, 20], [30, 40]]


def test_only_where_the_picture_changed() -> None:
    levels = [0] * 10 + [100] * 10 + [101] * 10 + [0] * 10
    cuts = run(SamplingPlan(10 * SECOND, interval=FRAME, scene=0.1), range(0, 40 * FRAME, FRAME), levels)
    assert kept(cuts) == [[0, 10, 30]]


def test_too_many_frames_are_thinned_out_evenly() -> None:
    cuts = run(SamplingPlan(100 * SECOND, every=1, most=8), range(0, 32 * FRAME, FRAME))
    (numbers,) = kept(cuts)
    assert 4 <= len(numbers) <= 8 and numbers[0] == 0
    assert len(set(np.diff(numbers).tolist())) == 1


def test_objects_and_the_condition_belong_to_their_own_segment() -> None:
    sampler, cuts = StreamSampler(SamplingPlan(SECOND, interval=SECOND)), []
    for number in range(50):
        pts = number * FRAME
        cuts += sampler.advance(pts)
        seen = Counter({"person": 2}) if number < 20 else Counter({"car": 1})
        sampler.note(pts, seen, number < 20)
        if sampler.due(pts, picture()):
            sampler.keep(pts, np.array([number]))
    cuts.append(sampler.finish())  # type: ignore[arg-type]
    assert [(dict(c.objects), c.wanted) for c in cuts] == [({"person": 2, "car": 1}, True), ({"car": 1}, False)]


@pytest.mark.parametrize("format", ["RGB", "NV12", "I420"])
def test_a_picture_is_shrunk_and_copied(format: str) -> None:
    if format == "RGB":
        image = Image.from_array(np.full((90, 160, 3), (200, 40, 40), np.uint8))
    else:
        luma = np.full((90, 160), 81, np.uint8)
        u, v = np.full((45, 80), 90, np.uint8), np.full((45, 80), 240, np.uint8)
        planes = (luma, np.stack([u, v], -1)) if format == "NV12" else (luma, u, v)
        image = Image(format, planes, 160, 90, ColorInfo())
    small = shrink(image, 64)
    assert small.shape == (36, 64, 3) and small.dtype == np.uint8
    red, green, blue = small.reshape(-1, 3).mean(0)
    assert red > 180 and green < 60 and blue < 60
    image.planes[0][:] = 0
    assert small.max() > 180
    assert shrink(image, 4000).shape == (90, 160, 3)
