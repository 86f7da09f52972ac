"""Every difference between GStreamer and PyGObject versions, and nowhere else.

GStreamer 1.20 to 1.28, PyGObject 3.42 to 3.5x, with and without gst-python's overrides.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, ClassVar

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstBase", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import GLib, GObject, Gst, GstBase, GstVideo

__all__ = [
    "DROPPED",
    "GLib",
    "GObject",
    "Gst",
    "GstBase",
    "GstVideo",
    "LogHandler",
    "describe_class",
    "event_number",
    "post",
    "refloat",
    "register_factory",
    "structure_of",
]

if not Gst.is_initialized():
    Gst.init(None)
elif hasattr(Gst, "init_python"):
    # Inside the plugin loader GStreamer runs already; only the overrides wait for their part.
    Gst.init_python()

DROPPED = Gst.FlowReturn.CUSTOM_SUCCESS
"""GST_BASE_TRANSFORM_FLOW_DROPPED: the constant itself is not introspected."""

_gobject = ctypes.CDLL("libgobject-2.0.so.0")
_gst = ctypes.CDLL("libgstreamer-1.0.so.0")
for _lib, _name, _arguments, _result in (
    (_gobject, "g_object_is_floating", [ctypes.c_void_p], ctypes.c_int),
    (_gobject, "g_object_ref", [ctypes.c_void_p], ctypes.c_void_p),
    (_gobject, "g_object_force_floating", [ctypes.c_void_p], None),
    (_gst, "_gst_debug_category_new", [ctypes.c_char_p, ctypes.c_uint, ctypes.c_char_p], ctypes.c_void_p),
    (_gst, "gst_debug_category_get_threshold", [ctypes.c_void_p], ctypes.c_int),
):
    _function = getattr(_lib, _name)
    _function.argtypes, _function.restype = _arguments, _result


def refloat(element: Any) -> None:
    """Makes a new element floating again: PyGObject 3.42 hands GStreamer a sunk one, which warns at every start."""
    pointer = hash(element)
    if not _gobject.g_object_is_floating(pointer):
        _gobject.g_object_ref(pointer)
        _gobject.g_object_force_floating(pointer)


def structure_of(owner: Any, *arguments: Any) -> Any:
    """The Gst.Structure of caps, a message or an event; from 1.26 on ``get_structure`` gives a context manager."""
    structure = owner.get_structure(*arguments)
    return structure.__enter__() if hasattr(structure, "__enter__") else structure


def event_number(event: Any) -> int:
    """The whole number of an event's type, flags and all; PyGObject has no name for custom ones.

    ``GstEvent`` is a ``GstMiniObject`` (64 bytes on 64-bit systems), then the type.
    """
    return ctypes.c_uint.from_address(hash(event) + 64).value


def describe_class(cls: Any, metadata: tuple[str, str, str, str], sink: str, src: str) -> None:
    """Metadata and pad templates, without gst-python's ``__gstmetadata__``."""
    cls.set_metadata(*metadata)
    for name, direction, caps in (("sink", Gst.PadDirection.SINK, sink), ("src", Gst.PadDirection.SRC, src)):
        cls.add_pad_template(Gst.PadTemplate.new(name, direction, Gst.PadPresence.ALWAYS, Gst.Caps.from_string(caps)))


def register_factory(name: str, rank: int, cls: Any) -> bool:
    """Makes an element known, for the plugin being loaded or for this process."""
    return bool(Gst.Element.register(getattr(Gst, "__plugin__", None), name, rank, cls))


def post(element: Any, kind: str, text: str, debug: str, domain: int, code: int) -> None:
    """Posts an error, warning or info message on the bus."""
    error = GLib.Error.new_literal(domain, text, code)
    make = {"error": Gst.Message.new_error, "warning": Gst.Message.new_warning, "info": Gst.Message.new_info}[kind]
    element.post_message(make(element, error, debug))


class LogHandler(logging.Handler):
    """Carries the package's log lines into GStreamer's debug system, category ``gstinfer``."""

    LEVELS: ClassVar[dict[int, int]] = {logging.ERROR: 1, logging.WARNING: 2, logging.INFO: 4, logging.DEBUG: 5}

    def __init__(self) -> None:
        super().__init__()
        self.category = _gst._gst_debug_category_new(b"gstinfer", 0, b"gstinfer elements")
        self.write = _gst.gst_debug_log
        self.write.restype = None

    def emit(self, record: logging.LogRecord) -> None:
        level = next((gst for python, gst in self.LEVELS.items() if record.levelno >= python), 6)
        if level > _gst.gst_debug_category_get_threshold(self.category):
            return
        self.write(
            ctypes.c_void_p(self.category),
            ctypes.c_int(level),
            record.filename.encode(),
            record.funcName.encode(),
            ctypes.c_int(record.lineno),
            ctypes.c_void_p(None),
            b"%s",
            ctypes.c_char_p(self.format(record).encode()),
        )
