"""Pictures in inputs: the package's preprocessing against the documented rules, written apart, to the pixel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gstinfer.geometry import RESIZES, ImageTransform
from gstinfer.image import Image
from gstinfer.parity.fitting import FITS, Recipe, fit, letterbox, to_tensor
from gstinfer.preprocess import Preprocessing, prepare

sides = st.tuples(st.integers(3, 300), st.integers(3, 300))
inputs = st.tuples(st.integers(8, 200), st.integers(8, 200))


def noise(size: tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)


def ours(picture: np.ndarray, order: str, spec: Preprocessing) -> np.ndarray:
    return prepare([Image.from_array(picture, order)], spec)[0]


@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
@given(sides, inputs)
@settings(max_examples=60, deadline=None)
def test_letterbox_is_ultralytics_rule_to_the_pixel(order, quality, frame, size):
    """A frame in either channel order, as the network's RGB."""
    picture = noise(frame)
    spec = Preprocessing(size, scale=1.0, dtype="uint8", layout="NHWC", quality=quality)
    want = letterbox(picture if order == "rgb" else picture[..., ::-1].copy(), size).canvas
    assert np.array_equal(ours(picture, order, spec)[0], want)


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_letterbox_is_the_packages_own(order):
    augment = pytest.importorskip("ultralytics.data.augment")
    rng = np.random.default_rng(3)
    sizes = [((1280, 720), (640, 640)), ((640, 272), (416, 416)), ((333, 517), (320, 192)), ((161, 121), (96, 64))]
    sizes += [(tuple(rng.integers(30, 300, 2).tolist()), tuple(rng.integers(8, 200, 2).tolist())) for _ in range(40)]
    for frame, size in sizes:
        picture = noise(frame)
        want = augment.LetterBox((size[1], size[0]), auto=False)(image=picture if order == "rgb" else picture[..., ::-1])
        spec = Preprocessing(size, scale=1.0, dtype="uint8", layout="NHWC")
        assert np.array_equal(ours(picture, order, spec)[0], want)


@pytest.mark.parametrize("resize", RESIZES)
@given(sides, inputs)
@settings(max_examples=40, deadline=None)
def test_every_way_to_fit_agrees_in_pixels_and_in_points(resize, frame, size):
    bgr = noise(frame)
    fitted = fit(bgr, size, Recipe(resize))
    spec = Preprocessing(size, resize, scale=1.0, dtype="uint8", layout="NHWC", quality="exact")
    transform = ImageTransform.plan(frame, size, resize)
    assert fitted.canvas.shape == (size[1], size[0], 3)
    got = ours(bgr, "bgr", spec)[0]
    if resize == "crop" and transform.region != tuple(round(s / f) for s, f in zip(size, fitted.factor)):
        return  # one rounds a half up, the other down
    # An enlarged crop is resized from another corner: builds of OpenCV differ in the last bit there.
    assert np.abs(got.astype(int) - fitted.canvas).max() <= (resize == "crop")
    points = np.array([[0, 0], [3.5, 7], [size[0], size[1]]], np.float32)
    assert np.abs(fitted.back(points) - transform.points_to_frame(points)).max() < 1e-3


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize(
    "values",
    [
        {"scale": 1 / 255},
        {"scale": 1 / 255, "mean": (0.485,), "std": (0.229,)},
        {"scale": 1 / 127.5, "mean": (1.0,)},
        {"scale": 1.0},
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int32"])
def test_values_agree(color, values, dtype):
    bgr = noise((50, 40))
    recipe = Recipe("stretch", color=color, **values)
    want = to_tensor(fit(bgr, (24, 16), recipe).canvas, recipe, True, dtype)
    got = ours(bgr, "bgr", Preprocessing((24, 16), "stretch", color=color, dtype=dtype, quality="exact", **values))
    assert want.dtype == got.dtype and want.shape == got.shape
    # Grey is weighed before or after the resize.
    grey = color == "gray"
    assert np.abs(got.astype(float) - want.astype(float)).max() <= {"float16": 4e-3}.get(dtype, 1e-4) + 3 * grey


def test_every_resize_is_known_here():
    assert tuple(FITS) == RESIZES
