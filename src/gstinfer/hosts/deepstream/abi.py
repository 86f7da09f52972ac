"""Layouts of DeepStream's structs, per generation of the SDK, and the proof of which one this process has.

From the public headers nvdsmeta.h, nvll_osd_struct.h, nvdsinfer.h and nvbufsurface.h, for 64-bit Linux (x86_64 and
aarch64 alike). The generations differ in ``NvOSD_RectParams``: SDK 9 ends it with ``rotation_angle``, and whatever lies
behind it in ``NvDsObjectMeta`` and ``NvDsDisplayMeta`` moves.

The version file only says what to expect. ``prove`` then makes a batch of its own with the library's public functions and
looks whether they put things where the layout says, before anything is written on a buffer.
"""

from __future__ import annotations

import ctypes as C
from functools import lru_cache
from typing import Any

import numpy as np

from gstinfer.errors import HostError
from gstinfer.hosts.deepstream.libs import Libraries, directory, glib, libraries, version

__all__ = ["LABEL_SIZE", "LAYOUTS", "UNTRACKED", "FrameMeta", "Layout", "expected", "layout", "links", "prove"]

UNTRACKED = (1 << 64) - 1
LABEL_SIZE = 128
DISPLAY_ELEMENTS = 16
GENERATIONS = {6: (False,), 7: (False,), 8: (False, True), 9: (True,)}
"""Major version -> layouts it may have, by ``rotation``."""

BASE_SIZE = 40
POINTER = C.c_void_p


def _struct(size: int, /, **fields: tuple[Any, int]) -> np.dtype[Any]:
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [at for _, at in fields.values()],
            "itemsize": size,
        }
    )


COLOR, BOX = ("f8", 4), ("f4", 4)
TEXT = _struct(
    104,
    display_text=("u8", 0),
    x_offset=("u4", 8),
    y_offset=("u4", 12),
    font_name=("u8", 16),
    font_size=("u4", 24),
    font_color=(COLOR, 32),
    set_bg_clr=("i4", 64),
    text_bg_clr=(COLOR, 72),
)
MASK = _struct(24, data=("u8", 0), size=("u4", 8), threshold=("f4", 12), width=("u4", 16), height=("u4", 20))
LINE = _struct(56, x1=("u4", 0), y1=("u4", 4), x2=("u4", 8), y2=("u4", 12), width=("u4", 16), color=(COLOR, 24))
CIRCLE = _struct(
    96,
    xc=("u4", 0),
    yc=("u4", 4),
    radius=("u4", 8),
    color=(COLOR, 16),
    has_bg_color=("u4", 48),
    bg_color=(COLOR, 56),
    width=("u4", 88),
)
ARROW_SIZE = 64


class FrameMeta(C.Structure):
    """``NvDsFrameMeta``, the same in all generations."""

    _fields_ = (
        ("base", C.c_byte * BASE_SIZE),
        ("pad_index", C.c_uint),
        ("batch_id", C.c_uint),
        ("frame_num", C.c_int),
        ("buf_pts", C.c_uint64),
        ("ntp_timestamp", C.c_uint64),
        ("source_id", C.c_uint),
        ("num_surfaces_per_frame", C.c_int),
        ("source_frame_width", C.c_uint),
        ("source_frame_height", C.c_uint),
        ("surface_type", C.c_uint),
        ("surface_index", C.c_uint),
        ("num_obj_meta", C.c_uint),
        ("infer_done", C.c_int),
        ("objects", POINTER),
        ("displays", POINTER),
        ("users", POINTER),
        ("misc", C.c_int64 * 4),
        ("pipeline_width", C.c_uint),
        ("pipeline_height", C.c_uint),
        ("sensor", C.c_byte * 32),
        ("reserved", C.c_int64 * 4),
    )


class BatchMeta(C.Structure):
    """``NvDsBatchMeta``; the mutex and what follows are the library's business."""

    _fields_ = (
        ("base", C.c_byte * BASE_SIZE),
        ("max_frames", C.c_uint),
        ("num_frames", C.c_uint),
        ("frame_pool", POINTER),
        ("object_pool", POINTER),
        ("classifier_pool", POINTER),
        ("display_pool", POINTER),
        ("user_pool", POINTER),
        ("label_pool", POINTER),
        ("frames", POINTER),
        ("users", POINTER),
    )


class ClassifierMeta(C.Structure):
    """``NvDsClassifierMeta``."""

    _fields_ = (
        ("base", C.c_byte * BASE_SIZE),
        ("num_labels", C.c_uint),
        ("component_id", C.c_int),
        ("labels", POINTER),
        ("classifier_type", POINTER),
    )


class LabelInfo(C.Structure):
    """``NvDsLabelInfo``."""

    _fields_ = (
        ("base", C.c_byte * BASE_SIZE),
        ("num_classes", C.c_uint),
        ("result_label", C.c_char * LABEL_SIZE),
        ("long_label", POINTER),
        ("class_id", C.c_uint),
        ("label_id", C.c_uint),
        ("confidence", C.c_float),
    )


