"""PyTorch networks: loading, decoding on the device, batches in flight. The same code runs on the CPU without graphs."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from gstinfer.errors import ConfigError, ModelLoadError
from gstinfer.frames import FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import NetworkInfo, TensorInfo, Thresholds
from gstinfer.heads.yolo import YoloE2eHead, YoloHead, YoloV5Head
from gstinfer.image import Device

torch = pytest.importorskip("torch")

from gstinfer.heads.device import DeviceDecoder, suppress
from gstinfer.heads.nms import nms
from gstinfer.models.torch import TorchModel, torch_model
from gstinfer.models.torch_engine import GRAPH_SIZES, graph_size

pytestmark = pytest.mark.torch

NETWORK = '''
import torch

class Colours(torch.nn.Module):
    """Raw YOLO output [B,4+3,N]: one candidate a cell of 32x32 pixels; its class is its strongest colour."""
    metadata = {"names": {0: "red", 1: "green", 2: "blue"}, "task": "detect", "imgsz": [96, 192]}

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        cells = torch.nn.functional.avg_pool2d(x, 32)
        b, _, h, w = cells.shape
        ys, xs = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
        side = torch.full_like(cells[:, 0], 32)
        box = torch.stack([xs.expand(b, -1, -1) * 32 + 16 + 0 * side, ys.expand(b, -1, -1) * 32 + 16 + 0 * side, side, side], 1)
        score = (cells * self.gain - 0.4).clamp(min=0)
        return torch.cat([box.flatten(2).to(x.dtype), score.flatten(2)], 1)

def make():
    return Colours()

def not_a_module():
    return 3
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "colour_net.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "colour_net:make"
    sys.modules.pop("colour_net", None)


def pictures():
    """192 x 96 pictures with one bright 32 x 32 square each, and (class, box) of it."""
    found, truth = [], []
    for number, (channel, x, y) in enumerate(((0, 32, 32), (1, 96, 0), (2, 160, 64), (0, 0, 64))):
        picture = np.zeros((96, 192, 3), np.uint8)
        picture[y : y + 32, x : x + 32, channel] = 255 - number
        found.append(picture)
        truth.append((channel, (x, y, x + 32, y + 32)))
    return found, truth


def check(results, truth):
    for found, (channel, box) in zip(results, truth, strict=True):
        assert len(found) == 1 and found.class_id[0] == channel
        assert np.abs(found.xyxy[0] - box).max() < 1.5


@pytest.mark.parametrize("engine", [False, True])
def test_a_module_finds_coloured_squares(module, engine):
    model = torch_model(module)
    model.load(Device())
    if engine:
        model._start(Device())
    found, truth = pictures()
    check(model.predict(FrameBatch.of(found)), truth)
    assert model.known_labels == ("red", "green", "blue")
    model.close()


def test_batches_in_flight_keep_their_order(module):
    model = torch_model(module, largest_batch=2)
    model.load(Device())
    model._start(Device())
    found, truth = pictures()
    pending = [model.submit(FrameBatch.of(found[i : i + 1])) for i in range(4)]
    out = [None] * 4

    def wait(i):
        out[i] = pending[i].result()

    threads = [threading.Thread(target=wait, args=(i,)) for i in reversed(range(4))]
    for thread in threads:
        thread.start()
        thread.join()
    check([o[0] for o in out], truth)
    # A batch above the largest is run in parts.
    check(model.submit(FrameBatch.of(found)).result(), truth)
    model.close()


def test_thresholds_change_between_batches(module):
    model = torch_model(module)
    model.load(Device())
    model._start(Device())
    found, _ = pictures()
    assert len(model.predict(FrameBatch.of(found[:1]))[0]) == 1
    model.confidence_threshold = 0.9
    assert len(model.predict(FrameBatch.of(found[:1]))[0]) == 0
    model.close()


def test_exported_program(module, tmp_path):
    import colour_net

    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(colour_net.make().eval(), (torch.zeros(2, 3, 96, 192),), dynamic_shapes=({0: batch},))
    path = tmp_path / "net.pt2"
    metadata = '{"task": "detect", "names": {"0": "r", "1": "g", "2": "b"}}'
    torch.export.save(program, path, extra_files={"metadata.json": metadata})
    model = TorchModel(str(path))
    model.load(Device())
    assert model.known_labels == ("r", "g", "b") and model.preprocessing.size == (192, 96)
    found, truth = pictures()
    check(model.predict(FrameBatch.of(found)), truth)
    with pytest.raises(ConfigError, match="precision"):
        TorchModel(str(path), precision="float16").load(Device())


def test_torchscript(module, tmp_path):
    import colour_net

    path = tmp_path / "net.torchscript"
    traced = torch.jit.trace(colour_net.make().eval(), torch.zeros(1, 3, 96, 192))
    metadata = '{"task": "detect", "imgsz": [96, 192], "names": {"0": "r", "1": "g", "2": "b"}}'
    torch.jit.save(traced, str(path), _extra_files={"config.txt": metadata})
    model = TorchModel(str(path))
    model.load(Device())
    found, truth = pictures()
    check([model.predict(FrameBatch.of(found[i : i + 1]))[0] for i in range(4)], truth)


def test_weights_with_code_are_refused_unless_trusted(module, tmp_path):
    import colour_net

    torch.save({"gain": torch.tensor([0.0])}, tmp_path / "dark.pt")
    model = torch_model(module, weights=str(tmp_path / "dark.pt"))
    model.load(Device())
    found, _ = pictures()
    assert not any(len(r) for r in model.predict(FrameBatch.of(found)))
    torch.save(colour_net.make(), tmp_path / "code.pt")
    with pytest.raises(ModelLoadError, match="trust"):
        torch_model(module, weights=str(tmp_path / "code.pt")).load(Device())
    torch_model(module, weights=str(tmp_path / "code.pt"), trust=True).load(Device())


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("missing.pt2", ModelLoadError, "does not exist"),
        ("weights.pt", ConfigError, "weights="),
        ("colour_net:not_a_module", ModelLoadError, "expected a torch.nn.Module"),
        ("colour_net:absent", ModelLoadError, "absent"),
    ],
)
def test_what_cannot_be_opened(module, path, error, words):
    with pytest.raises(error, match=words):
        torch_model(path).load(Device())


def test_a_gpu_that_is_not_there_is_an_error(module):
    with pytest.raises(ConfigError, match="cuda:77"):
        torch_model(module).load(Device("cuda", 77))


def test_graph_sizes():
    assert graph_size(1, GRAPH_SIZES) == 1
    assert graph_size(9, GRAPH_SIZES) == 12
    assert graph_size(32, GRAPH_SIZES) == 32


def random_boxes(rng, count, classes=3):
    corner = rng.uniform(0, 200, (count, 2))
    box = np.concatenate([corner, corner + rng.uniform(5, 90, (count, 2))], 1).astype(np.float32)
    score = np.sort(rng.uniform(0.05, 0.99, count).astype(np.float32))[::-1].copy()
    return box, score, rng.integers(0, classes, count)


@pytest.mark.parametrize("agnostic", [False, True])
def test_suppression_is_the_greedy_one(agnostic):
    rng = np.random.default_rng(1)
    for iou in (0.3, 0.45, 0.7):
        box, score, class_id = random_boxes(rng, 300)
        state = suppress(
            *(torch.from_numpy(a)[None] for a in (box, score, class_id)), torch.tensor(iou), torch.tensor(agnostic), 64
        )[0].numpy()
        want = np.zeros(300)
        want[nms(box, score, class_id, Thresholds(iou=iou, class_agnostic=agnostic, limit=300))] = 1
        assert np.array_equal(state, want)


def test_suppression_says_when_its_rounds_did_not_suffice():
    # Each box overlaps its neighbours only: settled from the strongest end, one link a round.
    step = np.arange(40, dtype=np.float32)[:, None] * 4
    box = np.concatenate([step, step * 0, step + 10, step * 0 + 10], 1)
    score = np.linspace(0.9, 0.3, 40, dtype=np.float32)
    inputs = [torch.from_numpy(a)[None] for a in (box, score, np.zeros(40, int))]
    short = suppress(*inputs, torch.tensor(0.4), torch.tensor(False), 4)[0].numpy()
    assert (short == -1).all()
    long = suppress(*inputs, torch.tensor(0.4), torch.tensor(False), 64)[0].numpy()
    assert np.array_equal(long, (np.arange(40) % 2 == 0).astype(np.float32))


@pytest.mark.parametrize("suffix", [".pt2", ".torchscript"])
@pytest.mark.parametrize("content", [b"no archive at all", b"PK\x03\x04cut short"])
def test_files_that_are_no_whole_archive(tmp_path, suffix, content, caplog):
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match="not a whole archive") as caught:
        torch_model(str(path)).load(Device())
    assert "\n" not in str(caught.value) and caplog.records == []


def head_and_output(kind, rng, batch=3, count=400):
    if kind == "yolo-e2e":
        rows = [np.column_stack([*random_boxes(rng, 300)]) for _ in range(batch)]
        array = np.stack(rows).astype(np.float32)
        head = YoloE2eHead(NetworkInfo((TensorInfo("i", (None, 3, 320, 320)),), (TensorInfo("o", (None, 300, 6)),)))
        return head, array
    arrays = []
    for _ in range(batch):
        box, score, class_id = random_boxes(rng, count)
        xywh = np.concatenate([(box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]], 1)
        classes = rng.uniform(0, 0.04, (count, 3)).astype(np.float32)
        classes[np.arange(count), class_id] = score
        columns = [xywh, np.full((count, 1), 0.9), classes] if kind == "yolov5" else [xywh, classes]
        arrays.append(np.concatenate(columns, 1)[rng.permutation(count)])
    array = np.stack(arrays).astype(np.float32)
    if kind == "yolov5":
        info = NetworkInfo((TensorInfo("i", (None, 3, 320, 320)),), (TensorInfo("o", (None, count, 8)),))
        return YoloV5Head(info), array
    if kind == "yolo-last":
        info = NetworkInfo((TensorInfo("i", (None, 3, 320, 320)),), (TensorInfo("o", (None, count, 7)),))
        return YoloHead(info, "channels-last"), array
    info = NetworkInfo((TensorInfo("i", (None, 3, 320, 320)),), (TensorInfo("o", (None, 7, count)),))
    return YoloHead(info, "channels-first"), array.transpose(0, 2, 1).copy()


@pytest.mark.parametrize("kind", ["yolo", "yolo-last", "yolov5", "yolo-e2e"])
@pytest.mark.parametrize("dirty", [False, True])
def test_decoding_on_the_device_is_the_heads_own(kind, dirty):
    rng = np.random.default_rng(5)
    head, array = head_and_output(kind, rng)
    if dirty:
        flat = array.reshape(len(array), -1)
        flat[:, rng.integers(0, flat.shape[1], 6)] = np.nan
    transforms = [ImageTransform.plan((w, h), (320, 320)) for w, h in ((640, 360), (200, 400), (320, 320))]
    for thresholds in (Thresholds(0.25, 0.45), Thresholds(0.05, 0.7, True), Thresholds(0.3, 0.5, limit=7)):
        want = head.decode({"o": array}, transforms, thresholds)
        decoder = DeviceDecoder(head)
        rows = decoder.select(
            {"o": torch.from_numpy(array)}, torch.tensor(thresholds.iou), torch.tensor(thresholds.class_agnostic)
        ).numpy()
        got = decoder.finish(rows, transforms, thresholds)
        for a, b in zip(got, want, strict=True):
            a, b = (d[np.isfinite(d.xyxy).all(1) & np.isfinite(d.confidence)] for d in (a, b))
            assert len(a) == len(b)
            assert np.allclose(a.confidence, b.confidence, atol=1e-6)
            assert np.array_equal(a.class_id, b.class_id)
            assert np.allclose(a.xyxy, b.xyxy, atol=1e-2)


@pytest.mark.cuda
def test_graphs_on_a_gpu(module, cuda_device):
    model = torch_model(module, precision="float32")
    model.load(Device("cuda"))
    found, truth = pictures()
    for count in (1, 3, 4):
        check(model.predict(FrameBatch.of(found[:count])), truth[:count])
    model.close()
