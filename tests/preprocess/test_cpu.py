"""The fast CPU preprocessing against the NumPy definition, at every format, size, stride and type."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.geometry import RESIZES, ImageTransform
from gstinfer.image import FORMATS, ColorInfo, Image
from gstinfer.preprocess import Preprocessing, prepare, reference, to_array

COLORS = [ColorInfo(m, r) for m in ("bt601", "bt709", "bt2020") for r in (False, True)]
YUV = [name for name, layout in FORMATS.items() if layout.is_yuv]
SIZES = [(1, 1), (1, 7), (2, 2), (5, 3), (161, 121), (128, 72)]


def picture(name: str, size: tuple[int, int], color: ColorInfo | None = None, extra: int = 0, seed: int = 0) -> Image:
    """Smooth random planes with ``extra`` bytes of padding after every row."""
    import cv2

    generator = np.random.default_rng(seed)
    planes, layout = [], FORMATS[name]
    for shape in layout.plane_shapes(*size):
        rough = generator.integers(16, 236, (4, 4, *shape[2:]), np.uint8)
        smooth = cv2.resize(rough, shape[1::-1], interpolation=cv2.INTER_LINEAR).reshape(shape)
        row = int(np.prod(shape[1:]))
        memory = np.full((shape[0], row + extra), 255, np.uint8)
        memory[:, :row] = smooth.reshape(shape[0], row)
        item = shape[2] if len(shape) == 3 else 1
        strides = (memory.strides[0], item, 1)[: len(shape)]
        planes.append(np.lib.stride_tricks.as_strided(memory, shape, strides))
        if layout.depth > 8:
            planes[-1] = (planes[-1].astype(np.uint16) * 4 + 1) << layout.shift
    return Image(name, packed(layout, planes) if layout.packing else tuple(planes), *size, color or ColorInfo())


def packed(layout, planes) -> tuple[np.ndarray, np.ndarray]:
    """Planes as views of one memory where Y and chroma alternate, with three bytes behind each row."""
    height, groups = planes[1].shape[:2]
    memory = np.full((height, 4 * groups + 3), 255, np.uint8)
    views = []
    for plane, (_, first, step, channel) in zip(planes, layout.places):
        strides = (memory.strides[0], step, channel)[: plane.ndim]
        views.append(np.lib.stride_tricks.as_strided(memory[:, first:], plane.shape, strides))
        views[-1][...] = plane
    return tuple(views)


def natural(name: str, size: tuple[int, int], color: ColorInfo | None = None) -> Image:
    """A smooth picture whose YUV pixels all are colours: fast and exact order differ least on those."""
    import cv2

    color = color or ColorInfo()
    width, height = size
    rough = np.random.default_rng(5).integers(0, 256, (3, 4, 3), np.uint8)
    rgb = cv2.resize(rough, size, interpolation=cv2.INTER_LINEAR).reshape(height, width, 3)
    matrix = reference.yuv_matrix(color)
    yuv = (rgb - matrix[:, 3]) @ np.linalg.inv(matrix[:, :3]).T
    layout = FORMATS[name]
    across, down = layout.subsampling
    whole = np.pad(yuv, ((0, -height % down), (0, -width % across), (0, 0)), mode="edge")
    small = whole.reshape(whole.shape[0] // down, down, whole.shape[1] // across, across, 3).mean((1, 3))
    y, u, v = (
        np.rint(np.clip(p, 0, 255) / layout.to_byte).astype(layout.dtype) for p in (yuv[..., 0], small[..., 1], small[..., 2])
    )
    u, v = (u, v) if layout.order == "UV" else (v, u)
    planes = (y, np.stack([u, v], -1)) if layout.kind == "nv" else (y, u, v)
    return Image(name, packed(layout, planes) if layout.packing else planes, width, height, color)


def difference(a: np.ndarray, b: np.ndarray) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("extra", [0, 5])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FORMATS)
def test_to_array_is_the_reference_at_any_size_and_stride(name, size, color, extra):
    image = picture(name, size, extra=extra)
    # OpenCV's fixed 601 conversion rounds its coefficients.
    assert difference(to_array(image, color), reference.to_array(image, color)) <= 2


@pytest.mark.parametrize("color", COLORS, ids=str)
@pytest.mark.parametrize("name", YUV)
def test_matrix_and_range_are_honoured(name, color):
    image = picture(name, (64, 48), color)
    for wanted in ("rgb", "bgr", "gray"):
        assert difference(to_array(image, wanted), reference.to_array(image, wanted)) <= 2


@pytest.mark.parametrize(
    ("color", "yuv", "rgb"),
    [
        (ColorInfo("bt601", False), (81, 90, 240), (254, 0, 0)),
        (ColorInfo("bt601", True), (76, 85, 255), (254, 0, 0)),
        (ColorInfo("bt709", False), (63, 102, 240), (255, 1, 0)),
        (ColorInfo("bt709", False), (235, 128, 128), (255, 255, 255)),
        (ColorInfo("bt601", False), (16, 128, 128), (0, 0, 0)),
        (ColorInfo("bt2020", True), (128, 128, 128), (128, 128, 128)),
    ],
)
def test_known_colours(color, yuv, rgb):
    planes = (np.full((2, 2), yuv[0], np.uint8), np.full((1, 1, 2), yuv[1:], np.uint8))
    image = Image("NV12", planes, 2, 2, color)
    assert np.abs(reference.to_array(image)[0, 0].astype(int) - rgb).max() <= 1
    assert np.abs(to_array(image)[0, 0].astype(int) - rgb).max() <= 2


def test_views_where_nothing_moves():
    image = picture("RGB", (9, 5), extra=3)
    assert np.shares_memory(to_array(image, "rgb"), image.planes[0])
    assert np.shares_memory(to_array(picture_bgrx := picture("BGRx", (9, 5)), "bgr"), picture_bgrx.planes[0])
    full = picture("I420", (8, 6), ColorInfo("bt709", True))
    assert np.shares_memory(to_array(full, "gray"), full.planes[0])


def test_each_array_is_its_own():
    """Scratch memory must not leak out: a second picture leaves the first as it was."""
    for name, color in (("I420", "rgb"), ("NV12", "bgr"), ("BGRA", "rgb"), ("GRAY8", "rgb"), ("RGB", "gray")):
        for info in COLORS:
            first = to_array(picture(name, (33, 21), info, seed=1), color)
            before = first.copy()
            to_array(picture(name, (33, 21), info, seed=2), color)
            assert np.array_equal(first, before), (name, color, info)


@pytest.mark.parametrize(
    ("name", "shape", "stride"),
    [("RGB", (240, 427), 1284), ("RGB", (480, 641), 1924), ("BGR", (1079, 1918), 5756), ("RGB", (1, 1), 4)],
)
def test_padded_rows(name, shape, stride):
    """R = x mod 256, G = y mod 256, B = 7 in memory with padded rows: no picture may come out sheared."""
    height, width = shape
    memory = np.full((height, stride), 255, np.uint8)
    plane = np.lib.stride_tricks.as_strided(memory, (height, width, 3), (stride, 3, 1))
    red, blue = name.index("R"), name.index("B")
    plane[..., red], plane[..., 1], plane[..., blue] = np.arange(width) % 256, (np.arange(height) % 256)[:, None], 7
    array = to_array(Image(name, (plane,), width, height), "rgb")
    assert array.shape == (height, width, 3)
    y = min(100, height - 1)
    assert array[y, 0].tolist() == [0, y, 7]
    assert array[-1, -1].tolist() == [(width - 1) % 256, (height - 1) % 256, 7]


@pytest.mark.parametrize("shift", [1.0, 257.0])
@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("size", [*SIZES, (200, 30)])
@pytest.mark.parametrize("name", ["RGB", "BGRx", "GRAY8", "NV12", "I420", "NV21", "YUY2", "Y444", "P010_10LE", "I422_10LE"])
def test_prepare_is_the_reference(name, size, resize, quality, shift):
    fast = name in YUV and quality == "fast"
    image = natural(name, size) if fast else picture(name, size, extra=int(shift) % 4)
    spec = Preprocessing((64, 48), resize, scale=shift, quality=quality, mean=(1, 2, 3), std=(2, 4, 8))
    got, transforms = prepare([image], spec)
    want = reference.prepare(image, spec, transforms[0])
    assert got.shape == (1, 3, 48, 64)
    # Chroma is interpolated when planes are resized first, and repeated when colour comes first.
    tolerance = (12 if fast else 3) * shift / 2
    assert np.abs(got[0] - want).max() <= tolerance


@pytest.mark.parametrize("color", COLORS, ids=str)
def test_fast_and_exact_agree_on_large_frames(color):
    for name in YUV:
        image = natural(name, (641, 363), color)
        fast, _ = prepare([image], Preprocessing((320, 320), scale=1.0))
        exact, _ = prepare([image], Preprocessing((320, 320), scale=1.0, quality="exact"))
        assert np.abs(fast - exact).max() <= 5


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize(
    "numbers", [{"scale": 1.0}, {}, {"scale": 1 / 127.5, "mean": (1.0,)}, {"std": (0.5,)}], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int32"])
def test_types_layouts_and_colours(dtype, numbers, color, layout):
    image = picture("BGR", (50, 40))
    spec = Preprocessing((32, 32), color=color, dtype=dtype, layout=layout, **numbers)
    got, transforms = prepare([image, image], spec)
    assert got.dtype == dtype and got.shape == spec.input_shape(2)
    want = reference.prepare(image, spec, transforms[0])
    step = abs(spec.scale / spec.std[0]) * 2.01
    tolerance = max(step, 1.01) if dtype in ("uint8", "int32") else step + 2e-3
    for row in got:
        assert np.abs(row.astype(float) - want.astype(float)).max() <= tolerance


@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("size", [(1280, 720), (427, 240), (64, 64), (333, 512), (31, 17)])
def test_letterbox_is_ultralytics_to_the_pixel(size, order):
    """Its rule, written out: scale by the smaller ratio, round the size, split the padding at -+0.1, fill 114."""
    import cv2

    array = np.random.default_rng(3).integers(0, 255, (size[1], size[0], 3), np.uint8)
    ratio = min(64 / size[0], 96 / size[1])
    new = round(size[0] * ratio), round(size[1] * ratio)
    dw, dh = (64 - new[0]) / 2, (96 - new[1]) / 2
    small = cv2.resize(array, new, interpolation=cv2.INTER_LINEAR) if new != size else array
    sides = round(dh - 0.1), round(dh + 0.1), round(dw - 0.1), round(dw + 0.1)
    want = cv2.copyMakeBorder(small, *sides, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    got, _ = prepare([Image.from_array(array, order)], Preprocessing((64, 96), color=order, scale=1.0, quality="exact"))
    assert np.array_equal(got[0].transpose(1, 2, 0), want)


@pytest.mark.parametrize("name", ["RGB", "I420", "NV12", "GRAY8"])
@pytest.mark.parametrize(
    "crop",
    [
        {"origin": (10, 6), "region": (40, 30)},
        {"origin": (11, 7), "region": (41, 33)},
        {"origin": (10.25, 6.5), "region": (40.5, 30)},
        {"origin": (-10, -5), "region": (60, 50)},
        {"origin": (150, 100), "region": (40, 40)},
        {"origin": (40, 30), "region": (60, 40), "angle": 0.5},
        {"origin": (40, 30), "region": (60, 40), "angle": -2.0},
    ],
    ids=str,
)
def test_crops(name, crop):
    image = picture(name, (161, 121))
    spec = Preprocessing((48, 32), scale=1.0, quality="exact")
    transform = ImageTransform.plan(image.size, spec.size, **crop)
    got, _ = prepare([image], spec, transforms=[transform])
    want = reference.prepare(image, spec, transform)
    # warpAffine samples at 1/32 of a pixel.
    assert np.abs(got[0] - want).max() <= (2 if transform.is_slice else 5)


@pytest.mark.parametrize("region", [None, (31, 17, 401, 303)])
@pytest.mark.parametrize("size", [(272, 640), (500, 333), (97, 131), (720, 1280)])
def test_exact_pixels_of_a_classifier_are_those_of_pillow(size, region):
    """torchvision's Resize(64) and CenterCrop(64) of a Pillow picture, with their rounding."""
    from PIL import Image as Pillow

    frame = np.random.default_rng(1).integers(0, 256, (*size, 3)).astype(np.uint8)
    image, picture = Image.from_array(frame), frame
    if region is not None:
        x, y, w, h = (min(value, limit - 40) for value, limit in zip(region, (80, 60, size[1] - 31, size[0] - 17)))
        image, picture = image.crop((x, y), (w, h)), frame[y : y + h, x : x + w]
    height, width = picture.shape[:2]
    small = (64, int(64 * height / width)) if width <= height else (int(64 * width / height), 64)
    resized = np.asarray(Pillow.fromarray(picture).resize(small, Pillow.Resampling.BILINEAR))
    left, top = round((small[0] - 64) / 2), round((small[1] - 64) / 2)
    spec = Preprocessing(size=(64, 64), resize="crop", scale=1.0, quality="exact")
    got, _ = prepare([image], spec)
    np.testing.assert_array_equal(got[0].transpose(1, 2, 0), resized[top : top + 64, left : left + 64])


