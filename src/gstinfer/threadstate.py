"""Python's state of a thread that Python did not start.

Such a thread gets a state on each call into Python and loses it on the way back: memory is mapped and unmapped, and every core
that runs the process has to hear of it. A streaming thread that keeps its state enters Python a tenth faster or more.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from itertools import count

__all__ = ["keep"]

LOCKED = 0
"""PyGILState_LOCKED: the thread held the lock before, so that it holds it afterwards."""

_python = ctypes.pythonapi
_own = threading.local()
_numbers = count(1)
_kept: dict[int, int] = {}


def _give_up(number: int) -> None:
    """When a thread ends. Called as any function from outside of Python, with a release at its end, which is now the last one
    and deletes the state. Where the state has another owner, who deleted it before, that is so without a release more."""
    _kept.pop(number, None)
    if hasattr(_own, "kept"):
        _python.PyGILState_Release(LOCKED)


_giving_up = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_give_up)


class _Exits:
    """Has ``_give_up`` called when threads end, as long as Python runs.

    A thread's destructors cannot be taken back, and may be due after Python's end. What is registered therefore lets go of one
    reference to something in C, whose last one calls Python; at its end Python takes another.
    """

    def __init__(self) -> None:
        # Called without letting go of the interpreter, so that no thread that ends gets in between.
        glib = ctypes.PyDLL("libglib-2.0.so.0")
        # Of C++: they run before the destructors of keys, by which Python finds the state.
        self._register = ctypes.CDLL(None)["__cxa_thread_atexit_impl"]
        self._register.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self._new, self._ref, self._unref = glib.g_bytes_new_with_free_func, glib.g_bytes_ref, glib.g_bytes_unref
        self._new.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
        self._new.restype = ctypes.c_void_p
        self._ref.argtypes, self._ref.restype = [ctypes.c_void_p], ctypes.c_void_p
        self.over = False
        atexit.register(self.end)

    def await_here(self) -> bool:
        """Of the calling thread; whether that can be done."""
        number = next(_numbers)
        _kept[number] = held = self._new(None, 0, ctypes.cast(_giving_up, ctypes.c_void_p), number)
        # glibc wants to know which library must stay: the one that has Python.
        here = ctypes.cast(_python.PyGILState_Ensure, ctypes.c_void_p)
        return not self.over and not self._register(ctypes.cast(self._unref, ctypes.c_void_p), held, here)

    def end(self) -> None:
        self.over = True
        tuple(map(self._ref, _kept.values()))


def _exits() -> _Exits | None:
    try:
        return _Exits()
    except (AttributeError, OSError):  # another libc than glibc, or no GLib
        return None


_waiting = _exits()


def keep() -> None:
    """Lets the calling thread keep its state until it ends, for which it then needs the interpreter: who waits for its end must
    not hold that."""
    if _waiting is None or _waiting.over or hasattr(_own, "kept"):
        return
    _own.kept = True
    if _waiting.await_here():
        _python.PyGILState_Ensure()
