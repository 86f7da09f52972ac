"""DeepStream's libraries: where they are, which version they are of, and their functions with types.

Taken is what the process has loaded already, else ``$DEEPSTREAM_DIR/lib`` (by default the SDK's own folder), else what
the linker finds. Nothing here needs the SDK to be DeepStream's own: any build with the public functions will do.

Functions that only touch metadata keep the GIL (``ctypes.PyDLL``). The meta lock is taken without it: whoever holds the
lock may wait for the GIL.
"""

from __future__ import annotations

import ctypes as C
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from gstinfer.errors import HostError
from gstinfer.hosts.gstbuffer import function

__all__ = ["GLib", "Libraries", "directory", "glib", "installed", "libraries", "loaded", "open_library", "version"]

DEFAULT = "/opt/nvidia/deepstream/deepstream"
META, GST_META, SURFACE = "libnvds_meta.so", "libnvdsgst_meta.so", "libnvbufsurface.so"


def directory() -> Path:
    """Where the SDK is, or would be."""
    return Path(os.environ.get("DEEPSTREAM_DIR") or DEFAULT)


def version() -> str | None:
    """The SDK's version as its ``version`` file says, such as ``"9.1"``; None without one."""
    try:
        text = (directory() / "version").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"\d+(?:\.\d+)+|\d+", text)
    return match[0] if match else None


def installed() -> bool:
    """Whether the SDK's metadata library is in its folder, or in this process."""
    return (directory() / "lib" / GST_META).is_file() or loaded()