def test_a_rotated_crop_shows_what_was_rotated():
    """A bar drawn at 30 degrees lies flat in the crop that is turned by the same angle."""
    import cv2

    frame = np.zeros((200, 200, 3), np.uint8)
    corners = cv2.boxPoints(((100, 100), (80, 20), 30)).astype(np.int32)
    cv2.fillPoly(frame, [corners], (255, 255, 255))
    spec = Preprocessing((80, 20), "stretch", scale=1.0)
    crop = ImageTransform.plan((200, 200), (80, 20), "stretch", origin=(60, 90), region=(80, 20), angle=np.radians(30))
    got, _ = prepare([Image.from_array(frame)], spec, transforms=[crop])
    assert got[0, :, 2:-2, 2:-2].min() > 250
    upright = ImageTransform.plan((200, 200), (80, 20), "stretch", origin=(60, 90), region=(80, 20))
    flat, _ = prepare([Image.from_array(frame)], spec, transforms=[upright])
    assert flat[0, :, 2:-2, 2:-2].min() < 5


def test_a_reused_output_keeps_nothing_of_the_last_frame():
    spec = Preprocessing((32, 32), scale=1.0, pad_value=9)
    out = np.full((3, 3, 32, 32), np.nan, np.float32)
    for size in ((64, 16), (16, 64), (40, 40)):
        image = Image.from_array(np.full((size[1], size[0], 3), 200, np.uint8))
        got, (transform,) = prepare([image], spec, out=out)
        assert np.shares_memory(got, out) and got.shape[0] == 1
        assert set(np.unique(got)) <= {9.0, 200.0}
        assert (got == 200).sum() == 3 * np.prod(transform.content)


def test_an_output_that_does_not_fit_is_refused():
    image = Image.from_array(np.zeros((4, 4, 3), np.uint8))
    for out in (np.zeros((1, 3, 8, 9), np.float32), np.zeros((1, 3, 8, 8)), np.zeros((0, 3, 8, 8), np.float32)):
        with pytest.raises(ConfigError, match="out must be"):
            prepare([image], Preprocessing((8, 8)), out=out)


def test_reference_resize_is_bilinear_with_half_pixel_centres():
    row = np.array([[0, 100]], np.uint8)
    assert reference.resize(row, (4, 1)).tolist() == [[0, 25, 75, 100]]
    assert reference.resize(np.array([[0, 100, 200, 40]], np.uint8), (2, 1)).tolist() == [[50, 120]]
