"""Drawing in CUDA memory: what is noted down and the oracle of the kernel against the CPU's drawing; the kernels against the
oracle, in CUDA C also by the C++ compiler of this machine."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gstinfer.errors import ConfigError
from gstinfer.geometry import obb_corners
from gstinfer.image import FORMATS, ColorInfo, Device, Image
from gstinfer.overlay import Overlay, Style
from gstinfer.overlay import draw as draw_module
from gstinfer.overlay.cuda import SLOTS, CudaEngine, Slot
from gstinfer.overlay.cuda_canvas import CudaCanvas
from gstinfer.overlay.cuda_kernels import CUDA_SOURCE
from gstinfer.overlay.cuda_table import BOX, HEAD, OPERATION, TILE, Drawing, emulate, head_of, operation
from gstinfer.results import Classifications, Detections, FrameResults, Mask, SegmentationMap, Text

PLAIN = sorted(name for name, layout in FORMATS.items() if layout.is_plain)
COLORS = [ColorInfo("bt601"), ColorInfo("bt709"), ColorInfo("bt601", True), ColorInfo("bt2020")]
LEVELS = 8
"""Grey levels that drawing on a GPU may differ by: smoothed edges are mixed once there, and stroke by stroke on the CPU."""

SHARED = Overlay()


def frame(rng: Any, name: str, width: int, height: int, color: ColorInfo = COLORS[0]) -> Image:
    """Random pixels with padded rows."""
    planes = []
    for shape in FORMATS[name].plane_shapes(width, height):
        wide = rng.integers(0, 256, (shape[0], shape[1] + 13, *shape[2:]), dtype=np.uint8)
        planes.append(wide[:, : shape[1]])
    return Image(name, tuple(planes), width, height, color)


def twin(image: Image) -> Image:
    """The same pixels, their padding included, in memory of their own."""
    planes = tuple(plane.base.copy()[:, : plane.shape[1]] for plane in image.planes)
    return Image(image.format, planes, image.width, image.height, image.color, image.device)


def everything(rng: Any, width: int, height: int, count: int = 5, *, rotated: bool = False) -> FrameResults:
    """One of each kind; strokes stay inside, boxes, masks and labels also leave the picture."""
    corner = rng.uniform(-0.2, 0.9, (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.05, 0.6, (count, 2))], 1) * [width, height, width, height]
    boxes = boxes.astype(np.float32)
    points = np.ones((count, 17, 3), np.float32)
    points[..., :2] = rng.uniform(0.2, 0.8, (count, 17, 2)) * [width, height]
    middle = rng.uniform(0.4, 0.6, (count, 2)) * [width, height]
    sides, angle = rng.uniform(0.1, 0.3, (count, 2)) * min(width, height), rng.uniform(-1.5, 1.5, (count, 1))
    obb = np.concatenate([middle, sides, angle], 1).astype(np.float32)
    masks = [Mask(round(b[0]), round(b[1]), rng.random((37, 41)) < 0.5) for b in boxes.tolist()]
    return FrameResults(
        detections=Detections(
            None if rotated else boxes,
            rng.uniform(0.3, 1, count),
            rng.integers(0, 9, count),
            np.arange(count),
            [f"thing {n}" for n in range(count)],
            mask=masks,
            keypoints=points,
            obb=obb if rotated else None,
        ),
        classifications=[Classifications([1, 2], [0.5, 0.4])],
        segmentation=SegmentationMap(rng.integers(-1, 300, (6, 9))),
        texts=[Text("word " * 30)],
    )


class HostEngine:
    """Carries drawings out by the oracle; remembers their tables."""

    def __init__(self) -> None:
        self.tables: list[np.ndarray] = []

    def draw(self, image: Image, drawing: Drawing) -> None:
        table = np.zeros(-(-drawing.bytes // 8) * 8, np.uint8)
        drawing.pack(head_of(image), table)
        self.tables.append(table)
        emulate(table)


@pytest.fixture
def host_engine(monkeypatch: pytest.MonkeyPatch) -> HostEngine:
    """``Overlay.draw`` notes down and runs the oracle, whatever the device."""
    engine = HostEngine()
    monkeypatch.setattr(draw_module, "canvas_of", lambda image: CudaCanvas(image, engine))
    return engine


def both(image: Image, results: FrameResults, style: Style, monkeypatch: Any) -> tuple[Image, Image]:
    """Drawn on by the CPU, and by the oracle."""
    first, second = image, twin(image)
    SHARED.draw(first, results, style)
    with monkeypatch.context() as patch:
        patch.setattr(draw_module, "canvas_of", lambda image: CudaCanvas(image, HostEngine()))
        SHARED.draw(second, results, style)
    return first, second


def differences(a: Image, b: Image) -> np.ndarray:
    return np.concatenate([np.abs(p.astype(int) - q).ravel() for p, q in zip(a.planes, b.planes)])


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (33, 21), (320, 200), (161, 121)], ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_the_picture_is_the_cpus(name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(len(name) + size[0])
    for color in COLORS:
        for rotated in (False, True):
            image = frame(rng, name, *size, color)
            paddings = [plane.base[:, plane.shape[1] :].copy() for plane in image.planes]
            results = everything(rng, *size, rotated=rotated)
            first, second = both(image, results, Style(), monkeypatch)
            error = differences(first, second)
            assert error.max() <= LEVELS or min(size) < 20
            # In tiny pictures every stroke leaves the picture, where it may be smoothed otherwise.
            assert error.mean() < (0.2 if min(size) >= 20 else 8)
            for plane, padding in zip(second.planes, paddings):
                assert np.array_equal(plane.base[:, plane.shape[1] :], padding)


def test_boxes_labels_and_captions_are_the_cpus_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for name in PLAIN:
        results = everything(rng, 320, 200)
        results.segmentation = None
        style = Style(show_masks=False, show_keypoints=False)
        first, second = both(frame(rng, name, 320, 200), results, style, monkeypatch)
        assert differences(first, second).max() == 0


def test_a_stroke_over_the_edge_differs_in_few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    obb = np.array([[5, 5, 60, 40, 0.4], [315, 190, 80, 30, -1.0], [160, -9, 90, 50, 0.2]], np.float32)
    assert obb_corners(obb).min() < 0
    results = FrameResults(detections=Detections(None, obb=obb))
    first, second = both(frame(rng, "NV12", 320, 200), results, Style(), monkeypatch)
    assert (differences(first, second) > LEVELS).mean() < 0.001


def test_p010_takes_upper_bytes_and_clears_the_lower_ones(host_engine: HostEngine) -> None:
    rng = np.random.default_rng(5)
    words = [rng.integers(0, 1024, shape, dtype=np.uint16) << 6 for shape in FORMATS["NV12"].plane_shapes(64, 48)]
    before = [plane.copy() for plane in words]
    upper = tuple(plane.view(np.uint8).reshape(*plane.shape, 2)[..., 1] for plane in words)
    image = Image("NV12", upper, 64, 48)
    deep = Image("P010_10LE", tuple(plane.copy() for plane in words), 64, 48)
    results = FrameResults(detections=Detections([[10, 8, 50, 40]], label=["a"]))
    SHARED.draw(image, results, Style())
    with draw_module.Canvas(deep) as canvas:
        draw_module._Painter(SHARED, canvas, Style()).paint(results)
    for mine, cpus, old in zip(words, deep.planes, before):
        drawn = mine != old
        assert drawn.any() and not drawn.all()
        assert (mine[drawn] & 255 == 0).all()
        # Where the CPU's eight bits are as they were, the lower ones stay on either way.
        assert (np.abs(mine.astype(int) - cpus) < 256).all() and (mine >> 8 == cpus >> 8).all()


def test_formats_of_the_cpu_alone_are_refused() -> None:
    rng = np.random.default_rng(6)
    image = frame(rng, "YUY2", 32, 32)
    with pytest.raises(ConfigError, match="YUY2 is not drawn on in CUDA memory"):
        head_of(image)


def test_the_table_says_where_pixels_lie() -> None:
    rng = np.random.default_rng(7)
    image = frame(rng, "NV12", 33, 21)
    drawing = Drawing()
    drawing.rows += operation(BOX, 3, (1, 2, 30, 20), (5, 6, 7), border=2)
    same = np.arange(5, dtype=np.uint8)
    assert drawing.kept(same.tobytes()) == drawing.kept(same.tobytes()) == 0 and drawing.data(same) == 16
    table = np.full(drawing.bytes + 3, 9, np.uint8)
    drawing.pack(head_of(image), table)
    head = table[: HEAD.itemsize].view(HEAD)[0]
    assert head["plane"].tolist() == [p.__array_interface__["data"][0] for p in image.planes] + [0]
    assert head["pitch"].tolist() == [46, 60, 0] and head["step"].tolist() == [1, 2, 0]
    assert head["width"].tolist() == [33, 17, 0] and head["height"].tolist() == [21, 11, 0]
    assert head["channels"].tolist() == [1, 2, 0] and head["shift"].tolist() == [0, 1, 0] and not head["low"]
    row = table[HEAD.itemsize : HEAD.itemsize + OPERATION.itemsize].view(OPERATION)[0]
    assert head["count"] == 1 and row["box"].tolist() == [1, 2, 30, 20] and row["border"] == 2
    data = table[head["data"] :]
    assert data[:5].tolist() == data[16:21].tolist() == [0, 1, 2, 3, 4] and table[-3:].tolist() == [9] * 3


def test_words_that_return_travel_once(host_engine: HostEngine) -> None:
    rng = np.random.default_rng(8)
    boxes = [[10, 40, 60, 90], [100, 40, 160, 90], [200, 40, 260, 90]]
    found = Detections(boxes, [0.5] * 3, [1] * 3, label=["cat"] * 3)
    SHARED.draw(frame(rng, "NV12", 320, 200), FrameResults(detections=found), Style())
    table = host_engine.tables[0]
    head = table[: HEAD.itemsize].view(HEAD)[0]
    rows = table[HEAD.itemsize : head["data"]].view(OPERATION)
    tiles = rows[rows["kind"] == TILE]
    assert len(tiles) == 6 and len({int(row["at"][0]) for row in tiles}) == 2


def test_after_an_error_nothing_is_drawn() -> None:
    engine = HostEngine()
    image = frame(np.random.default_rng(9), "NV12", 32, 32)
    with pytest.raises(RuntimeError, match="stop"), CudaCanvas(image, engine) as canvas:
        canvas.fill(0, 0, 9, 9, (1, 2, 3))
        raise RuntimeError("stop")
    with CudaCanvas(image, engine):
        pass
    assert not engine.tables


class Clock:
    """A backend of the host that notes what happens in which order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.sizes: list[int] = []

    def slot(self, size: int) -> Slot:
        self.sizes.append(size)
        table = np.zeros(size, np.uint8)
        return Slot(table, table, table)

    def run(self, slot: Slot, size: int, samples: int, height: int, planes: int) -> Any:
        name = f"{samples}x{height}x{planes}"
        self.log.append(f"run {name}")
        emulate(slot.table)
        return SimpleNamespace(synchronize=lambda: self.log.append(f"wait {name}"))


