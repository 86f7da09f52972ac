"""What is to be written on one frame, made ready before the first meta is acquired.

Everything that can fail happens here: values are checked, and strings, masks and payloads allocated. What a plan owns is
freed unless the writer took it over.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.hosts.deepstream import payload
from gstinfer.hosts.deepstream.abi import LABEL_SIZE, UNTRACKED, Layout
from gstinfer.hosts.deepstream.display import displays_of
from gstinfer.hosts.deepstream.libs import glib
from gstinfer.hosts.deepstream.reader import OBJECT, FrameReader
from gstinfer.results import Attribute, Classifications, Detections, FrameResults, SegmentationMap, Tensors

__all__ = ["Change", "FramePlan", "NewObjects", "Owned", "Planner", "cut"]

BORDER_WIDTH, FONT_SIZE = 3, 11
RED, WHITE, BLACK = (1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0)
TEXT_ABOVE = 10
TENSOR_COLUMN = "tensor:"
MASK_THRESHOLD = 0.5


@lru_cache(maxsize=4096)
def cut(label: str) -> bytes:
    """A label as ``obj_label`` holds it: at most 127 bytes of UTF-8, whole characters, without the ``|`` at which
    nvmsgconv's minimal schema splits."""
    raw = label.replace("|", "/").replace("\0", "").encode("utf-8", "replace")
    return raw if len(raw) < LABEL_SIZE else raw[: LABEL_SIZE - 1].decode("utf-8", "ignore").encode()


class Owned:
    """Memory that a plan allocated."""

    def __init__(self) -> None:
        self._things: list[tuple[Callable[[int], None], int]] = []
        self._glib = glib()

    def text(self, text: str) -> int:
        """A g_malloc'ed string."""
        address: int = self._glib.strdup(text.replace("\0", "").encode("utf-8", "replace"))
        self._things.append((self._glib.free, address))
        return address

    def texts(self, texts: list[bytes]) -> list[int]:
        """g_malloc'ed strings."""
        found = list(map(self._glib.strdup, texts))
        self._things += [(self._glib.free, address) for address in found]
        return found

    def bytes(self, array: NDArray[Any]) -> int:
        """A g_malloc'ed copy of an array."""
        address: int = self._glib.malloc(array.nbytes)
        self._things.append((self._glib.free, address))
        C.memmove(address, array.ctypes.data, array.nbytes)
        return address

    def payload(self, address: int) -> int:
        """Takes a payload's block over."""
        self._things.append((payload.free, address))
        return address

    def hand_over(self) -> None:
        """The metas own everything now."""
        self._things.clear()

    def free(self) -> None:
        """Frees what nobody took."""
        while self._things:
            release, address = self._things.pop()
            release(address)


@dataclass
class NewObjects:
    """Objects to be acquired, one record each.

    Attributes:
        records: ``Layout.object`` records.
        parents: Address of each one's parent, 0 for none, or ``-1 - place`` of an earlier one among these.
        classifiers: By row: attributes to attach, by component.
        users: By row: (type, payload).
    """

    records: NDArray[Any]
    parents: list[int]
    classifiers: dict[int, list[tuple[Attribute, ...]]] = field(default_factory=dict)
    users: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass
class Change:
    """What becomes of an object that is there already.

    Attributes:
        address: Of its meta.
        writes: (offset, bytes) into it.
        text: New display text, or 0.
        classifiers: Attributes to attach.
        users: (type, payload).
    """

    address: int
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    text: int = 0
    classifiers: list[tuple[Attribute, ...]] = field(default_factory=list)
    users: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class FramePlan:
    """Everything for one frame.

    Attributes:
        frame: Address of the frame meta.
        inferred: Whether ``bInferDone`` is set.
        new: Lots of objects, in order.
        changes: Of objects that are there.
        removed: Addresses of objects that go.
        users: (type, payload) of user metas of the frame.
        displays: ``Layout.display`` records.
    """

    frame: int
    inferred: bool
    new: list[NewObjects] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    users: list[tuple[int, int]] = field(default_factory=list)
    displays: list[NDArray[Any]] = field(default_factory=list)


