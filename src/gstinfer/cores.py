"""Which CPU cores a thread runs on.

Python works for one thread at a time. Threads of one interpreter that wait for each other on several cores pay for every
handover with a wake-up of another core; on one core most handovers do not take place at all.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import get_ident, get_native_id

from gstinfer.errors import ConfigError

__all__ = ["Settled", "parse_cores", "set_aside", "settle"]

MOST = 1024
"""Cores that are asked about."""

LEAST = 4
"""Cores of the machine for each one that may be set aside."""


def parse_cores(text: str) -> frozenset[int]:
    """Numbers of cores as in ``3`` or ``0,4-7``; none for an empty text.

    Raises:
        ConfigError: It is no such list, or names a core that this process may not use.
    """
    cores: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        try:
            found = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            found = range(0)
        if not found or found[0] < 0:
            raise ConfigError(f"cpu-cores={text!r} is no list of cores", hint="write numbers and ranges such as 0,4-7")
        cores.update(found)
    if cores and not hasattr(os, "sched_setaffinity"):
        raise ConfigError("cpu-cores cannot be set on this system")
    usable = _usable() if cores else set()
    if missing := sorted(cores - usable):
        raise ConfigError(
            f"cpu-cores={text!r} names core {missing[0]}, which this process may not use",
            hint=f"it may use {', '.join(map(str, sorted(usable)))}",
        )
    return frozenset(cores)


def _usable() -> set[int]:
    """Cores that the system would let this process run on, wherever the calling thread is kept now."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(MOST))
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, before)


class Settled:
    """Threads of somebody else that are kept on some cores for a while.

    Args:
        cores: Empty for any.
    """

    def __init__(self, cores: frozenset[int] = frozenset()) -> None:
        self._cores = cores
        self._last = 0
        self._before: dict[int, set[int]] = {}

    def here(self) -> None:
        """Keeps the calling thread there."""
        if self._cores and self._last != (thread := get_ident()):
            self._last = thread
            self._before.setdefault(get_native_id(), os.sched_getaffinity(0))
            settle(self._cores)

    def release(self) -> None:
        """Lets them run where they ran before: GStreamer gives its threads to other pipelines. Any thread."""
        before, self._before, self._last = self._before, {}, 0
        for thread, cores in before.items():
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cores)


def settle(cores: frozenset[int]) -> None:
    """Has the calling thread, and what it starts from now on, run on these cores alone; on any where there are none."""
    if cores:
        os.sched_setaffinity(0, cores)


@contextmanager
def set_aside(count: int) -> Iterator[tuple[int, ...]]:
    """Keeps this process, its threads and what they start, off some cores for a while, but for what ``settle`` puts there.

    Other processes that do the same choose other cores. Those in another network namespace, such as a container's, do not know.

    Args:
        count: Cores; 0 for nothing at all.

    Returns:
        The cores, of the last ``1 / LEAST`` that this thread may use; none where too few of these are left.
    """
    usable = os.sched_getaffinity(0) if count and hasattr(os, "sched_getaffinity") else set()
    with ExitStack() as claims:
        last = sorted(usable, reverse=True)[: len(usable) // LEAST]
        free = (core for core in last if _claim(core, claims))
        cores = tuple(sorted(islice(free, count)))
        if not count or len(cores) < count:
            claims.close()
            yield ()
            return
        before = _move(lambda thread, mask: mask.difference(cores))
        try:
            yield cores
        finally:
            _move(lambda thread, mask: was if mask == (was := before.get(thread, usable)).difference(cores) else mask)


def _claim(core: int, claims: ExitStack) -> bool:
    """Whether no other process has set the core aside; held until ``claims`` is closed, or the process ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0gstinfer:core:{core}")
    except OSError:
        claim.close()
        return False
    claims.enter_context(claim)
    return True


def _move(choose: Callable[[int, set[int]], set[int]]) -> dict[int, set[int]]:
    """Lets every thread of this process run on the cores chosen by its number and present cores; gives the present ones."""
    before: dict[int, set[int]] = {}
    for thread in (int(task.name) for task in Path("/proc/self/task").iterdir()):
        with suppress(OSError):  # it has ended
            before[thread] = os.sched_getaffinity(thread)
            if wanted := choose(thread, before[thread]):
                os.sched_setaffinity(thread, wanted)
    return before