def test_planes_keep_the_event_and_slots_wait_for_theirs() -> None:
    clock, kept = Clock(), []
    engine = CudaEngine(clock)
    image = frame(np.random.default_rng(10), "NV12", 33, 21)
    drawing = Drawing()
    drawing.rows += operation(BOX, 3, (1, 2, 30, 20), (5, 6, 7))
    engine.draw(image, drawing)
    assert clock.log == ["run 34x21x2", "wait 34x21x2"]
    first = SimpleNamespace(__array_interface__=image.planes[0].__array_interface__, keep_until=kept.append)
    image.planes = (first, image.planes[1])
    clock.log.clear()
    for _ in range(SLOTS):
        engine.draw(image, drawing)
    # The slot of the first drawing is used again, so what it was for is waited for, again without harm.
    assert clock.log.count("wait 34x21x2") == 1 and len(kept) == SLOTS
    clock.log.clear()
    engine.draw(image, drawing)
    assert clock.log == ["wait 34x21x2", "run 34x21x2"]


def test_a_slot_grows_with_what_is_drawn() -> None:
    clock = Clock()
    engine = CudaEngine(clock)
    drawing = Drawing()
    drawing.rows += operation(BOX, 1, (1, 2, 3, 4), (5, 0, 0))
    drawing.data(np.zeros(3_000_000, np.uint8))
    engine.draw(frame(np.random.default_rng(11), "GRAY8", 32, 32), drawing)
    assert max(clock.sizes) == 1 << 22