class UserMeta(C.Structure):
    """``NvDsUserMeta`` with its base meta."""

    _fields_ = (
        ("batch", POINTER),
        ("meta_type", C.c_int),
        ("context", POINTER),
        ("copy_func", POINTER),
        ("release_func", POINTER),
        ("data", POINTER),
    )


class _Pool(C.Structure):
    """First fields of ``NvDsMetaPool``."""

    _fields_ = (("meta_type", C.c_int), ("max_elements", C.c_uint), ("element_size", C.c_uint))


class Layout:
    """Where things lie in one generation.

    Attributes:
        rotation: Whether rectangles have ``rotation_angle``.
        object: dtype of ``NvDsObjectMeta``.
        display: dtype of ``NvDsDisplayMeta`` up to its circles.
        classifiers: Offset of an object's classifier list.
        users: Offset of an object's user meta list.
    """

    def __init__(self, rotation: bool) -> None:
        self.rotation = rotation
        rect_size = 112 if rotation else 104
        rect = {
            "left": ("f4", 0),
            "top": ("f4", 4),
            "width": ("f4", 8),
            "height": ("f4", 12),
            "border_width": ("u4", 16),
            "border_color": (COLOR, 24),
            "has_bg_color": ("u4", 56),
            "bg_color": (COLOR, 64),
            "has_color_info": ("i4", 96),
            "color_id": ("i4", 100),
        }
        if rotation:
            rect["rotation_angle"] = ("f4", 104)
        self.rect = _struct(rect_size, **rect)
        after = 104 + rect_size
        self.classifiers, self.users = after + 256, after + 264
        self.object = _struct(
            after + 336,
            parent=("u8", 40),
            component_id=("i4", 48),
            class_id=("i4", 52),
            object_id=("u8", 56),
            detector_box=(BOX, 64),
            tracker_box=(BOX, 80),
            confidence=("f4", 96),
            tracker_confidence=("f4", 100),
            box=(BOX, 104),
            rect=(self.rect, 104),
            mask=(MASK, after),
            text=(TEXT, after + 24),
            label=(f"S{LABEL_SIZE}", after + 128),
            classifiers=("u8", self.classifiers),
            users=("u8", self.users),
        )
        rects = 64
        texts = rects + DISPLAY_ELEMENTS * rect_size
        lines = texts + DISPLAY_ELEMENTS * TEXT.itemsize
        circles = lines + DISPLAY_ELEMENTS * (LINE.itemsize + ARROW_SIZE)
        self.display = _struct(
            circles + DISPLAY_ELEMENTS * CIRCLE.itemsize + 64,
            num_lines=("u4", 48),
            num_circles=("u4", 56),
            lines=((LINE, DISPLAY_ELEMENTS), lines),
            circles=((CIRCLE, DISPLAY_ELEMENTS), circles),
        )

    def __repr__(self) -> str:
        return f"the layout {'with' if self.rotation else 'without'} rotation_angle"


LAYOUTS = {rotation: Layout(rotation) for rotation in (False, True)}
"""By whether there is ``rotation_angle``."""


def links(head: int | None) -> list[int]:
    """The data pointers of a ``GList``, in order."""
    found = []
    while head:
        data, head, _ = (C.c_void_p * 3).from_address(head)
        if data:
            found.append(data)
    return found


def expected() -> tuple[bool, ...]:
    """Layouts that the installed version may have, by ``rotation``.

    Raises:
        HostError: A version that nothing is known about.
    """
    text = version()
    if text is None:
        return (False, True)
    known = GENERATIONS.get(int(text.split(".")[0]))
    if known is None:
        raise HostError(
            f"DeepStream {text} in {directory()} is not known; known are "
            f"{', '.join(str(v) for v in sorted(GENERATIONS))}.x",
            hint="update gstinfer; nothing is written into structs whose layout is only guessed",
        )
    return known


def _refuse(what: str) -> HostError:
    return HostError(
        f"DeepStream {version() or '(without a version file)'}: {what}",
        hint="this build of libnvds_meta has another layout than the public headers; "
        "frame-access=pyservicemaker writes through its own bindings",
    )


def prove(lib: Libraries, allowed: tuple[bool, ...]) -> Layout:
    """The layout that the loaded library really has.

    Raises:
        HostError: It is none of those allowed.
    """
    batch = lib.create_batch(1)
    if not batch:
        raise _refuse("nvds_create_batch_meta failed")
    try:
        lib.lock(batch)
        try:
            return _Proof(lib, batch).layout(allowed)
        finally:
            lib.unlock(batch)
    finally:
        lib.destroy_batch(batch)


