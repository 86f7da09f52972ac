"""CUDA graphs that are captured anew when another thread spoilt a capture, and streams that are used again; torch and the GPU
are stood in for."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from gstinfer import captures
from gstinfer.errors import ModelLoadError
from gstinfer.image import Device
from gstinfer.models import torch_engine
from gstinfer.models.torch_engine import ATTEMPTS, Engine
from gstinfer.preprocess import Preprocessing

SPOILT = "CUDA error: operation failed due to a previous error during capture\nCompile with ..."
FORBIDDEN = "CUDA error: operation not permitted when stream is capturing\nCompile with ..."


class Gpu:
    """What torch and the driver say of one stream.

    Attributes:
        plan: What happens to each capture that torch begins, in turn: "" for nothing, an error that the network raises by
            itself, or where another thread spoils it: "inside", as a "library" tells it in its own words, or at the "end".
        begun: (pictures, pool) of each of them.
        open: Captures that torch has begun and not come to the end of.
        spoil: How many of the captures that only the driver begins are spoilt too.
    """

    def __init__(self) -> None:
        self.plan: list = []
        self.begun: list = []
        self.open, self.spoil, self.state, self.driver = 0, 0, "idle", 0

    def program(self, pictures):
        assert captures._capturing and self.state == "capturing"
        self.begun[-1] = (pictures, self.begun[-1])
        error = self.plan.pop(0) if self.plan else ""
        if isinstance(error, BaseException):
            if "CUDA" in str(error) or error.args == ("spoilt",):
                self.state = "spoilt"
            raise error
        if error:
            self.state = "spoilt"
        if error == "inside":
            raise RuntimeError(SPOILT)
        if error == "library":
            raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")
        return {"pictures": pictures}

    def begin(self, stream, mode):
        assert mode == torch_engine.THREAD_LOCAL and self.state == "idle"
        self.driver += 1
        self.state = "spoilt" if self.driver <= self.spoil else "capturing"
        return 0

    def zero(self):
        if self.state == "spoilt":
            raise RuntimeError(SPOILT)


class Graph:
    def __init__(self, gpu):
        self.gpu = gpu

    def capture_begin(self, pool, capture_error_mode):
        assert self.gpu.state == "idle" and capture_error_mode == "thread_local"
        self.gpu.begun.append(pool)
        self.gpu.open += 1
        self.gpu.state = "capturing"

    def capture_end(self):
        state, self.gpu.state = self.gpu.state, "idle"
        if state == "spoilt":
            raise RuntimeError(SPOILT)
        assert state == "capturing"
        self.gpu.open -= 1


class Pictures(list):
    gpu: Gpu

    def __getitem__(self, part):
        return type(self)(list.__getitem__(self, part))

    def zero_(self):
        self.gpu.zero()


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    found = Gpu()
    monkeypatch.setattr(torch_engine.C, "CDLL", lambda name: SimpleNamespace(cuStreamBeginCapture_v2=found.begin))
    monkeypatch.setattr(Engine, "_on_stream", lambda self: nullcontext())
    monkeypatch.setattr(Engine, "_warm", lambda self, pictures: None)
    monkeypatch.setattr(Pictures, "gpu", found, raising=False)
    return found


@pytest.fixture
def engine(gpu) -> Engine:
    made = object.__new__(Engine)
    cuda = SimpleNamespace(
        graph_pool_handle=lambda: "pool", CUDAGraph=lambda: Graph(gpu), synchronize=lambda place: None, empty_cache=lambda: None
    )
    flags = SimpleNamespace(cudnn=SimpleNamespace(flags=lambda **more: nullcontext()))
    made.torch = SimpleNamespace(cuda=cuda, backends=flags)
    made.sizes, made.place, made.stream, made.program = (1, 2, 4), "cuda:0", SimpleNamespace(cuda_stream=7), gpu.program
    made.input = Pictures(range(4))
    return made


def sizes(gpu):
    return [len(pictures) for pictures, pool in gpu.begun if pool == "pool"]


def test_all_sizes_share_a_pool_the_largest_first(engine, gpu):
    assert {size: outputs for size, (_, outputs) in engine._captured().items()} == {
        n: {"pictures": list(range(n))} for n in (1, 2, 4)
    }
    assert sizes(gpu) == [4, 2, 1] and not gpu.open


@pytest.mark.parametrize("spoil", [0, 1, 3])
@pytest.mark.parametrize("how", ["inside", "library", "end"])
def test_only_the_graph_that_was_spoilt_is_captured_anew(engine, gpu, how, spoil, caplog):
    caplog.set_level("INFO")
    gpu.plan, gpu.spoil = ["", how, how], spoil
    assert list(engine._captured()) == [4, 2, 1]
    assert sizes(gpu) == [4, 2, 2, 2, 1]
    # Each was brought to its end in torch, by captures that the driver began.
    assert not gpu.open and gpu.driver == 2 + spoil
    reason = "CUBLAS_STATUS_EXECUTION_FAILED" if how == "library" else SPOILT.partition("\n")[0]
    assert [record.getMessage() for record in caplog.records] == [f"the graph of 2 pictures is captured anew: {reason}"] * 2


def test_a_network_that_does_what_a_graph_cannot_hold_is_told_so_at_once(engine, gpu):
    gpu.plan = [RuntimeError(FORBIDDEN)]
    with pytest.raises(ModelLoadError, match=r"not permitted when stream is capturing .*graphs=false"):
        engine._captured()
    assert sizes(gpu) == [4] and not gpu.open


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), ZeroDivisionError("by zero"), KeyboardInterrupt("now")])
def test_other_errors_are_the_networks_own(engine, gpu, error):
    gpu.plan = [error]
    with pytest.raises(type(error), match=str(error)):
        engine._captured()
    assert sizes(gpu) == [4] and not gpu.open and not gpu.driver


def test_an_interrupt_is_no_reason_to_go_on(engine, gpu):
    gpu.plan = [KeyboardInterrupt("spoilt")]
    with pytest.raises(KeyboardInterrupt):
        engine._captured()
    assert sizes(gpu) == [4] and not gpu.open


def test_a_capture_that_is_spoilt_as_it_begins_is_begun_anew(engine, gpu, monkeypatch):
    begin, times = Graph.capture_begin, []

    def late(graph, **more):
        begin(graph, **more)
        times.append(graph)
        if len(times) == 1:
            gpu.state = "spoilt"
            raise RuntimeError("INTERNAL ASSERT FAILED")

    monkeypatch.setattr(Graph, "capture_begin", late)
    assert list(engine._captured()) == [4, 2, 1]
    assert len(times) == 4 and not gpu.open and gpu.driver == 1


def test_one_that_is_always_spoilt_ends_as_an_error(engine, gpu):
    gpu.plan = ["end"] * 99
    with pytest.raises(ModelLoadError, match="previous error during capture"):
        engine._captured()
    assert sizes(gpu) == [4] * ATTEMPTS and not gpu.open


def test_decoders_may_open_between_two_graphs(engine, gpu, monkeypatch):
    seen = []

    def warm(self, pictures):
        with captures.change():
            seen.append(len(pictures))

    monkeypatch.setattr(Engine, "_warm", warm)
    engine._captured()
    assert seen == [4, 2, 1]


def test_the_stream_of_a_closed_engine_serves_the_next_one_of_its_gpu(monkeypatch):
    """torch keeps memory for each stream that it computed on, as long as the process lives."""
    made, finished = [], []

    class Stream:
        def __init__(self, place):
            made.append(place)

        def synchronize(self):
            finished.append(self)

    def engine(device):
        one = object.__new__(Engine)
        one.torch, one.device, one.place, one._graphs = SimpleNamespace(cuda=SimpleNamespace(Stream=Stream)), device, device, {}
        one.stream = one._new_stream()
        return one

    monkeypatch.setattr(torch_engine, "_idle", defaultdict(list))
    first, beside = engine("cuda:0"), engine("cuda:0")
    assert first.stream is not beside.stream
    first.close()
    assert finished == [first.stream]
    assert engine("cuda:1").stream is not first.stream
    assert engine("cuda:0").stream is first.stream
    assert engine("cuda:0").stream not in (first.stream, beside.stream)
    assert made == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]


def test_the_stream_of_an_engine_that_cannot_be_made_is_used_again_too(monkeypatch):
    stream = SimpleNamespace(synchronize=lambda: None)
    torch = SimpleNamespace(device=str, float32=None, zeros=lambda *a, **k: Pictures(range(4)))
    torch.cuda = SimpleNamespace(Stream=lambda place: stream)
    monkeypatch.setattr(torch_engine, "_idle", defaultdict(list))
    monkeypatch.setattr(Engine, "_on_stream", lambda self: nullcontext())
    monkeypatch.setattr(Engine, "_warm", lambda self, pictures: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Engine(torch, None, Preprocessing(size=(8, 8)), Device("cuda"), (1,))
    assert torch_engine._idle == {"cuda:0": [stream]}
