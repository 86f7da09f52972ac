"""Which cores the threads of an element run on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from gstinfer import cores as module
from gstinfer.cores import parse_cores, set_aside, settle
from gstinfer.errors import ConfigError

HERE = sorted(os.sched_getaffinity(0))
ABSENT = max(HERE) + 2000


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "1;2", "1.5", str(ABSENT), f"{HERE[0]},{ABSENT}"])
def test_what_names_no_cores_is_refused(text):
    with pytest.raises(ConfigError, match="cpu-cores"):
        parse_cores(text)


def test_a_core_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ConfigError, match=f"names core {ABSENT}.*it may use {HERE[0]}"):
        parse_cores(str(ABSENT))


def test_lists_and_ranges():
    assert parse_cores("") == parse_cores(" ") == frozenset()
    assert parse_cores(str(HERE[0])) == {HERE[0]}
    assert parse_cores(", ".join(map(str, HERE))) == set(HERE)
    if list(range(HERE[0], HERE[-1] + 1)) == HERE:
        assert parse_cores(f"{HERE[0]}-{HERE[-1]}") == set(HERE)


@pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")
def test_cores_that_others_are_kept_off_can_be_used():
    found = []

    def work():
        settle(frozenset(HERE[:1]))
        found.append((parse_cores(str(HERE[1])), os.sched_getaffinity(0)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [({HERE[1]}, set(HERE[:1]))]


def test_one_thread_settles_and_no_other():
    found = []

    def work(cores):
        settle(cores)
        found.append(os.sched_getaffinity(0))

    for cores in (frozenset(HERE[:1]), frozenset()):
        thread = threading.Thread(target=work, args=(cores,))
        thread.start()
        thread.join()
    assert found == [set(HERE[:1]), set(HERE)]
    assert os.sched_getaffinity(0) == set(HERE)


def masks(*threads):
    return [os.sched_getaffinity(thread.native_id) for thread in threads]


@pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")
def test_everything_is_kept_off_a_core_for_a_while_but_what_settles_there(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 1)
    ended, settled, both = threading.Event(), threading.Event(), []

    def own():
        settle(frozenset(HERE[-1:]))
        settled.set()
        ended.wait()

    before = threading.Thread(target=ended.wait)
    before.start()
    try:
        with set_aside(1) as cores:
            assert cores == (HERE[-1],)
            during, mine = threading.Thread(target=ended.wait), threading.Thread(target=own)
            both = [during, mine]
            for thread in both:
                thread.start()
            settled.wait()
            rest = set(HERE[:-1])
            assert masks(before, during, mine) == [rest, rest, {HERE[-1]}] and os.sched_getaffinity(0) == rest
        assert masks(before, during, mine) == [set(HERE), set(HERE), {HERE[-1]}]
        assert os.sched_getaffinity(0) == set(HERE)
    finally:
        ended.set()
        for thread in [before, *both]:
            thread.join()


@pytest.mark.parametrize("count", [0, len(HERE)])
def test_no_core_is_set_aside_where_too_few_are_there(count):
    with set_aside(count) as cores:
        assert cores == () and os.sched_getaffinity(0) == set(HERE)


@pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")
def test_processes_set_different_cores_aside(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 1)
    claim = "from gstinfer import cores; cores.LEAST = 1\nwith cores.set_aside(1) as found: print(*found, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", claim], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline().split() == [str(HERE[-1])]
        with set_aside(1) as cores:
            assert cores == (HERE[-2],)
        with set_aside(len(HERE)) as cores:
            assert cores == ()
        other.communicate("\n")
    with set_aside(1) as cores:
        assert cores == (HERE[-1],)


def test_each_thread_gets_back_what_it_had(monkeypatch):
    """Masks of eight cores, by thread."""
    main, other, third, new = 1, 2, 3, 4
    masks = {main: set(range(8)), other: {0, 1, 7}, third: {2, 3}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: masks[thread or main])
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, mask: masks.update({thread or main: set(mask)}))
    monkeypatch.setattr(module.Path, "iterdir", lambda self: [self / str(thread) for thread in masks])
    before = {thread: set(mask) for thread, mask in masks.items()}
    with set_aside(2) as cores:
        assert cores == (6, 7)
        assert masks == {main: set(range(6)), other: {0, 1}, third: {2, 3}}
        masks[new] = set(masks[main])
        masks[third] = {6}
    assert masks == {**before, third: {6}, new: before[main]}
