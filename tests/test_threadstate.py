"""Threads that Python did not start keep their state until they end."""

from __future__ import annotations

import _thread
import ctypes
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

gi = pytest.importorskip("gi")

from gi.repository import GLib

from gstinfer.threadstate import keep

LIBC, GLIB = ctypes.CDLL(None), ctypes.CDLL("libglib-2.0.so.0")


class Mark:
    """Something that only a thread's state refers to."""


class Foreign:
    """A thread of C that runs a main loop; what is given to it runs in Python, each time by a call of its own."""

    def __init__(self) -> None:
        self.context = GLib.MainContext()
        self.loop = GLib.MainLoop.new(self.context, False)
        self.ident = ctypes.c_ulong()
        run = ctypes.cast(GLIB.g_main_loop_run, ctypes.c_void_p)
        assert not LIBC.pthread_create(ctypes.byref(self.ident), None, run, ctypes.c_void_p(hash(self.loop)))

    def call(self, function):
        done, found = threading.Event(), []

        def work():
            found.append(function())
            done.set()
            return False

        source = GLib.Idle()
        source.set_callback(lambda *_: work())
        source.attach(self.context)
        assert done.wait(10)
        return found[0]

    def end(self):
        self.call(self.loop.quit)
        LIBC.pthread_join(self.ident, None)


def states() -> int:
    """Of this interpreter."""
    python, count = ctypes.pythonapi, 0
    for function in (python.PyInterpreterState_Get, python.PyInterpreterState_ThreadHead, python.PyThreadState_Next):
        function.restype = ctypes.c_void_p
    state = python.PyInterpreterState_ThreadHead(ctypes.c_void_p(python.PyInterpreterState_Get()))
    while state:
        count, state = count + 1, python.PyThreadState_Next(ctypes.c_void_p(state))
    return count


@pytest.fixture
def foreign():
    GLIB.g_main_loop_run.restype = None
    thread = Foreign()
    yield thread
    if thread.ident:
        thread.end()


local = threading.local()


def leave_mark():
    local.mark = Mark()
    return weakref.ref(local.mark)


def test_without_it_the_state_is_lost_between_two_calls(foreign):
    mark = foreign.call(leave_mark)
    foreign.call(int)
    assert mark() is None and not foreign.call(lambda: hasattr(local, "mark"))


def test_the_state_is_kept_until_the_thread_ends(foreign):
    before = states()
    for _ in range(3):
        foreign.call(keep)
    mark = foreign.call(leave_mark)
    assert foreign.call(lambda: local.mark is mark()) and foreign.call(states) == before + 1
    # Other ways into Python on the same thread, one in another, change nothing.
    nested = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: int(local.mark is mark()))
    assert foreign.call(nested) == 1
    foreign.end()
    foreign.ident = None
    assert mark() is None and states() == before


def test_a_thread_that_python_knows_by_a_dummy_keeps_it_too(foreign):
    foreign.call(threading.current_thread)
    foreign.call(keep)
    mark = foreign.call(leave_mark)
    assert mark() is not None and foreign.call(lambda: local.mark is mark())


def start(work):
    threading.Thread(target=work).start()


@pytest.mark.parametrize("start", [start, lambda work: _thread.start_new_thread(work, ())], ids=["threading", "_thread"])
def test_threads_of_pythons_own_end_as_ever(start):
    before, seen, ended = states(), [], threading.Semaphore(0)

    def work():
        keep()
        seen.append(leave_mark())
        keep()
        ended.release()

    for _ in range(20):
        start(work)
    for _ in range(20):
        assert ended.acquire(timeout=10)
    keep()
    deadline = time.monotonic() + 10
    while states() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert states() == before and all(mark() is None for mark in seen)


def test_many_threads_leave_nothing_behind():
    before = states()
    threads = [Foreign() for _ in range(30)]
    for thread in threads:
        thread.call(keep)
    assert states() == before + 30
    for thread in threads:
        thread.end()
    assert states() == before


def test_a_thread_may_outlive_python(tmp_path):
    script = tmp_path / "exits.py"
    script.write_text("""
import ctypes, sys

sys.path.insert(0, sys.argv[1])
from test_threadstate import GLIB, LIBC, Foreign
from gstinfer import threadstate

GLIB.g_main_loop_run.restype = None
GLIB.g_timeout_source_new.restype = ctypes.c_void_p
thread = Foreign()
thread.call(threadstate.keep)
assert threadstate._kept
# It ends half a second after Python, which the process outlives by one; all of that in C.
source = ctypes.c_void_p(GLIB.g_timeout_source_new(500))
quit = ctypes.cast(GLIB.g_main_loop_quit, ctypes.c_void_p)
GLIB.g_source_set_callback(source, quit, ctypes.c_void_p(hash(thread.loop)), None)
GLIB.g_source_attach(source, ctypes.c_void_p(hash(thread.context)))
for needed in (thread.loop, thread.context):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
LIBC.on_exit(ctypes.cast(LIBC.sleep, ctypes.c_void_p), None)
sys.exit(1)
""")
    run = subprocess.run([sys.executable, script, Path(__file__).parent], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and not run.stderr