class Planner:
    """Makes plans under one layout.

    Args:
        layout: Of the structs.
        result_type: Meta type of our own payloads.
        tensor_metas: Whether raw outputs become nvinfer's tensor metas; else they travel in our own payload.
        gpu_id: For tensor metas.
    """

    def __init__(self, layout: Layout, result_type: int, *, tensor_metas: bool = False, gpu_id: int = 0) -> None:
        self.layout, self.result_type = layout, result_type
        self.tensor_metas, self.gpu_id = tensor_metas, gpu_id
        template = np.zeros(1, layout.object)
        template["object_id"] = UNTRACKED
        rect, text = template["rect"], template["text"]
        rect["border_width"], rect["border_color"] = BORDER_WIDTH, RED
        # The font's name is shared by all objects and outlives them, so that it comes from GLib's table of strings.
        text["font_name"], text["font_size"], text["font_color"] = glib().intern(b"Serif"), FONT_SIZE, WHITE
        text["set_bg_clr"], text["text_bg_clr"] = 1, BLACK
        self.template = template.tobytes()

    def _records(self, count: int) -> NDArray[Any]:
        """Objects with what all have in common. Bytes, as NumPy leaves the gaps between fields as they were."""
        return np.frombuffer(bytearray(self.template * count), self.layout.object)

    def plan(self, reader: FrameReader, now: FrameResults, size: tuple[int, int], owned: Owned) -> FramePlan:
        """What brings a frame's metas from what was read to ``now``.

        Args:
            reader: Has read the frame.
            now: The results wanted.
            size: Width and height of the frame's surface.
            owned: Keeps what is allocated.

        Raises:
            HostError: A result that no meta can carry.
        """
        known = reader.known or FrameResults()
        plan = FramePlan(reader.address, bool(now.inferred))
        if now.detections is not known.detections:
            self._detections(plan, reader, now.detections, size, owned)
        for classes in now.classifications:
            if not any(classes is other for other in known.classifications) and len(classes):
                plan.new.append(self._whole_frame(classes, size, owned))
        self._frame_users(plan, known, now, size, owned)
        return plan

    def _frame_users(
        self, plan: FramePlan, known: FrameResults, now: FrameResults, size: tuple[int, int], owned: Owned
    ) -> None:
        texts = [t for t in now.texts if not any(t is other for other in known.texts)]
        tensors = [t for t in now.tensors if not any(t is other for other in known.tensors)]
        if self.tensor_metas:
            for found in tensors:
                plan.users.append((payload.TENSORS, owned.payload(payload.tensors(found, self.gpu_id))))
            tensors = []
        names = None
        if now.segmentation is not None and now.segmentation is not known.segmentation:
            plan.users.append((payload.SEGMENTATION, owned.payload(payload.segmentation(now.segmentation))))
            if now.segmentation.label:
                nothing = np.zeros((0, 0), np.int32)
                names = SegmentationMap(nothing, now.segmentation.label, None, now.segmentation.component_id)
        if texts or tensors or names is not None:
            told = FrameResults(texts=texts, tensors=tensors, segmentation=names)
            plan.users.append((self.result_type, owned.payload(payload.pack(told, *size))))

    # Objects

    def _detections(
        self, plan: FramePlan, reader: FrameReader, now: Detections | None, size: tuple[int, int], owned: Owned
    ) -> None:
        """Rows with a handle of this buffer change their object; the others become new ones; what is missing goes."""
        now = Detections.empty() if now is None else now
        before = reader.before
        if before is None:
            plan.new.append(self._new(now, np.arange(len(now)), reader, size, owned))
        else:
            handles = [int(h or 0) for h in now.data.get(OBJECT, [0] * len(now))]
            rows = {handle: row for row, handle in enumerate(handles) if handle in reader.objects}
            for old, handle in enumerate(before.data[OBJECT].tolist()):
                if handle not in rows:
                    plan.removed.append(reader.objects[handle])
                    continue
                change = self._change(reader.objects[handle], before, old, now, rows[handle], size, owned)
                if change is not None:
                    plan.changes.append(change)
            fresh = np.array([row for row, handle in enumerate(handles) if rows.get(handle) != row], np.int64)
            if len(fresh):
                plan.new.append(self._new(now, fresh, reader, size, owned))
        plan.displays += displays_of(self.layout, now, before, size)

    def _new(
        self, now: Detections, rows: NDArray[np.int64], reader: FrameReader, size: tuple[int, int], owned: Owned
    ) -> NewObjects:
        bounds = np.array([*size, *size], np.float32)
        box = now.xyxy[rows]
        clipped = np.clip(box, 0, bounds)
        # NaN compares as false, so that it goes with the empty ones.
        good = (clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1]) & np.isfinite(box).all(1)
        rows, clipped = rows[good], clipped[good]
        records = self._records(len(rows))
        box = np.concatenate([clipped[:, :2], clipped[:, 2:] - clipped[:, :2]], 1)
        if now.obb is not None and self.layout.rotation:
            self._rotate(records, box, now.obb[rows], bounds)
        records["box"] = records["detector_box"] = box
        records["component_id"] = now.component_id[rows]
        records["class_id"] = np.maximum(now.class_id[rows], 0)
        records["confidence"] = now.confidence[rows]
        self._place_text(records, box)
        if now.tracker_id is not None:
            ids = now.tracker_id[rows]
            tracked = ids >= 0
            records["object_id"][tracked] = ids[tracked].astype(np.uint64)
            records["tracker_box"][tracked] = box[tracked]
            records["tracker_confidence"][tracked] = now.confidence[rows][tracked]
        objects = NewObjects(records, self._parents(now, rows, reader))
        self._labels(objects, now, rows, owned)
        if now.mask is not None:
            self._masks(records, [now.mask[row] for row in rows], clipped, owned)
        self._extras(objects, now, rows, size, owned)
        return objects

    @staticmethod
    def _place_text(records: NDArray[Any], box: NDArray[np.float32]) -> None:
        text = records["text"]
        text["x_offset"] = box[:, 0].astype(np.uint32)
        text["y_offset"] = np.maximum(box[:, 1] - TEXT_ABOVE, 0).astype(np.uint32)

    def _rotate(
        self, records: NDArray[Any], box: NDArray[np.float32], obb: NDArray[np.float32], bounds: NDArray[np.float32]
    ) -> None:
        """nvdsosd turns a rectangle about its centre. Where the unturned one leaves the frame, the upright hull stays."""
        corner, far = obb[:, :2] - obb[:, 2:4] / 2, obb[:, :2] + obb[:, 2:4] / 2
        inside = (corner >= 0).all(1) & (far <= bounds[:2]).all(1) & (obb[:, 4] != 0)
        box[inside, :2], box[inside, 2:] = corner[inside], obb[inside, 2:4]
        records["rect"]["rotation_angle"][inside] = np.degrees(obb[inside, 4])

    @staticmethod
    def _parents(now: Detections, rows: NDArray[np.int64], reader: FrameReader) -> list[int]:
        if now.parent is None:
            return [0] * len(rows)
        handles, found = now.data.get(OBJECT), []
        places: dict[int, int] = {}
        for place, row in enumerate(rows.tolist()):
            parent = int(now.parent[row])
            handle = int(handles[parent] or 0) if handles is not None and parent >= 0 else 0
            found.append(reader.objects.get(handle) or places.get(parent, 0))
            places[row] = -1 - place
        return found

    def _labels(self, objects: NewObjects, now: Detections, rows: NDArray[np.int64], owned: Owned) -> None:
        records = objects.records
        names = now.label if now.label is not None else now.class_id.tolist()
        labels = [str(names[row]) for row in rows]
        records["label"] = [cut(label) for label in labels]
        shown = labels
        if now.attributes is not None:
            for place, row in enumerate(rows):
                if now.attributes[row]:
                    objects.classifiers[place] = by_component(now.attributes[row])
            shown = [with_words(label, now.attributes[row]) for label, row in zip(labels, rows)]
        raw = [text.encode("utf-8", "replace") for text in shown]
        records["text"]["display_text"] = owned.texts([text.replace(b"\0", b"") for text in raw])

    def _masks(self, records: NDArray[Any], masks: list[Any], boxes: NDArray[np.float32], owned: Owned) -> None:
        field = records["mask"]
        for place, (mask, box) in enumerate(zip(masks, boxes)):
            if not mask.bitmap.size:
                continue
            x1, y1 = np.floor(box[:2]).astype(int)
            x2, y2 = np.ceil(box[2:]).astype(int)
            local = np.zeros((y2 - y1, x2 - x1), np.float32)
            left, top = max(x1, mask.x), max(y1, mask.y)
            right, bottom = min(x2, mask.x + mask.bitmap.shape[1]), min(y2, mask.y + mask.bitmap.shape[0])
            if right > left and bottom > top:
                part = mask.bitmap[top - mask.y : bottom - mask.y, left - mask.x : right - mask.x]
                local[top - y1 : bottom - y1, left - x1 : right - x1] = part
            field["data"][place], field["size"][place] = owned.bytes(local), local.nbytes
            field["threshold"][place] = MASK_THRESHOLD
            field["height"][place], field["width"][place] = local.shape

    def _extras(
        self, objects: NewObjects, now: Detections, rows: NDArray[np.int64], size: tuple[int, int], owned: Owned
    ) -> None:
        """What no struct has room for travels in a payload of the object's own."""
        labels = objects.records["label"]
        names = now.label if now.label is not None else None
        whole = now.obb is not None or now.keypoints is not None or any(key != OBJECT for key in now.data)
        for place, row in enumerate(rows):
            altered = names is not None and names[row].encode("utf-8", "replace") != labels[place]
            if not (whole or altered):
                continue
            users = self._users(extra_of(now, int(row), altered), size, owned)
            if users:
                objects.users[place] = users

    def _users(self, extra: Detections | None, size: tuple[int, int], owned: Owned) -> list[tuple[int, int]]:
        """User metas of one object."""
        users: list[tuple[int, int]] = []
        if extra is None:
            return users
        if self.tensor_metas:
            extra, tensors = object_tensors(extra)
            users += [(payload.TENSORS, owned.payload(payload.tensors(found, self.gpu_id))) for found in tensors]
        if extra.obb is not None or extra.keypoints is not None or extra.data or extra.label:
            users.append((self.result_type, owned.payload(payload.pack(FrameResults(detections=extra), *size))))
        return users

    def _whole_frame(self, classes: Classifications, size: tuple[int, int], owned: Owned) -> NewObjects:
        """A full-frame classifier's object, as nvinfer makes it; the payload tells it from a detection."""
        records = self._records(1)
        named = classes.named(None)
        label = (named.label or [""])[0]
        records["box"] = records["detector_box"] = (0, 0, *size)
        records["component_id"], records["class_id"] = classes.component_id, max(0, int(classes.class_id[0]))
        records["confidence"], records["label"] = classes.confidence[0], cut(label)
        records["text"]["display_text"] = owned.text(" ".join(named.label or []))
        told = FrameResults(classifications=[classes])
        user = (self.result_type, owned.payload(payload.pack(told, *size)))
        return NewObjects(records, [0], {0: [named.attributes()]}, {0: [user]})

    # Objects that are there already

    def _change(
        self,
        address: int,
        before: Detections,
        old: int,
        now: Detections,
        row: int,
        size: tuple[int, int],
        owned: Owned,
    ) -> Change | None:
        change, fields = Change(address), self.layout.object.fields
        assert fields is not None

        def write(name: str, value: Any) -> None:
            kind, at = fields[name][:2]
            change.writes.append((at, np.asarray(value, kind.base).tobytes()))

        moved = not np.array_equal(before.xyxy[old], now.xyxy[row])
        box = np.clip(now.xyxy[row], 0, np.array([*size, *size], np.float32))
        box = np.concatenate([box[:2], box[2:] - box[:2]])
        if moved and (box[2:] > 0).all():
            write("box", box)
            change.writes.append((fields["text"][1] + 8, self._text_offsets(box)))
        for name in ("class_id", "confidence"):
            if getattr(before, name)[old] != getattr(now, name)[row]:
                write(name, getattr(now, name)[row])
        label, shown = _label(now, row), None
        if label != _label(before, old):
            write("label", np.array(cut(label), f"S{LABEL_SIZE}"))
            shown = label
        track = -1 if now.tracker_id is None else int(now.tracker_id[row])
        if track != (-1 if before.tracker_id is None else int(before.tracker_id[old])):
            write("object_id", track if track >= 0 else UNTRACKED)
            if track >= 0:
                write("tracker_box", box)
                write("tracker_confidence", now.confidence[row])
                shown = f"{label} {track}"
        words = now.attributes[row] if now.attributes is not None else ()
        known = before.attributes[old] if before.attributes is not None else ()
        added = tuple(word for word in words if word not in known)
        if added:
            change.classifiers = by_component(added)
            shown = with_words(shown or label, words)
        if shown is not None:
            change.text = owned.text(shown)
        change.users += self._users(_gained(before, old, now, row), size, owned)
        return change if change.writes or change.text or change.classifiers or change.users else None

    def _text_offsets(self, box: NDArray[np.float32]) -> bytes:
        return np.array([box[0], max(0.0, float(box[1]) - TEXT_ABOVE)]).astype(np.uint32).tobytes()


