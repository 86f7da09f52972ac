"""Writes plans into a batch meta: acquire, fill and append in one go, under the library's own lock.

Nothing here can fail half-way: values were checked and memory was allocated while planning. nvdsosd draws whatever a pool
has given out, so an object acquired and never appended would be seen.
"""

from __future__ import annotations

import ctypes as C
import json
from collections import deque
from functools import lru_cache
from itertools import repeat
from typing import Any

from gstinfer.hosts.deepstream import payload
from gstinfer.hosts.deepstream.abi import (
    LABEL_SIZE,
    ClassifierMeta,
    FrameMeta,
    LabelInfo,
    Layout,
    UserMeta,
    links,
)
from gstinfer.hosts.deepstream.extras import cut
from gstinfer.hosts.deepstream.libs import Libraries, glib
from gstinfer.hosts.deepstream.plan import Change, FramePlan, NewObjects, Owned
from gstinfer.hosts.deepstream.reader import BATCH
from gstinfer.results import Attribute

__all__ = ["MetaWriter"]

_BODY = 40
"""Where the base meta ends, which is the library's."""


@lru_cache(maxsize=64)
def _facts(model: str, frames: tuple[tuple[int, bool | None, str], ...]) -> bytes:
    return json.dumps({"model": model, "frames": frames}, ensure_ascii=False).encode()


