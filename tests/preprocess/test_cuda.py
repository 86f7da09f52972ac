"""The fused kernel's table against the reference, on the CPU; the kernels themselves where a GPU is."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.image import FORMATS, ColorInfo, Device, Image
from gstinfer.preprocess import Preprocessing, reference
from gstinfer.preprocess.cuda_table import ROW, Table, emulate

PLAIN = sorted(name for name, layout in FORMATS.items() if layout.is_plain)
COLORS = [ColorInfo("bt601"), ColorInfo("bt709"), ColorInfo("bt601", True), ColorInfo("bt2020")]


def random_image(rng, name, width, height, color=COLORS[0], padding=13):
    """Random pixels with padded rows."""
    planes = []
    for shape in FORMATS[name].plane_shapes(width, height):
        wide = rng.integers(0, 256, (shape[0], shape[1] + padding, *shape[2:]), dtype=np.uint8)
        planes.append(wide[:, : shape[1]])
    return Image(name, tuple(planes), width, height, color)


def transforms_of(images, spec):
    return [ImageTransform.plan(image.size, spec.size, spec.resize) for image in images]


def expected(images, spec, transforms):
    return np.stack([reference.prepare(i, spec, t) for i, t in zip(images, transforms)])


def emulated(images, spec, transforms):
    rows = np.zeros(len(images), ROW)
    Table(spec).fill(rows, images, transforms)
    out = np.full(spec.input_shape(len(images)), 99, spec.dtype)
    emulate(rows, spec, out)
    return out


def close(got, want, spec):
    """Within one grey level."""
    level = spec.scale / min(spec.std)
    tolerance = max(1, level) if spec.dtype in ("uint8", "int32") else level * (1 + 1e-3) + 1e-3
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    assert error.max() <= tolerance
    # Half-way values round either way: float32 here, float64 in the reference.
    assert (error > tolerance / 2).mean() < 0.02


@pytest.mark.parametrize("name", sorted(set(FORMATS) - set(PLAIN)))
def test_formats_of_the_cpu_alone_are_refused(name):
    image = random_image(np.random.default_rng(1), name, 64, 48)
    spec = Preprocessing((64, 48))
    with pytest.raises(ConfigError, match=f"{name} is not read on a GPU"):
        emulated([image], spec, transforms_of([image], spec))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_every_format_and_order(name, color):
    rng = np.random.default_rng(len(name) + len(color))
    spec = Preprocessing((64, 48), color=color)
    images = [random_image(rng, name, w, h) for w, h in ((101, 77), (64, 48), (30, 90))]
    where = transforms_of(images, spec)
    close(emulated(images, spec, where), expected(images, spec, where), spec)


@pytest.mark.parametrize("color", COLORS)
def test_matrix_and_range(color):
    rng = np.random.default_rng(3)
    spec = Preprocessing((40, 40))
    images = [random_image(rng, "NV12", 63, 41, color)]
    where = transforms_of(images, spec)
    close(emulated(images, spec, where), expected(images, spec, where), spec)


@pytest.mark.parametrize(
    "change",
    [
        {"resize": "letterbox-topleft"},
        {"resize": "stretch"},
        {"resize": "crop"},
        {"layout": "NHWC"},
        {"dtype": "float16"},
        {"dtype": "uint8", "scale": 1.0},
        {"dtype": "uint8", "scale": 2.0},
        {"dtype": "int32", "scale": 1.0, "mean": (3.0,)},
        {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "pad_value": 0},
        {"color": "bgr", "scale": 1.0, "mean": (103.53, 116.28, 123.675), "std": (57.375, 57.12, 58.395)},
        {"quality": "exact"},
    ],
)
def test_every_setting(change):
    rng = np.random.default_rng(5)
    spec = Preprocessing((56, 40), **change)
    images = [random_image(rng, "NV12", 90, 90), random_image(rng, "I420", 37, 21)]
    where = transforms_of(images, spec)
    close(emulated(images, spec, where), expected(images, spec, where), spec)


@pytest.mark.parametrize(
    "rectangle",
    [
        {"origin": (10.0, 6.0), "region": (40.0, 30.0)},
        {"origin": (11.0, 7.0), "region": (33.0, 31.0)},
        {"origin": (10.4, 6.7), "region": (40.5, 30.2)},
        {"origin": (-5.0, 60.0), "region": (50.0, 50.0)},
        {"origin": (20.0, 20.0), "region": (40.0, 20.0), "angle": 0.6},
    ],
)
def test_crops(rectangle):
    rng = np.random.default_rng(7)
    spec = Preprocessing((32, 32))
    image = random_image(rng, "NV12", 100, 80)
    where = [ImageTransform.plan(image.size, spec.size, spec.resize, **rectangle)]
    close(emulated([image], spec, where), expected([image], spec, where), spec)


def test_p010_is_its_upper_bytes():
    rng = np.random.default_rng(9)
    image = random_image(rng, "NV12", 50, 30)
    wide = [np.zeros((*p.shape, 2), np.uint8) for p in image.planes]
    for both, plane in zip(wide, image.planes):
        both[..., 1] = plane
        both[..., 0] = rng.integers(0, 256, plane.shape)
    deep = Image("NV12", tuple(both[..., 1] for both in wide), 50, 30, image.color)
    spec = Preprocessing((32, 32))
    where = transforms_of([image], spec)
    assert np.array_equal(emulated([deep], spec, where), emulated([image], spec, where))


def test_chroma_pairs_are_found():
    rng = np.random.default_rng(13)
    spec = Preprocessing((32, 32))
    rows = np.zeros(2, ROW)
    pairs = random_image(rng, "NV12", 50, 30, padding=14)
    odd = Image("NV12", (pairs.planes[0], pairs.planes[1].reshape(-1)[1:-1].reshape(1, -1, 2)), 50, 2)
    planar = random_image(rng, "I420", 50, 30)
    table = Table(spec)
    assert table.fill(rows, [pairs, pairs], transforms_of([pairs, pairs], spec))
    assert not table.fill(rows, [pairs, planar], transforms_of([pairs, planar], spec))
    assert not table.fill(rows, [odd], transforms_of([odd], spec))


def test_rows_are_kept_and_pointers_are_not():
    rng = np.random.default_rng(11)
    spec = Preprocessing((32, 32))
    table = Table(spec)
    first, second = random_image(rng, "NV12", 50, 30), random_image(rng, "NV12", 50, 30)
    where = transforms_of([first], spec)
    rows = np.zeros(2, ROW)
    table.fill(rows[:1], [first], where)
    table.fill(rows[1:], [second], where)
    assert len(table._fixed) == 1
    assert rows[0]["plane"][0] == first.planes[0].__array_interface__["data"][0]
    assert rows[1]["plane"][0] == second.planes[0].__array_interface__["data"][0]


# The same on a GPU


def on_gpu(image):
    """The picture's planes on the GPU, with the padding of their rows."""
    torch = pytest.importorskip("torch")
    planes = []
    for plane in image.planes:
        base = plane.base if plane.base is not None else plane
        moved = torch.from_numpy(np.ascontiguousarray(base)).cuda()
        planes.append(moved[:, : plane.shape[1]])
    return Image(image.format, tuple(planes), image.width, image.height, image.color, Device("cuda"))