def _label(found: Detections, row: int) -> str:
    return str(found.class_id[row]) if found.label is None else found.label[row]


def by_component(words: tuple[Attribute, ...]) -> list[tuple[Attribute, ...]]:
    """Attributes grouped by the element that found them, in order."""
    groups: dict[int, list[Attribute]] = {}
    for word in words:
        groups.setdefault(word.component_id, []).append(word)
    return [tuple(group) for group in groups.values()]


def with_words(label: str, words: tuple[Attribute, ...]) -> str:
    """A display text: the label, then each classifier's word."""
    return " ".join([label, *(word.label for word in words)])


def extra_of(found: Detections, row: int, label: bool = False) -> Detections | None:
    """The columns of one row that the structs have no room for, or None."""
    obb = found.obb[row : row + 1] if found.obb is not None else None
    points = found.keypoints[row : row + 1] if found.keypoints is not None else None
    if points is not None and not (points[..., 2] >= 0).any():
        points = None
    data = {key: [value[row]] for key, value in found.data.items() if key != OBJECT and value[row] is not None}
    if obb is None and points is None and not data and not label:
        return None
    names = [found.label[row]] if label and found.label is not None else None
    return Detections(found.xyxy[row : row + 1], label=names, obb=obb, keypoints=points, data=data)


