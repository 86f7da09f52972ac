"""CUDA graphs that are captured anew when another thread spoilt a capture, and streams that are used again; torch and the GPU
are stood in for."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest

from gstinfer.models import torch_engine
from gstinfer.models.torch_engine import ATTEMPTS, Engine

SPOILT = "CUDA error: operation failed due to a previous error during capture\nCompile with ..."


@pytest.fixture
def engine(monkeypatch):
    made = object.__new__(Engine)
    pools, streams = count(1), count(1)
    made.torch = SimpleNamespace(
        cuda=SimpleNamespace(graph_pool_handle=lambda: next(pools), Stream=lambda place: f"stream {next(streams)}")
    )
    made.sizes, made.place, made.stream = (1, 2, 4), "cuda:0", "stream 0"
    monkeypatch.setattr(Engine, "_on_stream", lambda self: nullcontext())
    return made


def failing(monkeypatch, errors):
    """Captures that raise each of ``errors`` in turn, None for none; notes how each was begun."""
    begun = []

    def capture(self, size, pool):
        begun.append((size, pool, self.stream))
        if errors and (error := errors.pop(0)):
            raise error
        return size, pool

    monkeypatch.setattr(Engine, "_capture", capture)
    return begun


def test_all_sizes_share_a_pool_the_largest_first(engine, monkeypatch):
    begun = failing(monkeypatch, [])
    assert engine._captured() == {4: (4, 1), 2: (2, 1), 1: (1, 1)}
    assert begun == [(size, 1, "stream 0") for size in (4, 2, 1)]


def test_a_spoilt_capture_is_begun_anew_on_a_stream_and_in_a_pool_of_its_own(engine, monkeypatch, caplog):
    begun = failing(monkeypatch, [None, RuntimeError(SPOILT)])
    assert engine._captured() == {4: (4, 2), 2: (2, 2), 1: (1, 2)}
    assert begun[:2] == [(4, 1, "stream 0"), (2, 1, "stream 0")] and begun[2:] == [(s, 2, "stream 1") for s in (4, 2, 1)]
    assert engine.stream == "stream 1"
    assert [record.getMessage() for record in caplog.records] == [f"graphs are captured anew: {SPOILT.splitlines()[0]}"]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(RuntimeError(SPOILT), ATTEMPTS), (RuntimeError("out of memory"), 1), (ValueError(SPOILT), 1)],
)
def test_what_cannot_be_captured_is_an_error(engine, monkeypatch, error, attempts):
    begun = failing(monkeypatch, [error] * 9)
    with pytest.raises(type(error), match=str(error).partition("\n")[0]):
        engine._captured()
    assert len(begun) == attempts


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("error", [None, RuntimeError("out of memory")])
def test_nothing_is_collected_by_the_thread_that_captures(engine, monkeypatch, enabled, error):
    """A collection might free memory of the GPU there, which CUDA forbids while capturing."""

    class Node:
        pass

    def garbage():
        node = Node()
        node.itself = node
        return weakref.ref(node)

    def capture(self, size, pool):
        alive = garbage()
        rest = [[] for _ in range(5000)]
        seen.append(alive() is not None and len(rest))
        if error:
            raise error

    seen, before, threshold = [], gc.isenabled(), gc.get_threshold()
    monkeypatch.setattr(Engine, "_capture", capture)
    gc.set_threshold(100)
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError) if error else nullcontext():
            engine._captured()
        assert gc.isenabled() is enabled
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if before else gc.disable)()
    assert seen and all(seen)


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