def loaded() -> bool:
    """Whether this process has the library that puts DeepStream's metadata on buffers."""
    try:
        C.CDLL(GST_META, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def open_library(name: str, *, releases_gil: bool = False) -> C.CDLL:
    """A library of the SDK by its file name.

    Raises:
        HostError: It is nowhere.
    """
    kind, errors = (C.CDLL if releases_gil else C.PyDLL), []
    path = directory() / "lib" / name
    places: list[tuple[str, int]] = [(name, os.RTLD_NOLOAD | os.RTLD_NOW)]
    if path.is_file():
        places.append((str(path), os.RTLD_NOW | os.RTLD_GLOBAL))
    places.append((name, os.RTLD_NOW))
    for place, mode in places:
        try:
            return kind(place, mode=mode)
        except OSError as error:
            errors.append(str(error))
    raise HostError(
        f"DeepStream's {name} cannot be loaded: {errors[-1] if len(errors) < 3 else errors[1]}",
        hint=f"install DeepStream, or set DEEPSTREAM_DIR to its folder (now {directory()})",
    )


class GLib:
    """What metadata is made of: GLib's heap."""

    def __init__(self) -> None:
        self.library = glib = C.PyDLL("libglib-2.0.so.0")
        self.malloc = function(glib, "g_malloc", C.c_void_p, C.c_size_t)
        self.free = function(glib, "g_free", None, C.c_void_p)
        self.strdup = function(glib, "g_strdup", C.c_void_p, C.c_char_p)
        self.strdupv = function(glib, "g_strdupv", C.c_void_p, C.c_void_p)
        self.intern = function(glib, "g_intern_string", C.c_void_p, C.c_char_p)
        # Unlike ctypes.memmove it returns nothing, which takes a fifth of the time off a call.
        self.move = function(C.PyDLL(None), "memmove", None, C.c_void_p, C.c_void_p, C.c_size_t)
        self.box = function(glib, "g_atomic_rc_box_alloc", C.c_void_p, C.c_size_t)
        self.unbox = function(glib, "g_atomic_rc_box_release", None, C.c_void_p)

        self._new = function(glib, "g_ptr_array_new", C.c_void_p)
        self._resize = function(glib, "g_ptr_array_set_size", None, C.c_void_p, C.c_int)
        self._each = function(glib, "g_ptr_array_copy", C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p)
        self._drop = function(glib, "g_ptr_array_unref", None, C.c_void_p)

    def address(self, name: str) -> int:
        """Of a function."""
        return C.cast(self.library[name], C.c_void_p).value or 0

    def calls(self, function: int, argument: int, count: int) -> list[int]:
        """What a function of one pointer gives when called so many times. GLib's copy of an array of pointers calls it,
        so that no call but the first crosses from Python to C."""
        given = self._new()
        self._resize(given, count)
        kind = C.c_uint64 * count
        kind.from_address(_first(given))[:] = [argument] * count
        made = self._each(given, function, None)
        found = kind.from_address(_first(made))[:]
        self._drop(given)
        self._drop(made)
        return found


def _first(array: int) -> int:
    """Where the pointers of a ``GPtrArray`` are."""
    return C.c_uint64.from_address(array).value


@lru_cache(maxsize=1)
def glib() -> GLib:
    """GLib, once."""
    return GLib()


class Libraries:
    """The functions of libnvds_meta and libnvdsgst_meta that are called.

    Raises:
        HostError: A library or a function is missing.
    """

    def __init__(self) -> None:
        meta, gst_meta = open_library(META), open_library(GST_META)
        slow = open_library(META, releases_gil=True)
        pointer = C.c_void_p

        def get(library: C.CDLL, name: str, result: Any, *arguments: Any) -> Any:
            try:
                return function(library, name, result, *arguments)
            except AttributeError as error:
                raise HostError(
                    f"DeepStream's library has no function {name}",
                    hint=f"DeepStream 6.0 or later is needed; DEEPSTREAM_DIR is {directory()}",
                ) from error

        self.batch_meta = get(gst_meta, "gst_buffer_get_nvds_batch_meta", pointer, pointer)
        self.lock = get(slow, "nvds_acquire_meta_lock", None, pointer)
        self.unlock = get(meta, "nvds_release_meta_lock", None, pointer)
        self.create_batch = get(meta, "nvds_create_batch_meta", pointer, C.c_uint)
        self.destroy_batch = get(meta, "nvds_destroy_batch_meta", C.c_int, pointer)
        self.user_meta_type = get(meta, "nvds_get_user_meta_type", C.c_int, C.c_char_p)
        for kind, name in (
            ("frame", "frame_meta"),
            ("object", "obj_meta"),
            ("classifier", "classifier_meta"),
            ("label", "label_info_meta"),
            ("display", "display_meta"),
            ("user", "user_meta"),
        ):
            setattr(self, f"acquire_{kind}", get(meta, f"nvds_acquire_{name}_from_pool", pointer, pointer))
        self.acquires_object = C.cast(self.acquire_object, pointer).value or 0
        self.add_frame = get(meta, "nvds_add_frame_meta_to_batch", None, pointer, pointer)
        self.add_object = get(meta, "nvds_add_obj_meta_to_frame", None, pointer, pointer, pointer)
        self.add_classifier = get(meta, "nvds_add_classifier_meta_to_object", None, pointer, pointer)
        self.add_label = get(meta, "nvds_add_label_info_meta_to_classifier", None, pointer, pointer)
        self.add_display = get(meta, "nvds_add_display_meta_to_frame", None, pointer, pointer)
        self.add_user_to_batch = get(meta, "nvds_add_user_meta_to_batch", None, pointer, pointer)
        self.add_user_to_frame = get(meta, "nvds_add_user_meta_to_frame", None, pointer, pointer)
        self.add_user_to_object = get(meta, "nvds_add_user_meta_to_obj", None, pointer, pointer)
        self.remove_classifier = get(meta, "nvds_remove_classifier_meta_from_obj", None, pointer, pointer)
        self.remove_object = get(meta, "nvds_remove_obj_meta_from_frame", None, pointer, pointer)
        self.copy_object: Any = None
        if hasattr(meta, "nvds_copy_obj_meta"):
            self.copy_object = get(meta, "nvds_copy_obj_meta", None, pointer, pointer)

    acquire_frame: Any
    acquire_object: Any
    acquire_classifier: Any
    acquire_label: Any
    acquire_display: Any
    acquire_user: Any


@lru_cache(maxsize=1)
def libraries() -> Libraries:
    """The SDK's metadata functions, once."""
    return Libraries()
