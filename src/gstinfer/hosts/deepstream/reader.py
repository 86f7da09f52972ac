"""What is on a DeepStream batch already, as our results: ours, nvinfer's and nvtracker's objects alike."""

from __future__ import annotations

import ctypes as C
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.hosts.deepstream import payload
from gstinfer.hosts.deepstream.abi import (
    UNTRACKED,
    BatchMeta,
    ClassifierMeta,
    FrameMeta,
    LabelInfo,
    Layout,
    UserMeta,
    layout,
    links,
)
from gstinfer.hosts.deepstream.libs import Libraries, libraries
from gstinfer.results import Attribute, Detections, FrameResults, Mask

__all__ = ["BATCH", "OBJECT", "BatchReader", "FrameReader", "read_batch"]

BATCH = b"GSTINFER.BATCH"
"""Descriptor of the batch's user meta: a ``guint64`` length, then JSON: which model, and which frames it saw."""
OBJECT = "ds_object"
"""Column of ``Detections.data``: handle of the object's meta on this buffer; 0 or None where it has none yet. No two
buffers share a handle, so one that was kept from an earlier buffer names nothing."""

_serial = itertools.count(1)
_PER_BUFFER = 1 << 24


def read_batch(buffer: Any) -> list[FrameResults]:
    """What is known about each frame of a DeepStream buffer, in the order of the batch; ``stream_id`` tells whose it is.

    Returns:
        An empty list where the buffer has no batch meta.

    Raises:
        HostError: DeepStream's libraries, or a layout that is not known.
    """
    lib = libraries()
    address = lib.batch_meta(hash(buffer))
    if not address:
        return []
    batch = BatchReader(lib, layout(), address)
    return [batch.frame(frame).results() or FrameResults(stream_id=batch.stream_id(frame)) for frame in batch.frames]


class BatchReader:
    """One batch meta.

    Args:
        lib: DeepStream's functions.
        layout: Of its structs.
        address: Of the ``NvDsBatchMeta``.
    """

    def __init__(self, lib: Libraries, layout: Layout, address: int) -> None:
        self.lib, self.layout, self.address = lib, layout, address
        self.frames = links(BatchMeta.from_address(address).frames)
        self.result_type, self.batch_type = lib.user_meta_type(payload.RESULT), lib.user_meta_type(BATCH)
        self._handles = itertools.count(next(_serial) * _PER_BUFFER)
        self._facts: dict[int, list[Any]] | None = None

    @staticmethod
    def stream_id(frame: int) -> str:
        """Key of the stream that a frame is of: its source id."""
        return str(FrameMeta.from_address(frame).source_id)

    def frame(self, address: int) -> FrameReader:
        """Reads one frame when asked."""
        return FrameReader(self, address)

    def handle(self) -> int:
        """A number that no object has had before."""
        return next(self._handles)

    def users(self, head: int | None, kind: int) -> list[int]:
        """Payloads of user metas of one type, oldest first."""
        metas = [UserMeta.from_address(address) for address in links(head)]
        return [meta.data for meta in reversed(metas) if meta.meta_type == kind and meta.data]

    @property
    def facts(self) -> dict[int, list[Any]]:
        """Batch id -> [model, inferred, stream id], as the last inference element wrote them."""
        if self._facts is None:
            self._facts = {}
            for address in self.users(BatchMeta.from_address(self.address).users, self.batch_type):
                length = C.c_uint64.from_address(address).value
                told = json.loads(C.string_at(address + 8, length))
                for batch_id, inferred, stream_id in told["frames"]:
                    self._facts[batch_id] = [told["model"], inferred, stream_id]
        return self._facts


