"""ImageTransform: what goes into a network's input comes back, on whole frames and on crops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gstinfer import ConfigError, ImageTransform
from gstinfer.geometry import RESIZES, Region, clip_boxes, obb_corners, obb_hull

sides = st.integers(1, 4000)
sizes = st.tuples(sides, sides)
inputs = st.tuples(st.integers(16, 1280), st.integers(16, 1280))
resizes = st.sampled_from(RESIZES)
unit = st.floats(0, 1, width=32)


upright = st.just(0.0)


@st.composite
def transforms(draw, angles=upright):
    width, height = draw(sizes)
    region = None
    origin = (0.0, 0.0)
    if draw(st.booleans()):
        region = draw(st.floats(1, 2 * width)), draw(st.floats(1, 2 * height))
        origin = draw(st.floats(-width, width)), draw(st.floats(-height, height))
    return ImageTransform.plan(
        (width, height), draw(inputs), draw(resizes), origin=origin, region=region, angle=draw(angles)
    )


@given(transforms(st.floats(-7, 7)), st.lists(st.tuples(unit, unit), min_size=1, max_size=5))
def test_points_come_back(transform, where):
    points = np.array(where, np.float32) * transform.frame_size
    # Float32 input pixels of a strongly enlarged or shrunk side limit what can come back.
    tolerance = 1e-3 + 1e-6 * np.abs(transform.points_to_input(points)).max() / np.array(transform.scale)
    tolerance = tolerance.max() + 1e-6 * max(transform.frame_size)
    assert np.abs(transform.points_to_frame(transform.points_to_input(points)) - points).max() <= tolerance


@given(transforms(), st.tuples(unit, unit, unit, unit))
def test_upright_boxes_come_back(transform, corners):
    x = np.sort(np.array([corners[0], corners[2]])) * transform.frame_size[0]
    y = np.sort(np.array([corners[1], corners[3]])) * transform.frame_size[1]
    box = np.array([[x[0], y[0], x[1], y[1]]], np.float32)
    moved = transform.boxes_to_input(box)
    assert (moved[:, 2:] >= moved[:, :2]).all()
    tolerance = 1e-3 + 1e-6 * (np.abs(moved).max() / min(transform.scale) + max(transform.frame_size))
    assert np.abs(transform.boxes_to_frame(moved) - box).max() <= tolerance


@given(sizes, inputs)
def test_the_padding_rule(frame, size):
    """Ratio of the smaller side, rounded size, ``round(pad / 2 - 0.1)`` left and top; the content fits exactly."""
    transform = ImageTransform.plan(frame, size)
    ratio = min(size[0] / frame[0], size[1] / frame[1])
    for axis in (0, 1):
        content, pad = transform.content[axis], transform.pad[axis]
        assert content == max(1, min(size[axis], round(frame[axis] * ratio)))
        assert pad == round((size[axis] - content) / 2 - 0.1)
        rest = size[axis] - content - pad
        assert pad >= 0 and rest - pad in (0, 1)
        assert transform.scale[axis] == content / frame[axis]
    assert size[0] in transform.content or size[1] in transform.content


@given(sizes, inputs, resizes.filter(lambda name: name != "crop"))
def test_the_frames_corners_are_the_contents_corners(frame, size, resize):
    transform = ImageTransform.plan(frame, size, resize)
    corners = transform.points_to_input(np.array([[0, 0], frame], np.float32))
    want = np.array([transform.pad, np.add(transform.pad, transform.content)])
    assert np.abs(corners - want).max() < 1e-3
    if resize != "letterbox":
        assert transform.pad == (0, 0)
    if resize == "stretch":
        assert transform.content == size


@given(sizes, inputs)
def test_a_crop_is_the_largest_middle_of_the_inputs_shape(frame, size):
    transform = ImageTransform.plan(frame, size, "crop")
    assert transform.content == size and transform.pad == (0, 0) and transform.is_slice
    width, height = transform.region
    assert width == frame[0] or height == frame[1]
    for axis in (0, 1):
        before, after = transform.origin[axis], frame[axis] - transform.origin[axis] - transform.region[axis]
        assert after - before in (0, 1)
    # The aspect is the input's to the pixel that rounding may move.
    ratio = max(size[0] / frame[0], size[1] / frame[1])
    assert abs(width - size[0] / ratio) <= 0.5 or width == 1
    assert abs(height - size[1] / ratio) <= 0.5 or height == 1


@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_the_middle_of_a_crop_in_frame_pixels(angle):
    """A centre crop of an object's crop is placed where the object is, also where it is turned."""
    region = Region((640, 480), (100, 60), (90, 40), angle)
    inner = ImageTransform.plan((90, 40), (20, 20), "crop")
    placed = region.placed(inner)
    assert placed.region == (40, 40) and placed.frame_size == (640, 480) and placed.angle == angle
    points = np.array([[0, 0], [20, 0], [7, 13]], np.float32)
    two_steps = region.transform().points_to_frame(inner.points_to_frame(points))
    assert np.abs(placed.points_to_frame(points) - two_steps).max() < 1e-3


