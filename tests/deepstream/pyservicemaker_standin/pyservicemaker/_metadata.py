# SPDX-License-Identifier: Apache-2.0
"""Metadata classes: thin handles on the C structs, read by offset."""

from __future__ import annotations

import ctypes
import json

from . import osd
from ._libraries import ROTATION, libc, meta, segfault, text_at

_LABEL_SIZE = 128
_AFTER_RECT = 0 if ROTATION else -8


class _Handle:
    __slots__ = ("_address",)

    def __init__(self, address: int = 0) -> None:
        self._address = address

    def _at(self, offset: int = 0) -> int:
        if not self._address:
            segfault(f"a null {type(self).__name__}")
        return self._address + offset

    def __bool__(self) -> bool:
        return bool(self._address)


def _field(offset: int, ctype, writable: bool = False) -> property:
    def get(self):
        return ctype.from_address(self._at(offset)).value

    def put(self, value) -> None:
        ctype.from_address(self._at(offset)).value = value

    return property(get, put if writable else None)


def _struct(offset: int, ctype) -> property:
    """A view into the object, as the bindings' reference_internal; assigning copies."""

    def get(self):
        return ctype.from_address(self._at(offset))

    def put(self, value) -> None:
        ctypes.memmove(self._at(offset), ctypes.byref(value), ctypes.sizeof(ctype))

    return property(get, put)


def _items(address: int, cls, wanted: int | None = None):
    """One-shot, and the same object each time: null once the loop is over."""
    item = cls()
    link = ctypes.c_void_p.from_address(address).value
    while link:
        data, following = (ctypes.c_void_p * 2).from_address(link)
        if wanted is None or ctypes.c_int.from_address(data + 8).value == wanted:
            item._address = data
            yield item
        link = following
    item._address = 0


class LabelInfo(_Handle):
    __slots__ = ()
    num_classes = _field(40, ctypes.c_uint)
    class_id = _field(184, ctypes.c_uint)
    label_id = _field(188, ctypes.c_uint)
    prob = _field(192, ctypes.c_float)

    @property
    def label(self) -> str:
        return text_at(self._at(44))


class ClassifierMetadata(_Handle):
    __slots__ = ()
    n_labels = _field(40, ctypes.c_uint)
    unique_component_id = _field(44, ctypes.c_int)

    @property
    def classifier_type(self) -> str:
        return text_at(ctypes.c_void_p.from_address(self._at(56)).value)

    def get_label_info(self, index: int) -> LabelInfo:
        for position, label in enumerate(_items(self._at(48), LabelInfo)):
            if position == index:
                return LabelInfo(label._address)
        return LabelInfo()

    def get_n_label(self, index: int) -> str:
        return self.get_label_info(index).label


class UserMetadata(_Handle):
    __slots__ = ()
    meta_type = _field(8, ctypes.c_int, writable=True)

    def set_user_data_json(self, data, meta_type: int) -> None:
        # As published: the callbacks take the payload, but are called with the user meta itself.
        libc.strdup.restype = ctypes.c_void_p
        text = libc.strdup(json.dumps(data).encode())
        ctypes.c_void_p.from_address(self._at(40)).value = text
        ctypes.c_void_p.from_address(self._at(24)).value = ctypes.cast(libc.strdup, ctypes.c_void_p).value
        ctypes.c_void_p.from_address(self._at(32)).value = ctypes.cast(libc.free, ctypes.c_void_p).value
        self.meta_type = meta_type

    def get_user_data_json(self):
        text = text_at(ctypes.c_void_p.from_address(self._at(40)).value)
        return json.loads(text) if text else None


class ObjectMetadata(_Handle):
    __slots__ = ()
    unique_component_id = _field(48, ctypes.c_int, writable=True)
    class_id = _field(52, ctypes.c_int, writable=True)
    object_id = _field(56, ctypes.c_uint64, writable=True)
    confidence = _field(96, ctypes.c_float, writable=True)
    tracker_confidence = _field(100, ctypes.c_float, writable=True)
    rect_params = _struct(104, osd.Rect)
    mask_params = _struct(216 + _AFTER_RECT, osd.Mask)
    text_params = _struct(240 + _AFTER_RECT, osd.TextParams)

    @property
    def label(self) -> str:
        return text_at(self._at(344 + _AFTER_RECT))

    @label.setter
    def label(self, text: str) -> None:
        # As published: cut at 128 bytes, not 127, and not on a character's boundary.
        cut = text.encode()[:_LABEL_SIZE] + b"\0"
        ctypes.memmove(self._at(344 + _AFTER_RECT), cut, len(cut))

    @property
    def nv_bbox_info(self) -> dict[str, float]:
        box = (ctypes.c_float * 4).from_address(self._at(80))
        return dict(zip(("left", "top", "width", "height"), box))

    @nv_bbox_info.setter
    def nv_bbox_info(self, box: dict[str, float]) -> None:
        values = (ctypes.c_float * 4).from_address(self._at(80))
        values[:] = [box[name] for name in ("left", "top", "width", "height")]

    @property
    def classifier_items(self):
        return _items(self._at(472 + _AFTER_RECT), ClassifierMetadata)

    def user_meta_items(self, meta_type: int):
        return _items(self._at(480 + _AFTER_RECT), UserMetadata, meta_type)

    def append(self, user_meta: UserMetadata) -> None:
        meta.nvds_add_user_meta_to_obj(self._at(), user_meta._at())