class FrameReader:
    """One frame's metas.

    Attributes:
        address: Of the ``NvDsFrameMeta``.
        objects: Handle -> address of every object that was read.
        before: The detections that were read, None where there were no objects.
        known: What was read, None where nothing was.
    """

    def __init__(self, batch: BatchReader, address: int) -> None:
        self.batch, self.address = batch, address
        self.meta = FrameMeta.from_address(address)
        self.objects: dict[int, int] = {}
        self.before: Detections | None = None
        self.known: FrameResults | None = None

    def results(self) -> FrameResults | None:
        """Everything on the frame; None where nothing is."""
        batch, meta = self.batch, self.meta
        model, inferred, stream_id = batch.facts.get(meta.batch_id, ["", None, ""])
        if inferred is None and meta.infer_done:
            inferred = True
        found = FrameResults(model, inferred, stream_id=stream_id or batch.stream_id(self.address))
        self._users(found)
        addresses = links(meta.objects)[::-1] if meta.objects else []
        if addresses:
            found.detections = self._objects(addresses, found)
        elif inferred and not (found.classifications or found.segmentation or found.texts or found.tensors):
            found.detections = Detections.empty()
        empty = found.detections is None and not (found.texts or found.segmentation or found.tensors)
        if empty and inferred is None and not found.classifications:
            return None
        # Stages put new columns into what they are given, so that a copy remembers what was here.
        self.known = replace(
            found,
            classifications=list(found.classifications),
            texts=list(found.texts),
            tensors=list(found.tensors),
        )
        return found

    def _users(self, found: FrameResults) -> None:
        labels: dict[int, Any] = {}
        if not self.meta.users:
            return
        for address in self.batch.users(self.meta.users, self.batch.result_type):
            told = payload.unpack(address)
            found.texts += told.texts
            found.tensors += told.tensors
            if told.segmentation is not None:
                labels[told.segmentation.component_id] = told.segmentation.label
        for address in self.batch.users(self.meta.users, payload.SEGMENTATION):
            found.segmentation = payload.read_segmentation(address)
            found.segmentation.label = labels.get(found.segmentation.component_id)
        for address in self.batch.users(self.meta.users, payload.TENSORS):
            tensors = payload.read_tensors(address)
            if tensors is not None:
                found.tensors.append(tensors)

    def _objects(self, addresses: list[int], found: FrameResults) -> Detections | None:
        size = self.batch.layout.object.itemsize
        records = np.frombuffer(b"".join([C.string_at(a, size) for a in addresses]), self.batch.layout.object)
        handles = [self.batch.handle() for _ in addresses]
        self.objects = dict(zip(handles, addresses))
        extras: list[Detections | None] = [None] * len(addresses)
        keep = np.ones(len(addresses), bool)
        for row in np.flatnonzero(records["users"]):
            for address in self.batch.users(int(records["users"][row]), self.batch.result_type):
                told = payload.unpack(address)
                if told.classifications:
                    found.classifications += told.classifications
                    keep[row] = False
                else:
                    extras[row] = _joined(extras[row], told.detections)
        if not keep.any():
            return None
        self.before = self._columns(records, handles, addresses, extras)
        if not keep.all():
            self.before = self.before[keep]
        return self.before

    def _columns(
        self,
        records: NDArray[Any],
        handles: list[int],
        addresses: list[int],
        extras: list[Detections | None],
    ) -> Detections:
        box, count = records["box"], len(records)
        ids = records["object_id"]
        # An id is unsigned in DeepStream; ours are signed, and negative ones mean untracked.
        tracks = np.where(ids == UNTRACKED, -1, (ids & np.uint64((1 << 63) - 1)).astype(np.int64))
        data: dict[str, Any] = {OBJECT: np.array(handles, np.int64)}
        parent = None
        if records["parent"].any():
            rows = {address: row for row, address in enumerate(addresses)}
            parent = np.array([rows.get(p, -1) for p in records["parent"].tolist()], np.int64)
        labels = [_text(raw) or str(c) for raw, c in zip(records["label"], records["class_id"].tolist())]
        obb, keypoints = self._geometry(records, extras)
        for row, extra in enumerate(extras):
            if extra is None:
                continue
            if extra.label:
                labels[row] = extra.label[0]
            for key, column in extra.data.items():
                data.setdefault(key, [None] * count)[row] = column[0]
        attributes = None
        if records["classifiers"].any():
            attributes = [_attributes(int(head)) for head in records["classifiers"]]
        found = Detections(
            np.concatenate([box[:, :2], box[:, :2] + box[:, 2:]], 1),
            np.clip(records["confidence"], 0, 1),
            records["class_id"].copy(),
            tracks if (tracks >= 0).any() else None,
            labels,
            records["component_id"].copy(),
            _masks(records) if records["mask"]["data"].any() else None,
            obb,
            keypoints,
            attributes,
            data=data,
            parent=parent,
        )
        if obb is not None:
            rotated = np.flatnonzero(obb[:, 4])
            found.xyxy[rotated] = [_hull(extras[row], obb[row]) for row in rotated]
        return found

    def _geometry(self, records: NDArray[Any], extras: list[Detections | None]) -> tuple[Any, Any]:
        box, count = records["box"], len(records)
        obb = np.concatenate([box[:, :2] + box[:, 2:] / 2, box[:, 2:], np.zeros((count, 1), np.float32)], 1)
        if self.batch.layout.rotation:
            obb[:, 4] = np.radians(records["rect"]["rotation_angle"])
        points = [e.keypoints[0] if e is not None and e.keypoints is not None else None for e in extras]
        given = False
        for row, extra in enumerate(extras):
            if extra is not None and extra.obb is not None:
                obb[row], given = extra.obb[0], True
        most = max((len(p) for p in points if p is not None), default=0)
        keypoints = None
        if any(p is not None for p in points):
            keypoints = np.zeros((count, most, 3), np.float32)
            keypoints[..., 2] = -1
            for row, point in enumerate(points):
                if point is not None:
                    keypoints[row, : len(point)] = point
        return (obb if given or obb[:, 4].any() else None), keypoints


