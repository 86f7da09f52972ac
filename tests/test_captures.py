"""Graphs that are captured while no decoder opens or closes."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import ExitStack

import pytest

from gstinfer import captures


@pytest.fixture
def beside():
    """Runs a function in another thread: ``done = beside(function)``, whose ``wait`` says whether it has ended."""
    threads = []

    def begin(work):
        done = threading.Event()
        threads.append(threading.Thread(target=lambda: (work(), done.set()), daemon=True))
        threads[-1].start()
        return done

    yield begin
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def entered(context):
    def work():
        with context():
            pass

    return work


@pytest.mark.parametrize("inside", [captures.capture, captures.change])
@pytest.mark.parametrize("other", [captures.capture, captures.change])
def test_who_waits_for_whom(inside, other, beside):
    with inside():
        done = beside(entered(other))
        together = done.wait(0.2)
    assert together is (inside is other is captures.change)
    assert done.wait(5)


def test_a_capture_waits_for_all_changes_and_goes_before_new_ones(beside):
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(captures.change())
        second.enter_context(captures.change())
        order = []

        def graph():
            with captures.capture():
                order.append("graph")

        def late():
            with captures.change():
                order.append("late")

        captured = beside(graph)
        while not captures._waiting:
            time.sleep(0.001)
        changed = beside(late)
        first.close()
        assert not captured.wait(0.1) and not changed.wait(0.1)
    assert captured.wait(5) and changed.wait(5)
    assert order == ["graph", "late"]


def test_a_decoder_that_never_opens_is_waited_for_once(monkeypatch, beside):
    monkeypatch.setattr(captures, "PATIENCE", 0.2)
    decoder = object()
    captures.begin_change(decoder)
    began = time.monotonic()
    assert beside(entered(captures.capture)).wait(5)
    assert time.monotonic() - began > 0.1
    assert not captures._changing
    captures.end_change(decoder)


def test_the_decoders_that_never_opened_are_forgotten_without_a_capture_too(monkeypatch):
    monkeypatch.setattr(captures, "PATIENCE", 0.0)

    class Decoder:
        pass

    decoder = Decoder()
    gone = weakref.ref(decoder)
    captures.begin_change(decoder)
    del decoder
    with captures.change():
        assert gone() is None
    assert not captures._changing


def test_an_interrupted_capture_lets_others_go_on(beside, monkeypatch):
    class Interrupt(Exception):
        pass

    def interrupted(timeout=None):
        raise Interrupt

    with captures.change():
        with monkeypatch.context() as patch, pytest.raises(Interrupt):
            patch.setattr(captures._turn, "wait", interrupted)
            with captures.capture():
                pass
        assert beside(entered(captures.change)).wait(5)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("error", [None, RuntimeError("out of memory")])
def test_nothing_is_collected_meanwhile(enabled, error):
    """A collection might free memory of the GPU in the thread that captures, which CUDA forbids."""

    class Node:
        pass

    def garbage():
        node = Node()
        node.itself = node
        return weakref.ref(node)

    before, threshold = gc.isenabled(), gc.get_threshold()
    gc.set_threshold(100)
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError) if error else ExitStack(), captures.capture():
            alive = garbage()
            rest = [[] for _ in range(5000)]
            assert alive() is not None and rest
            if error:
                raise error
        assert gc.isenabled() is enabled
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if before else gc.disable)()
