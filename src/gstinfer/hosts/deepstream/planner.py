"""Compares what is on a frame with what is wanted, and plans the difference."""

from __future__ import annotations

import ctypes as C
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.hosts.deepstream import payload
from gstinfer.hosts.deepstream.abi import LABEL_SIZE, UNTRACKED, Layout
from gstinfer.hosts.deepstream.display import displays_of
from gstinfer.hosts.deepstream.extras import (
    by_component,
    cut,
    extra_of,
    gained,
    label_of,
    object_tensors,
    with_words,
)
from gstinfer.hosts.deepstream.libs import glib
from gstinfer.hosts.deepstream.plan import Change, FramePlan, Fresh, NewObjects, Owned
from gstinfer.hosts.deepstream.reader import OBJECT, FrameReader
from gstinfer.results import Classifications, Detections, FrameResults, SegmentationMap

__all__ = ["Planner"]

BORDER_WIDTH, FONT_SIZE = 3, 11
RED, WHITE, BLACK = (1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0)
TEXT_ABOVE = 10
MASK_THRESHOLD = 0.5


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
        self._template = np.frombuffer(template.tobytes(), np.uint8)
        self._scratch, self._address = np.empty(0, layout.object), 0
        self._clean = False

    def _records(self, count: int, also: bool) -> NDArray[Any]:
        """Objects with what all have in common, good until the next call.

        Args:
            count: Of objects.
            also: Whether fields are to be set that not every object has; else what the last call filled serves again.
        """
        if len(self._scratch) < count:
            self._scratch, self._clean = np.empty(2 * count, self.layout.object), False
            self._address = self._scratch.ctypes.data
        if not self._clean:
            # As bytes, since NumPy leaves the gaps between fields as they were.
            self._scratch.view(np.uint8).reshape(-1, self.layout.object.itemsize)[:] = self._template
        self._clean = not also
        return self._scratch[:count]

    def plan(self, reader: FrameReader, now: FrameResults, size: tuple[int, int], owned: Owned) -> FramePlan:
        """What brings a frame's metas from what was read to ``now``; ``finish`` makes the new objects.

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
        fresh: NDArray[np.int64] | None = None
        if before is not None:
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
        plan.fresh = Fresh(now, fresh, reader, size)
        plan.displays += displays_of(self.layout, now, before, size)

    def finish(self, plans: list[FramePlan], owned: Owned) -> None:
        """Makes the new objects of all frames in one step: NumPy costs by the call, not by the object."""
        lots = [(plan, plan.fresh) for plan in plans if plan.fresh is not None and len(plan.fresh)]
        if not lots:
            return
        found, counts = [fresh for _, fresh in lots], [len(fresh) for _, fresh in lots]
        sizes = [fresh.size * 2 for fresh in found]
        bounds = np.array(sizes[:1] if len(set(sizes)) == 1 else sizes, np.float32)
        if len(bounds) > 1:
            bounds = bounds.repeat(counts, 0)
        clipped = np.minimum(np.maximum(_joined(found, "xyxy"), 0), bounds)
        box = clipped.copy()
        box[:, 2:] -= clipped[:, :2]
        # NaN compares as false, so that it goes with the empty ones.
        if not (box[:, 2:] > 0).all():
            good = (box[:, 2:] > 0).all(1)
            ends = np.cumsum(counts)
            for (_, fresh), end, count in zip(lots, ends, counts):
                fresh.keep(good[end - count : end])
            counts = [len(fresh) for fresh in found]
            clipped, box = clipped[good], box[good]
            if not len(box):
                return
        also = any(f.now.obb is not None or f.now.tracker_id is not None or f.now.mask is not None for f in found)
        records, start = self._records(len(box), also), 0
        for (plan, fresh), count in zip(lots, counts):
            end = start + count
            mine = records[start:end]
            if fresh.now.obb is not None and self.layout.rotation:
                self._rotate(mine, box[start:end], fresh.column("obb"), fresh.size)
            plan.new.insert(0, NewObjects(mine, self._address + start * mine.itemsize, self._parents(fresh)))
            if fresh.now.tracker_id is not None:
                _track(mine, box[start:end], fresh.column("tracker_id"), fresh.column("confidence"))
            if fresh.now.mask is not None:
                self._masks(mine, [fresh.now.mask[row] for row in fresh.rows], clipped[start:end], owned)
            start = end
        records["box"] = records["detector_box"] = box
        records["component_id"] = _joined(found, "component_id")
        records["class_id"] = np.maximum(_joined(found, "class_id"), 0)
        records["confidence"] = _joined(found, "confidence")
        text = records["text"]
        text["x_offset"], text["y_offset"] = box[:, 0], np.maximum(box[:, 1] - TEXT_ABOVE, 0)
        self._labels(records, lots, owned)

    def _rotate(
        self, records: NDArray[Any], box: NDArray[np.float32], obb: NDArray[np.float32], size: tuple[int, int]
    ) -> None:
        """nvdsosd turns a rectangle about its centre. Where the unturned one leaves the frame, the upright hull stays."""
        corner, far = obb[:, :2] - obb[:, 2:4] / 2, obb[:, :2] + obb[:, 2:4] / 2
        inside = (corner >= 0).all(1) & (far <= np.array(size)).all(1) & (obb[:, 4] != 0)
        box[inside, :2], box[inside, 2:] = corner[inside], obb[inside, 2:4]
        records["rect"]["rotation_angle"][inside] = np.degrees(obb[inside, 4])

    @staticmethod
    def _parents(fresh: Fresh) -> list[int]:
        now = fresh.now
        if now.parent is None:
            return [0] * len(fresh)
        handles, found = now.data.get(OBJECT), []
        places: dict[int, int] = {}
        for place, row in enumerate(fresh.rows.tolist()):
            parent = int(now.parent[row])
            handle = int(handles[parent] or 0) if handles is not None and parent >= 0 else 0
            found.append(fresh.reader.objects.get(handle) or places.get(parent, 0))
            places[row] = -1 - place
        return found

    def _labels(self, records: NDArray[Any], lots: list[tuple[FramePlan, Fresh]], owned: Owned) -> None:
        """Labels, display texts and what belongs to single objects. Few labels are many objects': each is cut once."""
        labels = list(chain.from_iterable(fresh.labels() for _, fresh in lots))
        places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
        short = list(map(cut, places))
        whole = [label.encode("utf-8", "replace").replace(b"\0", b"") for label in places]
        codes = np.fromiter(map(places.__getitem__, labels), np.int64, len(labels))
        records["label"] = np.array(short, f"S{LABEL_SIZE}")[codes]
        altered = {code for code, (one, other) in enumerate(zip(short, whole)) if one != other}
        shown, start = codes.copy(), 0
        for plan, fresh in lots:
            now, objects = fresh.now, plan.new[0]
            if now.attributes is not None:
                for place, row in enumerate(fresh.rows):
                    if now.attributes[row]:
                        objects.classifiers[place] = by_component(now.attributes[row])
                        text = with_words(labels[start + place], now.attributes[row])
                        shown[start + place] = len(whole)
                        whole.append(text.encode("utf-8", "replace").replace(b"\0", b""))
            extras = now.obb is not None or now.keypoints is not None or any(key != OBJECT for key in now.data)
            if extras or altered:
                for place, row in enumerate(fresh.rows.tolist()):
                    cut_off = codes[start + place] in altered
                    users = self._users(extra_of(now, row, cut_off), fresh.size, owned) if extras or cut_off else None
                    if users:
                        objects.users[place] = users
            start += len(fresh)
        records["text"]["display_text"] = owned.texts(whole, shown)

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
        """A full-frame classifier's object: no class of its own and a border of 6, as nvinfer's has; the payload tells it
        from a detection."""
        records = self._template.copy().view(self.layout.object)
        named = classes.named(None)
        label = (named.label or [""])[0]
        records["box"] = records["detector_box"] = (0, 0, *size)
        records["component_id"], records["class_id"] = classes.component_id, -1
        records["rect"]["border_width"] = 2 * BORDER_WIDTH
        records["confidence"], records["label"] = classes.confidence[0], cut(label)
        records["text"]["display_text"] = owned.text(" ".join(named.label or []))
        told = FrameResults(classifications=[classes])
        user = (self.result_type, owned.payload(payload.pack(told, *size)))
        return NewObjects(records, records.ctypes.data, [0], {0: [named.attributes()]}, {0: [user]})

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
        label, shown = label_of(now, row), None
        if label != label_of(before, old):
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
        had, wanted = (set(by_component(group)) for group in (known, words))
        change.classifiers = [group for group in by_component(words) if group not in had]
        change.dropped = [group[0].component_id for group in had - wanted]
        if shown is None and had != wanted:
            # As nvinfer does: behind what stands there, a tracker's number too.
            shown = _text_of(address + fields["text"][1]) or label
            tail = with_words("", known)
            shown = shown.removesuffix(tail) if shown.endswith(tail) else label
        if shown is not None:
            change.text = owned.text(with_words(shown, words))
        change.users += self._users(gained(before, old, now, row), size, owned)
        return change if change.writes or change.text or change.users else None

    def _text_offsets(self, box: NDArray[np.float32]) -> bytes:
        return np.array([box[0], max(0.0, float(box[1]) - TEXT_ABOVE)]).astype(np.uint32).tobytes()


def _text_of(place: int) -> str:
    """The string that a pointer at an address points to."""
    text = C.c_char_p.from_address(place).value
    return (text or b"").decode("utf-8", "replace")


def _joined(found: list[Fresh], name: str) -> NDArray[Any]:
    """A column over several frames."""
    return found[0].column(name) if len(found) == 1 else np.concatenate([fresh.column(name) for fresh in found])


def _track(
    records: NDArray[Any], box: NDArray[np.float32], ids: NDArray[np.int64], confidence: NDArray[np.float32]
) -> None:
    tracked = ids >= 0
    records["object_id"][tracked] = ids[tracked].astype(np.uint64)
    records["tracker_box"][tracked] = box[tracked]
    records["tracker_confidence"][tracked] = confidence[tracked]