def _joined(first: Detections | None, second: Detections | None) -> Detections | None:
    """Extras of one object that two elements wrote; the later one's word counts."""
    if first is None or second is None:
        return second if first is None else first
    columns = {name: getattr(second, name) for name in ("obb", "keypoints", "label") if getattr(second, name) is not None}
    return first.with_columns(**columns, data={**first.data, **second.data})


def _hull(extra: Detections | None, obb: NDArray[np.float32]) -> NDArray[np.float32]:
    from gstinfer.geometry import obb_hull

    if extra is not None and extra.obb is not None:
        return np.asarray(extra.xyxy[0])
    hull: NDArray[np.float32] = obb_hull(obb[None])[0]
    return hull


def _text(raw: bytes) -> str:
    return bytes(raw).split(b"\0", 1)[0].decode("utf-8", "replace")


def _attributes(head: int) -> tuple[Attribute, ...]:
    found = []
    for address in reversed(links(head)):
        classifier = ClassifierMeta.from_address(address)
        for label_address in reversed(links(classifier.labels)):
            label = LabelInfo.from_address(label_address)
            raw = C.string_at(label.long_label) if label.long_label else label.result_label
            found.append(
                Attribute(_text(raw), int(label.class_id), float(label.confidence), int(classifier.component_id))
            )
    return tuple(found)


def _masks(records: NDArray[Any]) -> list[Mask]:
    found = []
    for box, mask in zip(records["box"], records["mask"]):
        if not mask["data"]:
            found.append(Mask(0, 0, np.zeros((0, 0), bool)))
            continue
        height, width = int(mask["height"]), int(mask["width"])
        values = np.frombuffer(C.string_at(int(mask["data"]), height * width * 4), np.float32).reshape(height, width)
        x1, y1 = np.floor(box[:2]).astype(int)
        x2, y2 = np.ceil(box[:2] + box[2:]).astype(int)
        bitmap = values > mask["threshold"]
        if bitmap.shape != (y2 - y1, x2 - x1) and bitmap.size and y2 > y1 and x2 > x1:
            # Another writer's resolution: stretched over the box, as nvdsosd does.
            rows = np.minimum(np.arange(y2 - y1) * height // (y2 - y1), height - 1)
            columns = np.minimum(np.arange(x2 - x1) * width // (x2 - x1), width - 1)
            bitmap = bitmap[rows][:, columns]
        found.append(Mask(int(x1), int(y1), bitmap))
    return found