# The kernels

SHIM = """
struct Three { int x, y, z; };
static Three blockIdx, blockDim, threadIdx;
#include <cmath>
#define __global__
"""
LOOP = """
extern "C" void all(const int* table, int columns, int rows, int planes) {
    blockDim = {1, 1, 1};
    for (blockIdx.z = 0; blockIdx.z < planes; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < rows; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < columns; ++blockIdx.x) draw(table);
}
"""


@pytest.fixture(scope="module")
def cuda_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """The source for NVRTC as a function of the host."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler is here")
    folder: Path = tmp_path_factory.mktemp("cuda")
    (folder / "draw.cpp").write_text(SHIM + CUDA_SOURCE + LOOP)
    built = folder / "draw.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", built, folder / "draw.cpp"], check=True, timeout=120)
    found = ctypes.CDLL(str(built)).all
    found.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    return found


def noted(image: Image, results: FrameResults, style: Style) -> np.ndarray:
    """The table of a drawing, which is carried out by the oracle as well."""
    engine = HostEngine()
    with CudaCanvas(image, engine) as canvas:
        draw_module._Painter(SHARED, canvas, style).paint(results)
    return engine.tables[0]


@pytest.mark.parametrize("name", PLAIN)
def test_the_cuda_source_does_what_the_oracle_does(name: str, cuda_c: Callable[..., None]) -> None:
    rng = np.random.default_rng(len(name))
    for size in ((320, 200), (161, 121), (33, 21)):
        image = frame(rng, name, *size)
        wanted = twin(image)
        table = noted(wanted, everything(rng, *size, rotated=size[0] == 161), Style())
        head = table[: HEAD.itemsize].view(HEAD)
        head["plane"] = np.frombuffer(head_of(image), HEAD)["plane"]
        cuda_c(table.ctypes.data, size[0] * 4, size[1], len(image.planes))
        # A tie may fall either way where a compiler fuses multiplication and addition.
        assert differences(image, wanted).max() <= 1
        for p, q in zip(image.planes, wanted.planes):
            assert np.array_equal(p.base[:, p.shape[1] :], q.base[:, q.shape[1] :])


@pytest.mark.cuda
@pytest.mark.parametrize("kernel", ["triton", "cupy"])
@pytest.mark.parametrize("name", PLAIN)
def test_kernels_on_random_frames(name: str, kernel: str, cuda_device: Any) -> None:
    from gstinfer.overlay import cuda

    torch = pytest.importorskip("torch")
    if kernel == "cupy":
        pytest.importorskip("cupy")
    else:
        pytest.importorskip("triton")
    engine = cuda.CudaEngine(cuda.TorchBackend(0) if kernel == "triton" else cuda.CupyBackend(0))
    rng = np.random.default_rng()
    for count in (1, 5, 40):
        width, height = (int(v) for v in rng.integers(40, 900, 2))
        host = frame(rng, name, width, height, COLORS[count % 4])
        moved = [torch.from_numpy(plane.base.copy()).cuda() for plane in host.planes]
        torch.cuda.synchronize()
        planes = tuple(m[:, : plane.shape[1]] for m, plane in zip(moved, host.planes))
        there = Image(name, planes, width, height, host.color, Device("cuda"))
        results = everything(rng, width, height, count, rotated=count == 5)
        with CudaCanvas(there, engine) as canvas:
            draw_module._Painter(SHARED, canvas, Style()).paint(results)
        noted(host, results, Style())
        for got, wanted in zip(moved, host.planes):
            assert np.abs(got.cpu().numpy().astype(int) - wanted.base).max() <= 1
