"""Images and devices; and that a batch gives a model the picture's own pixels at any stride."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer import ColorInfo, ConfigError, Device, Frame, FrameBatch, Image
from gstinfer.image import FORMATS
from gstinfer.preprocess import Preprocessing


@pytest.mark.parametrize(
    ("text", "want"), [("cpu", "cpu"), ("CUDA", "cuda:0"), ("cuda:3", "cuda:3"), (" cuda:12 ", "cuda:12")]
)
def test_devices(text, want):
    assert str(Device.parse(text)) == want
    assert Device.parse(Device.parse(text)) == Device.parse(text)
    assert Device.parse(text).is_cuda is want.startswith("cuda")


@pytest.mark.parametrize("text", ["gpu", "cpu:1", "cuda:", "cuda:-1", "", "cuda:0:1"])
def test_what_is_no_device(text):
    with pytest.raises(ConfigError, match="unknown device"):
        Device.parse(text)


def test_plane_shapes_round_chroma_up():
    assert FORMATS["NV12"].plane_shapes(161, 121) == [(121, 161), (61, 81, 2)]
    assert FORMATS["I420"].plane_shapes(1, 1) == [(1, 1), (1, 1), (1, 1)]
    assert FORMATS["BGRx"].plane_shapes(5, 4) == [(4, 5, 4)]
    assert FORMATS["GRAY8"].plane_shapes(5, 4) == [(4, 5)]


def test_unknown_formats_are_refused():
    with pytest.raises(ConfigError, match=r"'P016_LE' is not supported.*NV12"):
        Image("P016_LE", (), 4, 4)


@pytest.mark.parametrize(
    ("shape", "color", "name"),
    [((4, 6, 3), "rgb", "RGB"), ((4, 6, 3), "BGR", "BGR"), ((4, 6, 4), "rgb", "RGBA"), ((4, 6, 4), "bgr", "BGRA"),
     ((4, 6), "rgb", "GRAY8"), ((4, 6, 1), "rgb", "GRAY8")],
)  # fmt: skip
def test_arrays_are_wrapped_without_a_copy(shape, color, name):
    array = np.zeros(shape, np.uint8)
    image = Image.from_array(array, color)
    assert (image.format, image.size) == (name, (6, 4))
    assert np.shares_memory(image.planes[0], array)


@pytest.mark.parametrize(
    ("array", "color"),
    [
        (np.zeros((4, 6, 3), np.float32), "rgb"),
        (np.zeros((4, 6, 2), np.uint8), "rgb"),
        (np.zeros((4, 6, 3), np.uint8), "hsv"),
        (np.zeros((0, 6, 3), np.uint8), "rgb"),
        (np.zeros(6, np.uint8), "rgb"),
    ],
)
def test_other_arrays_are_refused(array, color):
    with pytest.raises(ConfigError, match="picture"):
        Image.from_array(array, color)


@pytest.mark.parametrize(
    ("name", "size", "strides", "offsets"),
    [
        ("NV12", (161, 121), (164, 164), (0, 20008)),
        ("I420", (161, 121), (164, 84, 84), (0, 20008, 25132)),
        ("I420", (1, 1), (4, 4, 4), (0, 8, 12)),
        ("GRAY8", (427, 240), (428,), (0,)),
    ],
)
def test_planes_of_a_padded_buffer(name, size, strides, offsets):
    """GStreamer's own strides and offsets for odd sizes, cut as views out of one buffer."""
    shapes = FORMATS[name].plane_shapes(*size)
    buffer = np.full(offsets[-1] + strides[-1] * (shapes[-1][0] + 1), 255, np.uint8)
    planes = []
    for shape, stride, offset in zip(shapes, strides, offsets):
        pixel = shape[2] if len(shape) == 3 else 1
        steps = (stride, pixel, 1)[: len(shape)]
        planes.append(np.lib.stride_tricks.as_strided(buffer[offset:], shape, steps))
        planes[-1][...] = 128
    planes[0][...] = (np.arange(size[0]) % 256)[None]
    image = Image(name, tuple(planes), *size, ColorInfo("bt709", True))
    (rgb,) = FrameBatch.of([image]).images("rgb")
    (gray,) = FrameBatch.of([image]).images("gray")
    assert np.array_equal(gray, planes[0])
    assert rgb.shape == (size[1], size[0], 3)
    assert np.abs(rgb.astype(int) - planes[0][..., None]).max() <= 1, "chroma 128 is gray, and no padding shows"


def test_batches_of_anything():
    array = np.zeros((4, 6, 3), np.uint8)
    for pictures in (array, [array], np.stack([array]), Image.from_array(array), Frame(Image.from_array(array)),
                     (array,), FrameBatch.of(array)):  # fmt: skip
        batch = FrameBatch.of(pictures)
        assert len(batch) == 1 and (batch[0].width, batch[0].height) == (6, 4)
    assert [f.sequence for f in FrameBatch.of(np.stack([array] * 3))] == [0, 1, 2]
    assert len(FrameBatch.of([])) == 0 and str(FrameBatch.of([]).device) == "cpu"
    with pytest.raises(ConfigError, match=r"picture 1 of the batch.*float64"):
        FrameBatch.of([array, np.zeros((4, 6, 3))])


def test_letterbox_for_a_model_of_ones_own():
    array = np.zeros((32, 64, 3), np.uint8)
    array[..., 0] = 255
    pixels, transforms = FrameBatch.of([array, array]).letterbox(64, mean=(0.5,), std=(0.5,))
    assert pixels.shape == (2, 3, 64, 64) and pixels.dtype == np.float32
    assert transforms[0].pad == (0, 16)
    assert np.allclose(pixels[0, :, 32, 32], [1, -1, -1])
    assert np.allclose(pixels[0, :, 0, 0], 114 / 255 * 2 - 1, atol=1e-6)
    half, _ = FrameBatch.of(array).letterbox((48, 32), dtype="float16", color="bgr", resize="stretch")
    assert half.shape == (1, 3, 32, 48) and half.dtype == np.float16 and half[0, :, 5, 5].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"resize": "zoom"}, "resize='zoom'"),
        ({"color": "yuv"}, "color='yuv'"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"size": (0, 5)}, "empty"),
        ({"pad_value": 256}, "pad-value"),
        ({"mean": (1, 2)}, "mean has 2 values"),
        ({"std": (1, 0, 1)}, "zero"),
        ({"color": "gray", "mean": (1, 2, 3)}, "mean has 3 values, expected 1 or 1"),
    ],
    ids=str,
)
def test_preprocessing_is_checked(fields, words):
    with pytest.raises(ConfigError, match=words):
        Preprocessing(**fields)