_DISPLAY_ARRAYS: dict[str, tuple[int, int, type]] = {}
_at = 64
for _name, _count, _type in (
    ("rect", 40, osd.Rect),
    ("text", 44, osd.Text),
    ("line", 48, osd.Line),
    ("arrow", 52, osd.Arrow),
    ("circle", 56, osd.Circle),
):
    _DISPLAY_ARRAYS[_name] = (_count, _at, _type)
    _at += 16 * ctypes.sizeof(_type)


class DisplayMetadata(_Handle):
    __slots__ = ()
    n_rects = _field(40, ctypes.c_uint)
    n_labels = _field(44, ctypes.c_uint)
    n_lines = _field(48, ctypes.c_uint)
    n_arrows = _field(52, ctypes.c_uint)
    n_circles = _field(56, ctypes.c_uint)

    def _add(self, name: str, item) -> None:
        count_at, array_at, ctype = _DISPLAY_ARRAYS[name]
        if not isinstance(item, ctype):
            raise TypeError(f"add_{name} takes a {ctype.__name__}")
        count = ctypes.c_uint.from_address(self._at(count_at))
        if count.value >= 16:
            return
        place = self._at(array_at) + count.value * ctypes.sizeof(ctype)
        ctypes.memmove(place, ctypes.byref(item), ctypes.sizeof(ctype))
        if name == "text":
            # the display meta's string is its own
            ctypes.c_void_p.from_address(place).value = 0
            osd.TextParams.from_address(place).display_text = item.display_text
        count.value += 1

    def add_rect(self, item: osd.Rect) -> None:
        self._add("rect", item)

    def add_text(self, item: osd.Text) -> None:
        self._add("text", item)

    def add_line(self, item: osd.Line) -> None:
        self._add("line", item)

    def add_arrow(self, item: osd.Arrow) -> None:
        self._add("arrow", item)

    def add_circle(self, item: osd.Circle) -> None:
        self._add("circle", item)


class FrameMetadata(_Handle):
    """No infer_done: the published class has none either."""

    __slots__ = ()
    pad_index = _field(40, ctypes.c_uint)
    batch_id = _field(44, ctypes.c_uint)
    frame_number = _field(48, ctypes.c_int)
    buffer_pts = _field(56, ctypes.c_uint64)
    ntp_timestamp = _field(64, ctypes.c_uint64)
    source_id = _field(72, ctypes.c_uint)
    source_width = _field(80, ctypes.c_uint)
    source_height = _field(84, ctypes.c_uint)
    pipeline_width = _field(160, ctypes.c_uint)
    pipeline_height = _field(164, ctypes.c_uint)

    @property
    def object_items(self):
        return _items(self._at(104), ObjectMetadata)

    def user_meta_items(self, meta_type: int):
        return _items(self._at(120), UserMetadata, meta_type)

    def append(self, item) -> None:
        if isinstance(item, ObjectMetadata):
            meta.nvds_add_obj_meta_to_frame(self._at(), item._at(), None)
        elif isinstance(item, DisplayMetadata):
            meta.nvds_add_display_meta_to_frame(self._at(), item._at())
        else:
            raise TypeError("Invalid type for FrameMetadata.append")


class BatchMetadata(_Handle):
    __slots__ = ()

    @property
    def n_frames(self) -> int:
        return ctypes.c_uint.from_address(self._address + 44).value if self._address else 0

    @property
    def is_audio(self) -> bool:
        return False

    @property
    def frame_items(self):
        return _items(self._at(96), FrameMetadata)

    def user_meta_items(self, meta_type: int):
        return _items(self._at(104), UserMetadata, meta_type)

    def acquire_object_meta(self) -> ObjectMetadata:
        return ObjectMetadata(meta.nvds_acquire_obj_meta_from_pool(self._at()))

    def acquire_display_meta(self) -> DisplayMetadata:
        return DisplayMetadata(meta.nvds_acquire_display_meta_from_pool(self._at()))

    def acquire_user_meta(self) -> UserMetadata:
        return UserMetadata(meta.nvds_acquire_user_meta_from_pool(self._at()))

    def append(self, item) -> None:
        raise TypeError("Invalid type for BatchMetadata.append")