class MetaWriter:
    """Writes into one generation's structs.

    Args:
        lib: DeepStream's functions.
        layout: Of its structs, proved.
    """

    def __init__(self, lib: Libraries, layout: Layout) -> None:
        self.lib, self.layout = lib, layout
        self.batch_type = lib.user_meta_type(BATCH)
        self.copy, self.release = payload.functions()
        fields = layout.object.fields
        assert fields is not None
        # The base meta and both lists are the library's; what lies between is ours.
        self._length = layout.classifiers - _BODY
        self._text_at = fields["text"][1]
        self._display_head = 40
        self._move = glib().move
        self._classifier_type = glib().intern(b"gstinfer")

    def facts(self, model: str, frames: tuple[tuple[int, bool | None, str], ...], owned: Owned) -> tuple[int, int]:
        """The batch's own user meta: (type, payload).

        Args:
            model: Spec of the model that ran.
            frames: (batch id, whether it was inferred, stream id) of each frame.
            owned: Keeps the payload.
        """
        raw = _facts(model, frames)
        address = owned.payload(payload.block(8 + len(raw)))
        C.c_uint64.from_address(address).value = len(raw)
        C.memmove(address + 8, raw, len(raw))
        return self.batch_type, address

    def write(self, batch: int, plans: list[FramePlan], users: list[tuple[int, int]], owned: Owned) -> None:
        """Carries plans out.

        Args:
            batch: Address of the batch meta.
            plans: One a frame.
            users: User metas of the batch.
            owned: What the plans allocated; the metas have it afterwards.
        """
        lib = self.lib
        plain = [(plan.frame, objects) for plan in plans for objects in plan.new if objects.plain]
        # Whatever happens from here on, nothing is freed twice.
        owned.hand_over()
        lib.lock(batch)
        try:
            # Detections, which come before a frame's own object.
            if plain:
                self._plain(batch, plain)
            for plan in plans:
                for address in plan.removed:
                    lib.remove_object(plan.frame, address)
                for change in plan.changes:
                    self._change(batch, change)
                for objects in plan.new:
                    if not objects.plain:
                        self._objects(batch, plan.frame, objects)
                for record in plan.displays:
                    self._display(batch, plan.frame, record)
                for kind, data in plan.users:
                    lib.add_user_to_frame(plan.frame, self._user(batch, kind, data))
                if plan.inferred:
                    FrameMeta.from_address(plan.frame).infer_done = 1
            for kind, data in users:
                lib.add_user_to_batch(batch, self._user(batch, kind, data))
        finally:
            lib.unlock(batch)

    def _plain(self, batch: int, lots: list[tuple[int, NewObjects]]) -> None:
        """Objects with nothing attached: the most of them, so that every loop here runs in C."""
        lib, length = self.lib, self._length
        size = self.layout.object.itemsize
        sources: list[int] = []
        frames: list[int] = []
        for frame, objects in lots:
            count, start = len(objects.records), objects.address + _BODY
            sources += range(start, start + size * count, size)
            frames += repeat(frame, count)
        made = glib().calls(lib.acquires_object, batch, len(frames))
        deque(map(self._move, [address + _BODY for address in made], sources, repeat(length)), 0)
        deque(map(lib.add_object, frames, made, repeat(None)), 0)

    def _objects(self, batch: int, frame: int, objects: NewObjects) -> None:
        acquire, add, move = self.lib.acquire_object, self.lib.add_object, self._move
        size, start, length = objects.records.itemsize, objects.address + _BODY, self._length
        classifiers, users = objects.classifiers, objects.users
        made: list[int] = []
        for place, parent in enumerate(objects.parents):
            address = acquire(batch)
            made.append(address)
            move(address + _BODY, start, length)
            start += size
            if parent < 0:
                parent = made[-1 - parent]
            self._attach(batch, address, classifiers.get(place, ()), users.get(place, ()))
            add(frame, address, parent)

    def complete(self, address: int, record: Any, parent: int) -> None:
        """Writes the fields of an appended object that pyservicemaker reaches in part or not at all."""
        raw, fields = record.tobytes(), self.layout.object.fields
        assert fields is not None
        for name in ("detector_box", "tracker_box", "tracker_confidence", "rect", "mask", "label"):
            kind, at = fields[name][:2]
            C.memmove(address + at, raw[at : at + kind.itemsize], kind.itemsize)
        C.c_uint64.from_address(address + fields["parent"][1]).value = parent
        # The bindings made a copy; the plan's own goes with the object like all else that was allocated for it.
        place = C.c_uint64.from_address(address + self._text_at)
        glib().free(place.value)
        place.value = int(record["text"]["display_text"])

    def attach(self, address: int, classifiers: Any, users: Any) -> None:
        """Attaches classifiers and user metas to an object that is on a frame."""
        batch = C.c_uint64.from_address(address).value
        self.lib.lock(batch)
        try:
            self._attach(batch, address, classifiers, users)
        finally:
            self.lib.unlock(batch)

    def _attach(self, batch: int, address: int, classifiers: Any, users: Any) -> None:
        for words in classifiers:
            self.lib.add_classifier(address, self._classifier(batch, words))
        for kind, data in users:
            self.lib.add_user_to_object(address, self._user(batch, kind, data))

    def _classifier(self, batch: int, words: tuple[Attribute, ...]) -> int:
        lib = self.lib
        address: int = lib.acquire_classifier(batch)
        classifier = ClassifierMeta.from_address(address)
        classifier.component_id, classifier.classifier_type = words[0].component_id, self._classifier_type
        for number, word in enumerate(words):
            label_address = lib.acquire_label(batch)
            label = LabelInfo.from_address(label_address)
            raw = word.label.replace("\0", "").encode("utf-8", "replace")
            label.label_id, label.class_id, label.confidence = number, max(0, word.class_id), word.confidence
            label.result_label = cut(word.label)
            if len(raw) >= LABEL_SIZE:
                label.long_label = glib().strdup(raw)
            lib.add_label(address, label_address)
        return address

    def _user(self, batch: int, kind: int, data: int) -> int:
        address: int = self.lib.acquire_user(batch)
        user = UserMeta.from_address(address)
        user.meta_type, user.copy_func, user.release_func, user.data = kind, self.copy, self.release, data
        return address

    def _display(self, batch: int, frame: int, record: Any) -> None:
        address = self.lib.acquire_display(batch)
        raw = record.tobytes()
        C.memmove(address + self._display_head, raw[self._display_head :], len(raw) - self._display_head)
        self.lib.add_display(frame, address)

    def _change(self, batch: int, change: Change) -> None:
        for offset, raw in change.writes:
            C.memmove(change.address + offset, raw, len(raw))
        if change.text:
            place = C.c_uint64.from_address(change.address + self._text_at)
            glib().free(place.value)
            place.value = change.text
        if change.dropped:
            head = C.c_uint64.from_address(change.address + self.layout.classifiers).value
            for address in links(head):
                if ClassifierMeta.from_address(address).component_id in change.dropped:
                    self.lib.remove_classifier(change.address, address)
        self._attach(batch, change.address, change.classifiers, change.users)