@given(sizes, inputs, resizes, st.tuples(unit, unit), st.tuples(unit, unit, unit, unit))
def test_clipping_after_keeps_what_touches_the_frame(frame, size, resize, inside, reach):
    """A box that overlaps the content by any area is inside the frame after un-letterboxing and clamping."""
    transform = ImageTransform.plan(frame, size, resize)
    middle = np.array(transform.pad) + np.array(inside) * transform.content
    sides = np.array(reach).reshape(2, 2) * size + 0.6
    box = np.concatenate([middle - sides[0], middle + sides[1]])
    box = clip_boxes(transform.boxes_to_frame(box[None]), *transform.frame_size)[0]
    assert 0 <= box[0] < box[2] <= transform.frame_size[0] and 0 <= box[1] < box[3] <= transform.frame_size[1]


def test_a_box_half_a_pixel_over_the_padding_does_not_vanish():
    transform = ImageTransform.plan((1920, 1080), (640, 640))
    box = np.array([[308.406, 376.330, 463.912, 500.436]], np.float32)
    found = clip_boxes(transform.boxes_to_frame(box), 1920, 1080)
    assert np.abs(found - [[925.2, 709.0, 1391.7, 1080]]).max() < 0.1


def test_clip_gives_a_new_array():
    box = np.array([[-5, -5, 50, 50]], np.float32)
    assert clip_boxes(box, 10, 20).tolist() == [[0, 0, 10, 20]]
    assert box[0, 0] == -5


@given(
    st.tuples(st.integers(10, 2000), st.integers(10, 2000)),
    st.floats(-math.pi, math.pi),
    st.tuples(unit, unit, st.floats(0.05, 1), st.floats(0.05, 1)),
    st.floats(-3, 3),
)
def test_rotated_boxes_come_back(frame, angle, box, turn):
    """A rotated box, taken corner by corner into an evenly scaled input, is that box again."""
    transform = ImageTransform.plan(frame, (640, 640), angle=turn)
    scale = min(frame)
    obb = np.array([[box[0] * frame[0], box[1] * frame[1], box[2] * scale, box[3] * scale, angle]], np.float32)
    inside = obb.copy()
    inside[:, :2] = transform.points_to_input(obb[:, :2])
    inside[:, 2:4] *= np.mean(transform.scale)
    inside[:, 4] -= turn
    found = transform.obb_to_frame(inside)
    # Sides are rounded to whole input pixels, so the two scales differ by up to a pixel of the input.
    slack = 0.02 * max(frame) + 1
    assert np.abs(obb_corners(found) - obb_corners(obb)).max() <= slack


def test_a_rotated_box_under_unequal_scales_keeps_its_long_axis():
    transform = ImageTransform.plan((200, 100), (100, 100), "stretch")
    # 45 degrees in the input is atan(1/2) in the frame, where x is twice as wide.
    found = transform.obb_to_frame(np.array([[50, 50, 40, 4, math.pi / 4]], np.float32))[0]
    assert found[:2].tolist() == [100, 50]
    assert found[4] == pytest.approx(math.atan2(1, 2), abs=1e-5)
    assert found[2] == pytest.approx(40 * math.hypot(2 * math.sqrt(0.5), math.sqrt(0.5)), rel=1e-5)


