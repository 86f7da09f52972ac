"""Python's state of a thread that Python did not start.

Such a thread gets a state on each call into Python and loses it on the way back: memory is mapped and unmapped, and every core
that runs the process has to hear of it. A streaming thread that keeps its state enters Python a tenth faster or more.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

__all__ = ["keep"]

LOCKED = 0
"""PyGILState_LOCKED: the thread held the lock before, so that it holds it afterwards."""

_python = ctypes.pythonapi
_own = threading.local()


def _give_up(_: object) -> None:
    """When a thread ends. Called as any function from outside of Python, with a release at its end, which is now the last one
    and deletes the state."""
    _python.PyGILState_Release(LOCKED)


_giving_up = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_give_up)
# A thread may outlive this module.
_python.Py_IncRef(ctypes.py_object(_giving_up))


def _at_exit() -> Any:
    """What registers a thread's destructors, or None. Those of C++ run before those of keys, where Python has the state."""
    try:
        function = ctypes.CDLL(None).__cxa_thread_atexit_impl
    except AttributeError:  # not glibc
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


_register = _at_exit()


def keep() -> None:
    """Lets the calling thread keep its state until it ends; on a thread of Python's own it changes nothing."""
    if _register is None or hasattr(_own, "kept"):
        return
    _own.kept = True
    started = (thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))
    if threading.get_ident() in {thread.ident for thread in started}:
        return
    # glibc wants to know which library must stay: the one that has Python.
    here = ctypes.cast(_python.PyGILState_Ensure, ctypes.c_void_p)
    if not _register(ctypes.cast(_giving_up, ctypes.c_void_p), None, here):
        _python.PyGILState_Ensure()