class _Proof:
    """Looks at what the library's functions did to a batch of our own."""

    def __init__(self, lib: Libraries, batch: int) -> None:
        self.lib, self.address, self.batch = lib, batch, BatchMeta.from_address(batch)

    def check(self, good: bool, what: str) -> None:
        if not good:
            raise _refuse(f"{what} is not where the headers say")

    def layout(self, allowed: tuple[bool, ...]) -> Layout:
        lib, batch = self.lib, self.batch
        self.check(batch.max_frames == 1 and batch.num_frames == 0, "NvDsBatchMeta.max_frames_in_batch")
        self.check(bool(batch.object_pool and batch.display_pool), "NvDsBatchMeta.obj_meta_pool")
        sizes = {rotation: (LAYOUTS[rotation].object.itemsize, LAYOUTS[rotation].display.itemsize) for rotation in LAYOUTS}
        size = _Pool.from_address(batch.object_pool).element_size
        found = next((rotation for rotation, (object_size, _) in sizes.items() if object_size == size), None)
        if found is None:
            raise _refuse(f"NvDsObjectMeta has {size} bytes, known are {' and '.join(str(s) for s, _ in sizes.values())}")
        if found not in allowed:
            raise _refuse(f"NvDsObjectMeta has {size} bytes, this version should have {sizes[allowed[0]][0]}")
        layout = LAYOUTS[found]
        display = _Pool.from_address(batch.display_pool).element_size
        self.check(display == layout.display.itemsize, f"the end of NvDsDisplayMeta ({display} bytes)")
        frame = lib.acquire_frame(self.address)
        lib.add_frame(self.address, frame)
        self.check(batch.num_frames == 1 and links(batch.frames) == [frame], "NvDsBatchMeta.frame_meta_list")
        self._frame(layout, frame)
        return layout

    def _frame(self, layout: Layout, address: int) -> None:
        lib, frame = self.lib, FrameMeta.from_address(address)
        parent, child = lib.acquire_object(self.address), lib.acquire_object(self.address)
        lib.add_object(address, parent, None)
        lib.add_object(address, child, parent)
        self.check(
            frame.num_obj_meta == 2 and sorted(links(frame.objects)) == sorted((parent, child)),
            "NvDsFrameMeta.obj_meta_list",
        )
        self.check(self._pointer(child, 40) == parent, "NvDsObjectMeta.parent")
        display = lib.acquire_display(self.address)
        lib.add_display(address, display)
        self.check(links(frame.displays) == [display], "NvDsFrameMeta.display_meta_list")
        user = lib.acquire_user(self.address)
        lib.add_user_to_frame(address, user)
        self.check(links(frame.users) == [user], "NvDsFrameMeta.frame_user_meta_list")
        user = lib.acquire_user(self.address)
        lib.add_user_to_batch(self.address, user)
        self.check(links(self.batch.users) == [user], "NvDsBatchMeta.batch_user_meta_list")
        self._object(layout, address, child)

    def _object(self, layout: Layout, frame: int, address: int) -> None:
        lib = self.lib
        classifier, label = lib.acquire_classifier(self.address), lib.acquire_label(self.address)
        lib.add_label(classifier, label)
        lib.add_classifier(address, classifier)
        self.check(self._pointer(address, layout.classifiers) != 0, "NvDsObjectMeta.classifier_meta_list")
        self.check(links(self._pointer(address, layout.classifiers)) == [classifier], "a classifier list's data")
        meta = ClassifierMeta.from_address(classifier)
        self.check(meta.num_labels == 1 and links(meta.labels) == [label], "NvDsClassifierMeta.label_info_list")
        user = lib.acquire_user(self.address)
        lib.add_user_to_object(address, user)
        self.check(links(self._pointer(address, layout.users)) == [user], "NvDsObjectMeta.obj_user_meta_list")
        if lib.copy_object is not None:
            copy = lib.acquire_object(self.address)
            self._copy(layout, address, copy)
            lib.add_object(frame, copy, None)

    def _copy(self, layout: Layout, address: int, copy: int) -> None:
        """The library copies an object's text and mask: so it must know them where we put them."""
        g = glib()
        text_at, mask_at = layout.object.fields["text"][1], layout.object.fields["mask"][1]  # type: ignore[index]
        label_at = layout.object.fields["label"][1]  # type: ignore[index]
        C.c_uint64.from_address(address + text_at).value = g.strdup(b"gstinfer")
        data = g.malloc(8)
        C.memmove(data, b"\1\2\3\4\5\6\7\x08", 8)
        mask = np.zeros(1, MASK)
        mask["data"], mask["size"], mask["width"], mask["height"] = data, 8, 2, 1
        C.memmove(address + mask_at, mask.ctypes.data, MASK.itemsize)
        C.memmove(address + label_at, b"sentinel\0", 9)
        self.lib.copy_object(address, copy)
        text, copied = self._pointer(copy, text_at), self._pointer(copy, mask_at)
        self.check(text not in (0, self._pointer(address, text_at)), "NvDsObjectMeta.text_params")
        self.check(C.string_at(text) == b"gstinfer", "the copy of a display_text")
        self.check(copied not in (0, data) and C.string_at(copied, 8) == C.string_at(data, 8), "NvDsObjectMeta.mask_params")
        self.check(C.string_at(copy + label_at) == b"sentinel", "NvDsObjectMeta.obj_label")

    @staticmethod
    def _pointer(address: int, offset: int) -> int:
        return C.c_uint64.from_address(address + offset).value


@lru_cache(maxsize=1)
def layout() -> Layout:
    """The layout of this process's DeepStream, proved once.

    Raises:
        HostError: No libraries, an unknown version, or a layout that is none of the known.
    """
    return prove(libraries(), expected())
