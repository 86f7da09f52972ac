"""CUDA graphs are captured one at a time in a process, and while none of its decoders opens or closes.

NVIDIA's decoders synchronise the CUDA context when they open and when they close. In a context that they share with a
network this spoils a capture that is under way, and where the two meet at the wrong instruction the driver crashes (580, some
hundred synchronisations beside captures).
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["begin_change", "capture", "change", "end_change"]

PATIENCE = 5.0
"""Seconds after which a decoder that has begun to open is not waited for: it may never get a picture."""

_turn = threading.Condition()
_changing: dict[object, float] = {}
_capturing = False
_waiting = 0


def begin_change(decoder: object) -> None:
    """A decoder is about to open or to close; waits until no graph is captured. Call it from any thread.

    Args:
        decoder: Told to ``end_change`` once that is over; held until then.
    """
    with _turn:
        # Who waits to capture comes first: where streams come and go all the time it would never get its turn.
        _turn.wait_for(lambda: not _capturing and not _waiting)
        _patience_left()
        _changing[decoder] = time.monotonic()


def end_change(decoder: object) -> None:
    """The decoder is open or closed; repeated calls do nothing."""
    with _turn:
        if _changing.pop(decoder, None) is not None:
            _turn.notify_all()


@contextmanager
def change() -> Iterator[None]:
    """Decoders open or close inside."""
    key = object()
    begin_change(key)
    try:
        yield
    finally:
        end_change(key)


@contextmanager
def capture() -> Iterator[None]:
    """A graph is captured inside, by this thread: no other one, no decoder that opens or closes, and no garbage collection,
    which might free memory of the GPU here; CUDA forbids that meanwhile."""
    global _capturing, _waiting
    with _turn:
        _waiting += 1
        try:
            while _capturing or _patience_left() > 0:
                _turn.wait(None if _capturing else _patience_left())
            _capturing = True
        finally:
            _waiting -= 1
            _turn.notify_all()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        with _turn:
            _capturing = False
            _turn.notify_all()


def _patience_left() -> float:
    """Seconds until none of the decoders that are changing now is waited for any more; forgets those that took too long."""
    now = time.monotonic()
    for decoder in [d for d, since in _changing.items() if since + PATIENCE <= now]:
        del _changing[decoder]
    return max((since + PATIENCE - now for since in _changing.values()), default=0.0)
