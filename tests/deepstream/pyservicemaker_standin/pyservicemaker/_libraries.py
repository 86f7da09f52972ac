# SPDX-License-Identifier: Apache-2.0
"""The stand-in's libraries, from DEEPSTREAM_DIR, with their argument types."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_DIRECTORY = Path(os.environ["DEEPSTREAM_DIR"]) / "lib"
meta = ctypes.CDLL(str(_DIRECTORY / "libnvds_meta.so"))
gst_meta = ctypes.CDLL(str(_DIRECTORY / "libnvdsgst_meta.so"))
gst = ctypes.CDLL("libgstreamer-1.0.so.0")
glib = ctypes.CDLL("libglib-2.0.so.0")
libc = ctypes.CDLL(None)

_POINTER = ctypes.c_void_p


def _declare(library: ctypes.CDLL, name: str, result, *arguments) -> None:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)


ROTATION = bool(meta.nvds_standin_layout())

for _kind in ("obj", "display", "user", "frame"):
    _declare(meta, f"nvds_acquire_{_kind}_meta_from_pool", _POINTER, _POINTER)
_declare(meta, "nvds_add_obj_meta_to_frame", None, _POINTER, _POINTER, _POINTER)
_declare(meta, "nvds_add_display_meta_to_frame", None, _POINTER, _POINTER)
_declare(meta, "nvds_add_user_meta_to_obj", None, _POINTER, _POINTER)
_declare(gst_meta, "gst_buffer_get_nvds_batch_meta", _POINTER, _POINTER)
_declare(gst, "gst_mini_object_ref", _POINTER, _POINTER)
_declare(gst, "gst_mini_object_unref", None, _POINTER)
_declare(gst, "gst_buffer_map", ctypes.c_int, _POINTER, _POINTER, ctypes.c_int)
_declare(gst, "gst_buffer_unmap", None, _POINTER, _POINTER)
_declare(glib, "g_free", None, _POINTER)
_declare(glib, "g_strdup", _POINTER, ctypes.c_char_p)


def text_at(address: int | None) -> str:
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""


def segfault(what: str) -> None:
    """What the published bindings do on a null pointer; STANDIN_TRAPS=raise makes it catchable."""
    if os.environ.get("STANDIN_TRAPS") == "raise":
        raise RuntimeError(f"segmentation fault in pyservicemaker: {what}")
    ctypes.string_at(0)
