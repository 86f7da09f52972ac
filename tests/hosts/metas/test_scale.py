"""Objects follow a frame that is scaled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gstinfer import Detections, Mask
from gstinfer.hosts.metas.scale import scaled

sizes = st.tuples(st.integers(1, 4000), st.integers(1, 4000))


def test_every_geometry_follows():
    found = scaled(
        Detections(
            [[10, 20, 30, 40]], obb=[[20, 30, 8, 4, 0.5]], keypoints=[[[10, 20, 0.9], [0, 0, -1]]], tracker_id=[4],
            label=["a"], mask=[Mask(10, 20, np.ones((20, 20), bool))], data={"speed": [3.0]},
        ),
        (640, 480),
        (320, 240),
    )  # fmt: skip
    assert found.xyxy.tolist() == [[5, 10, 15, 20]]
    np.testing.assert_allclose(found.obb, [[10, 15, 4, 2, 0.5]])
    np.testing.assert_allclose(found.keypoints, [[[5, 10, 0.9], [0, 0, -1]]])
    assert (found.tracker_id.tolist(), found.label, found.data) == ([4], ["a"], {"speed": [3.0]})
    (mask,) = found.mask
    assert (mask.x, mask.y, mask.bitmap.shape, mask.bitmap.all()) == (5, 10, (10, 10), True)


def test_unequal_factors_keep_the_axis_of_a_rotated_box():
    found = scaled(Detections(None, obb=[[100, 100, 40, 20, np.pi / 2]]), (200, 200), (400, 200))
    np.testing.assert_allclose(found.obb, [[200, 100, 40, 40, np.pi / 2]], atol=1e-3)


@given(sizes, sizes, st.floats(0, 1), st.floats(0, 1))
def test_there_and_back(written, now, x, y):
    box = np.array([[x * written[0], y * written[1], written[0], written[1]]], np.float32)
    back = scaled(scaled(Detections(box), written, now), now, written)
    np.testing.assert_allclose(back.xyxy, box, rtol=1e-4, atol=1e-3 * max(written))


@pytest.mark.parametrize(("now", "shape"), [((40, 20), (4, 8)), ((10, 10), (2, 2)), ((20, 10), (2, 4))])
def test_masks_are_resampled_at_pixel_centres(now, shape):
    bitmap = np.array([[1, 0, 0, 0], [1, 0, 0, 1]], bool)
    (mask,) = scaled(Detections([[4, 2, 8, 4]], mask=[Mask(4, 2, bitmap)]), (20, 10), now).mask
    assert mask.bitmap.shape == shape
    assert (mask.x, mask.y) == (4 * now[0] // 20, 2 * now[1] // 10)
    if now == (40, 20):
        np.testing.assert_array_equal(mask.bitmap, bitmap.repeat(2, 0).repeat(2, 1))


def test_an_empty_mask_stays_empty():
    (mask,) = scaled(Detections([[4, 2, 8, 4]], mask=[Mask(4, 2, np.zeros((0, 0), bool))]), (20, 10), (40, 20)).mask
    assert mask.bitmap.size == 0