@pytest.mark.cuda
@pytest.mark.parametrize("kernel", ["triton", "cupy"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_kernels_on_random_frames(kernel, dtype, cuda_device, monkeypatch):
    from gstinfer.preprocess import cuda

    backend = cuda.TorchBackend(0) if kernel == "triton" else cuda.CupyBackend(0)
    engine = cuda.Engine(backend)
    rng = np.random.default_rng()
    for layout in ("NCHW", "NHWC"):
        spec = Preprocessing((320, 192), dtype=dtype, layout=layout, scale=1.0 if dtype == "uint8" else 1 / 255)
        images = [
            random_image(rng, name, int(w), int(h), COLORS[n % 4])
            for n, (name, w, h) in enumerate(zip(PLAIN, *rng.integers(20, 700, (2, len(PLAIN)))))
        ]
        where = transforms_of(images, spec)
        out = engine.prepare([on_gpu(image) for image in images], spec, where, None)
        close(backend.to_host(out), expected(images, spec, where), spec)


@pytest.mark.cuda
def test_to_tensor_and_to_array(cuda_device):
    from gstinfer.preprocess import cuda

    rng = np.random.default_rng()
    for name in PLAIN:
        image = random_image(rng, name, 75, 43)
        for color in ("rgb", "bgr", "gray"):
            got = cuda.to_array(on_gpu(image), color)
            want = reference.to_array(image, color)
            assert got.shape == want.shape
            assert np.abs(got.astype(int) - want).max() <= 1
