"""A crop is a picture like any other: the same input as from a picture that was cut out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.frames import FrameBatch
from gstinfer.geometry import ImageTransform, Region
from gstinfer.image import FORMATS, ColorInfo, Device, Image
from gstinfer.preprocess import Preprocessing, prepare, reference, to_array
from gstinfer.preprocess.cuda_table import ROW, Table, emulate

PLAIN = sorted(name for name, layout in FORMATS.items() if layout.is_plain)
BOX = (40, 12, 70, 48)
"""x, y, width and height."""


def picture(name: str, seed: int = 0) -> Image:
    rng = np.random.default_rng(seed)
    high = 256 if FORMATS[name].depth == 8 else 1 << 16
    planes = tuple(rng.integers(0, high, shape).astype(FORMATS[name].dtype) for shape in FORMATS[name].plane_shapes(160, 90))
    return Image(name, planes, 160, 90, ColorInfo("bt709"))


def by_hand(image: Image) -> Image:
    x, y, w, h = BOX
    across, down = image.layout.subsampling
    planes = [image.planes[0][y : y + h, x : x + w]]
    planes += [p[y // down : (y + h) // down, x // across : (x + w) // across] for p in image.planes[1:]]
    return Image(image.format, tuple(planes), w, h, image.color)


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("resize", ["letterbox", "stretch"])
def test_as_if_cut_out_by_hand(name, quality, resize):
    image = picture(name)
    spec = Preprocessing((64, 64), resize, quality=quality)
    (got, (transform,)), (want, _) = (
        prepare([i], spec) for i in (image.crop(BOX[:2], BOX[2:]), by_hand(image))
    )
    assert (got == want).all()
    assert transform.frame_size == BOX[2:] and transform.origin == (0, 0)


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_as_an_array(name, color):
    image = picture(name)
    got = to_array(image.crop(BOX[:2], BOX[2:]), color)
    assert (got == to_array(by_hand(image), color)).all()
    if name.lower() == color:
        assert np.shares_memory(got, image.planes[0])


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_the_gpu_table_says_the_same(name, angle):
    image, spec = picture(name), Preprocessing((48, 32), dtype="uint8", scale=1.0)
    region = Region(image.size, BOX[:2], BOX[2:], angle)
    placed = region.placed(ImageTransform.plan(region.size, spec.size, spec.resize))
    rows, out = np.zeros(1, ROW), np.zeros(spec.input_shape(1), np.uint8)
    Table(spec).fill(rows, [image.crop(BOX[:2], BOX[2:], angle)], [placed])
    emulate(rows, spec, out)
    assert abs(out[0].astype(int) - reference.prepare(image, spec, placed).astype(int)).max() <= 1


def test_a_turned_crop_has_its_own_axes():
    image = np.zeros((100, 100, 3), np.uint8)
    image[20:80, 45:55] = 255
    lying = Image.from_array(image).crop((20, 45), (60, 10), np.pi / 2)
    got = to_array(lying)
    assert got.shape == (10, 60, 3) and got[1:-1, 1:-1].min() > 250
    (x, _), = [FrameBatch.of([lying]).letterbox(60, pad_value=0)]
    assert x[0, 0, 25:35].mean() > 0.9 and x[0, 0, :20].max() == 0


def test_results_of_a_crop_map_to_the_frame_and_back():
    region = Region((160, 90), (40, 12), (70, 48), 0.3)
    transform = region.transform()
    points = np.array([[0, 0], [70, 0], [35, 24]], np.float32)
    frame = transform.points_to_frame(points)
    assert frame[2] == pytest.approx([75, 36])
    assert transform.points_to_input(frame) == pytest.approx(points, abs=1e-4)


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_nothing_cannot_be_cut_out(size):
    with pytest.raises(ConfigError, match="cannot crop"):
        picture("RGB").crop((0, 0), size)
    with pytest.raises(ConfigError, match="cannot crop"):
        picture("RGB").crop((0, 0), (5, 5)).crop((0, 0), (2, 2))


@pytest.mark.cuda
@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_crops_in_gpu_memory(cuda_device, angle):
    torch = pytest.importorskip("torch")
    for name in ("NV12", "RGB", "BGRx", "GRAY8", "I420"):
        image = picture(name)
        planes = tuple(torch.from_numpy(p).cuda() for p in image.planes)
        there = Image(name, planes, 160, 90, image.color, Device("cuda"))
        spec = Preprocessing((48, 32), dtype="uint8", scale=1.0, quality="exact")
        got, (transform,) = prepare([there.crop(BOX[:2], BOX[2:], angle)], spec)
        region = Region(image.size, BOX[:2], BOX[2:], angle)
        want = reference.prepare(image, spec, region.placed(transform))
        assert abs(got[0].cpu().numpy().astype(int) - want).max() <= 1
        for color in ("rgb", "gray"):
            here = to_array(image.crop(BOX[:2], BOX[2:], angle), color)
            found = to_array(there.crop(BOX[:2], BOX[2:], angle), color)
            assert found.shape == here.shape
            inner = abs(found.astype(int) - here)[2:-2, 2:-2]
            assert inner.max() <= 2 if not angle else np.median(inner) <= 2
