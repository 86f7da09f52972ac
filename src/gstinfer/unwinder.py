"""C++ exceptions in a GStreamer process: which unwinder handles them.

GStreamer brings libunwind, which exports the ``_Unwind_*`` functions that C++ needs and that libgcc_s has too. Where libstdc++
was bound to libgcc_s (NumPy loads both) and a C++ library that is loaded later binds to libunwind, every exception that crosses
the two ends the process: ONNX Runtime on a wrong input, TensorRT on an index past the end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["cxx_library", "mixed", "preload"]


def preload() -> None:
    """Puts libgcc_s before anything that GStreamer brings; has no effect once GStreamer is loaded."""
    try:
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        pass


@contextmanager
def cxx_library() -> Iterator[None]:
    """C++ libraries imported inside get the unwinder that libstdc++ has. Not for threads that import at the same time."""
    if not mixed():
        yield
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)


def mixed() -> bool:
    """Whether a library loaded now would bind to libunwind although libstdc++ was there before it."""
    if not sys.platform.startswith("linux"):
        return False
    loaded = _load_order()
    unwind = next((i for i, name in enumerate(loaded) if name.startswith("libunwind.so")), None)
    cxx = next((i for i, name in enumerate(loaded) if name.startswith("libstdc++.so")), None)
    if unwind is None or cxx is None or cxx > unwind:
        return False
    return os.path.basename(_owner(ctypes.CDLL(None)._Unwind_RaiseException)).startswith("libunwind")


class _Library(ctypes.Structure):
    """``struct link_map``."""


_Library._fields_ = (
    ("address", ctypes.c_void_p),
    ("name", ctypes.c_char_p),
    ("dynamic", ctypes.c_void_p),
    ("next", ctypes.POINTER(_Library)),
    ("before", ctypes.POINTER(_Library)),
)
_RTLD_DI_LINKMAP = 2


class _Symbol(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _load_order() -> list[str]:
    """File names of the shared libraries of this process, first loaded first."""
    # Not dl_iterate_phdr: it holds the loader's lock while its callback waits for the interpreter, which a thread that imports
    # holds while it waits for that lock.
    program, library = ctypes.CDLL(None), ctypes.POINTER(_Library)()
    if program.dlinfo(ctypes.c_void_p(program._handle), _RTLD_DI_LINKMAP, ctypes.byref(library)):
        return []
    names: list[str] = []
    while library:
        names.append(os.path.basename(os.fsdecode(library.contents.name or b"")))
        library = library.contents.next
    return names


def _owner(function: object) -> str:
    """The file that a C function comes from."""
    found = _Symbol()
    address = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
    ctypes.CDLL(None).dladdr(address, ctypes.byref(found))
    return os.fsdecode(found.file or b"")