@given(st.floats(-10, 10), st.floats(1, 100), st.floats(1, 100))
def test_hull_holds_all_corners_tightly(angle, width, height):
    obb = np.array([[50, 60, width, height, angle]], np.float32)
    hull, corners = obb_hull(obb)[0], obb_corners(obb)[0]
    assert np.allclose([*corners.min(0), *corners.max(0)], hull)
    area = 0.5 * abs(np.sum(corners[:, 0] * np.roll(corners[:, 1], -1) - corners[:, 1] * np.roll(corners[:, 0], -1)))
    assert area == pytest.approx(width * height, rel=1e-2)


def test_corners_of_an_upright_box():
    assert obb_hull(np.array([[10, 20, 4, 2, 0]], np.float32)).tolist() == [[8, 19, 12, 21]]
    turned = obb_hull(np.array([[10, 20, 4, 2, math.pi / 2]], np.float32))[0]
    assert np.allclose(turned, [9, 18, 11, 22], atol=1e-5)
    assert obb_hull(np.zeros((0, 5), np.float32)).shape == (0, 4)


def test_keypoints_keep_their_scores():
    transform = ImageTransform.plan((1280, 720), (640, 640))
    points = np.array([[[320, 320, 0.5], [0, 140, -1]]], np.float32)
    found = transform.keypoints_to_frame(points)
    assert found.tolist() == [[[640, 360, 0.5], [0, 0, -1]]]
    assert points[0, 0, 0] == 320, "the input stays"


def test_masks_land_where_the_frame_is():
    transform = ImageTransform.plan((128, 64), (64, 64))
    mask = np.zeros((1, 16, 16), np.float32)
    mask[:, :, 8:] = 1
    found = transform.masks_to_frame(mask)[0]
    assert found.shape == (64, 128)
    assert found[:, 68:].all() and not found[:, :60].any()
    assert transform.masks_to_frame(np.zeros((0, 16, 16), np.float32)).shape == (0, 64, 128)


def test_a_crops_mask_stays_in_the_crop():
    transform = ImageTransform.plan((100, 80), (32, 32), origin=(20, 10), region=(40, 40))
    found = transform.masks_to_frame(np.ones((1, 8, 8), np.float32))[0]
    assert found[10:50, 20:60].all() and found.sum() == 40 * 40


@pytest.mark.parametrize(
    ("crop", "want"),
    [
        ({}, True),
        ({"origin": (3, 4), "region": (5, 6)}, True),
        ({"origin": (3.5, 4), "region": (5, 6)}, False),
        ({"origin": (-1, 4), "region": (5, 6)}, False),
        ({"origin": (30, 4), "region": (5, 6)}, False),
        ({"origin": (3, 4), "region": (5, 6), "angle": 0.1}, False),
    ],
    ids=str,
)
def test_what_slicing_can_cut_out(crop, want):
    assert ImageTransform.plan((32, 24), (8, 8), **crop).is_slice is want


@pytest.mark.parametrize("frame", [(0, 10), (10, 0)])
def test_empty_sizes_are_refused(frame):
    with pytest.raises(ConfigError, match="empty"):
        ImageTransform.plan(frame, (64, 64))
    with pytest.raises(ConfigError, match="empty"):
        ImageTransform.plan((64, 64), frame)


def test_unknown_resize_is_refused():
    with pytest.raises(ConfigError, match="letterbox-topleft"):
        ImageTransform.plan((64, 64), (64, 64), "cover")


def test_to_frame_maps_every_column():
    from gstinfer.results import Detections, Mask

    transform = ImageTransform.plan((128, 64), (64, 64))
    found = Detections(
        [[0, 16, 32, 48]],
        keypoints=[[[32, 32, 0.9]]],
        mask=[Mask(0, 16, np.ones((32, 32), bool))],
    )
    placed = transform.to_frame(found)
    assert placed.xyxy.tolist() == [[0, 0, 64, 64]]
    assert placed.keypoints[0, 0].tolist() == pytest.approx([64, 32, 0.9])
    assert placed.mask[0].to_frame(128, 64).sum() == 64 * 64
    turned = Detections(None, obb=[[32, 32, 20, 10, 0.3]])
    assert transform.to_frame(turned).obb[0].tolist() == pytest.approx([64, 32, 40, 20, 0.3], abs=1e-4)