def object_tensors(extra: Detections) -> tuple[Detections, list[Tensors]]:
    """Takes raw outputs, which process-mode=2 puts into columns ``tensor:COMPONENT:NAME``, out of an object's extras."""
    outputs: dict[int, dict[str, Any]] = {}
    rest = dict(extra.data)
    for key in extra.data:
        if key.startswith(TENSOR_COLUMN):
            component, _, name = key[len(TENSOR_COLUMN) :].partition(":")
            outputs.setdefault(int(component), {})[name] = rest.pop(key)[0]
    return extra.with_columns(data=rest), [Tensors(arrays, component) for component, arrays in outputs.items()]


def _gained(before: Detections, old: int, now: Detections, row: int) -> Detections | None:
    """What an element added to an object that was there: keypoints, a rotated box, data columns."""
    extra = extra_of(now, row)
    if extra is None:
        return None
    was = extra_of(before, old)
    if was is None:
        return extra
    same_points = was.keypoints is None or extra.keypoints is None or np.array_equal(was.keypoints, extra.keypoints)
    new_points = extra.keypoints is not None and (was.keypoints is None or not same_points)
    new_obb = extra.obb is not None and (was.obb is None or not np.array_equal(was.obb, extra.obb))
    data = {k: v for k, v in extra.data.items() if k not in was.data or not np.array_equal(v[0], was.data[k][0])}
    if not (new_points or new_obb or data):
        return None
    return extra.with_columns(
        keypoints=extra.keypoints if new_points else None, obb=extra.obb if new_obb else None, data=data
    )
