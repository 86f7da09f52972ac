# SPDX-License-Identifier: Apache-2.0
"""Drawing parameters. Each class is the C struct itself, so that a property of an object is a view."""

from __future__ import annotations

import ctypes
import enum

from ._libraries import ROTATION, glib, text_at

_SERIF = ctypes.create_string_buffer(b"Serif")


class FontFamily(enum.IntEnum):
    Serif = 0


class ArrowHead(enum.IntEnum):
    Start = 0
    End = 1
    Both = 2


class Color(ctypes.Structure):
    __slots__ = ()
    _fields_ = [(name, ctypes.c_double) for name in "rgba"]

    def __init__(self, r: float, g: float, b: float, a: float) -> None:
        super().__init__(r, g, b, a)


class Font(ctypes.Structure):
    __slots__ = ()
    _fields_ = [("_name", ctypes.c_void_p), ("size", ctypes.c_uint), ("color", Color)]

    @property
    def name(self) -> str:
        return text_at(self._name)

    @name.setter
    def name(self, family: FontFamily) -> None:
        if not isinstance(family, FontFamily):
            raise TypeError("Font.name takes a FontFamily")
        self._name = ctypes.addressof(_SERIF)


def _set_text(struct: ctypes.Structure, text: str) -> None:
    glib.g_free(struct._display_text)
    struct._display_text = glib.g_strdup(text.encode())


class TextParams(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("_display_text", ctypes.c_void_p),
        ("x_offset", ctypes.c_uint),
        ("y_offset", ctypes.c_uint),
        ("font_params", Font),
        ("set_bg_clr", ctypes.c_int),
        ("text_bg_clr", Color),
    ]
    display_text = property(lambda self: text_at(self._display_text), _set_text)


class Text(ctypes.Structure):
    """A text to add to a display meta; it keeps its own string."""

    _fields_ = [
        ("_display_text", ctypes.c_void_p),
        ("x_offset", ctypes.c_uint),
        ("y_offset", ctypes.c_uint),
        ("font", Font),
        ("set_bg_color", ctypes.c_int),
        ("bg_color", Color),
    ]

    @property
    def display_text(self) -> str:
        return text_at(self._display_text)

    @display_text.setter
    def display_text(self, text: str) -> None:
        self._kept = ctypes.create_string_buffer(text.encode())
        self._display_text = ctypes.addressof(self._kept)


class Rect(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("left", ctypes.c_float),
        ("top", ctypes.c_float),
        ("width", ctypes.c_float),
        ("height", ctypes.c_float),
        ("border_width", ctypes.c_uint),
        ("border_color", Color),
        ("has_bg_color", ctypes.c_uint),
        ("_reserved", ctypes.c_uint),
        ("bg_color", Color),
        ("_has_color_info", ctypes.c_int),
        ("_color_id", ctypes.c_int),
        *([("rotation_angle", ctypes.c_float)] if ROTATION else []),
    ]


class Mask(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("_data", ctypes.c_void_p),
        ("_size", ctypes.c_uint),
        ("threshold", ctypes.c_float),
        ("_width", ctypes.c_uint),
        ("_height", ctypes.c_uint),
    ]

    @property
    def mask_array(self):
        import numpy as np

        if not self._data:
            return np.empty(0, np.float32)
        flat = (ctypes.c_float * (self._width * self._height)).from_address(self._data)
        return np.array(flat, np.float32).reshape(self._height, self._width)

    @mask_array.setter
    def mask_array(self, array) -> None:
        # The published setter keeps the array's own pointer, which is g_free'd with the object.
        self._data = array.ctypes.data
        self._size = array.size * 4
        self._height, self._width = array.shape


class Line(ctypes.Structure):
    __slots__ = ()
    _fields_ = [(name, ctypes.c_uint) for name in ("x1", "y1", "x2", "y2", "width")]
    _fields_ += [("color", Color)]


class Arrow(ctypes.Structure):
    __slots__ = ()
    _fields_ = [(name, ctypes.c_uint) for name in ("x1", "y1", "x2", "y2", "width")]
    _fields_ += [("head", ctypes.c_int), ("color", Color), ("_reserved", ctypes.c_uint)]


class Circle(ctypes.Structure):
    __slots__ = ()
    _fields_ = [
        ("xc", ctypes.c_uint),
        ("yc", ctypes.c_uint),
        ("radius", ctypes.c_uint),
        ("color", Color),
        ("has_bg_color", ctypes.c_uint),
        ("bg_color", Color),
        ("width", ctypes.c_uint),
        ("_reserved", ctypes.c_uint),
    ]
