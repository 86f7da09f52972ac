"""Results of one frame as bytes and back, with every column and nothing rounded.

Layout: the magic ``GSTI``, a version and the length of the header (little-endian ``uint32`` each), the header as JSON
in UTF-8, zero bytes up to a multiple of 8, then the arrays one after another, each starting at a multiple of 8. Inside
the header an array is ``[dtype, shape, offset]``, the offset counting from the first array. The four columns that detections
always have lie one after another, float32 ``xyxy`` and ``confidence``, int32 ``class_id`` and ``component_id``; the header
has them as ``"boxes": [rows, offset]``.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import HostError
from gstinfer.results import Attribute, Classifications, Detections, FrameResults, Mask, SegmentationMap, Tensors, Text

__all__ = ["VERSION", "decode", "encode"]

VERSION = 2
_HEAD = struct.Struct("<4sII")
_MAGIC = b"GSTI"
_ARRAY = "$array"
_BOXES = tuple(
    (name, np.dtype(kind), width)
    for name, kind, width in (("xyxy", "<f4", 4), ("confidence", "<f4", 1), ("class_id", "<i4", 1), ("component_id", "<i4", 1))
)
"""Name, type and width of the columns that detections always have."""
_ROW = 28
"""Bytes of a row of them."""
_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_TEXT_FIELDS = (
    "text", "data", "start", "end", "prompt_id", "model", "tokens", "latency", "finish_reason", "component_id",
    "invalid", "tracker_id",
)  # fmt: skip


class _Arrays:
    """Collects arrays and gives each its place."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def put(self, array: Any) -> list[Any]:
        array = np.asarray(array)
        if array.dtype.kind not in "biufcSUmM":
            raise TypeError(f"an array of dtype {array.dtype}")
        return [array.dtype.str, array.shape, self.append(array.tobytes())]

    def append(self, raw: bytes) -> int:
        """Takes bytes in; gives their offset."""
        offset, pad = self.size, -len(raw) % 8
        self.parts += (raw, b"\0" * pad) if pad else (raw,)
        self.size += len(raw) + pad
        return offset

    def default(self, value: Any) -> Any:
        """What JSON does not know: NumPy's numbers and arrays."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return {_ARRAY: self.put(value)}
        raise TypeError(f"a value of type {type(value).__name__}")


def encode(results: FrameResults, width: int, height: int, pixel_aspect: float = 1.0) -> bytes:
    """The results as bytes.

    Args:
        results: In pixels of a frame of the given size.
        width: Of that frame.
        height: Of that frame.
        pixel_aspect: Width of its pixels by their height.

    Raises:
        HostError: ``data`` of a detection or text, or a tensor, holds what is neither array nor JSON.
    """
    arrays = _Arrays()
    header: dict[str, Any] = {
        "size": [width, height],
        "pixel_aspect": pixel_aspect,
        "model": results.model,
        "inferred": results.inferred,
        "stream_id": results.stream_id,
    }
    try:
        if results.detections is not None:
            header["detections"] = _detections(results.detections, arrays)
        if results.classifications:
            header["classifications"] = [
                [arrays.put(c.class_id), arrays.put(c.confidence), c.label, c.component_id]
                for c in results.classifications
            ]
        if results.segmentation is not None:
            s = results.segmentation
            confidence = None if s.confidence is None else arrays.put(s.confidence)
            header["segmentation"] = [arrays.put(_narrow(s.class_map)), s.label, confidence, s.component_id]
        if results.texts:
            header["texts"] = [{name: getattr(text, name) for name in _TEXT_FIELDS} for text in results.texts]
        if results.tensors:
            header["tensors"] = [
                [{name: arrays.put(a) for name, a in t.outputs.items()}, t.component_id] for t in results.tensors
            ]
        if results.texts or (results.detections is not None and results.detections.data):
            text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, default=arrays.default)
        else:
            text = _plain(header)
        # Lone surrogates are legal in a Python string and must not break the frame.
        raw = text.encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise HostError(
            f"the results of a frame cannot be written on its buffer: {error}",
            hint="put numbers, strings, lists, dicts or numeric arrays into data columns, texts and tensors",
        ) from error
    pad = b"\0" * (-(_HEAD.size + len(raw)) % 8)
    return b"".join((_HEAD.pack(_MAGIC, VERSION, len(raw)), raw, pad, *arrays.parts))


def _narrow(class_map: NDArray[np.int32]) -> NDArray[Any]:
    """Class maps are large and their numbers small."""
    if class_map.size and class_map.min() >= -128 and class_map.max() <= 127:
        return class_map.astype(np.int8)
    return class_map


def _detections(d: Detections, arrays: _Arrays) -> dict[str, Any]:
    count = len(d)
    raw = b"".join([np.asarray(getattr(d, name), dtype).tobytes() for name, dtype, _ in _BOXES])
    if len(raw) != count * _ROW:
        lengths = ", ".join(f"{name} {np.shape(getattr(d, name))}" for name, _, _ in _BOXES)
        raise ValueError(f"columns of detections differ in length: {lengths}")
    out: dict[str, Any] = {"boxes": [count, arrays.append(raw)]}
    for name in ("tracker_id", "obb", "keypoints", "parent"):
        column = getattr(d, name)
        if column is not None:
            out[name] = arrays.put(column)
    if d.label is not None:
        out["label"] = d.label
    if d.mask is not None:
        places = [(m.x, m.y, *m.bitmap.shape) for m in d.mask]
        bits = np.concatenate([m.bitmap.ravel() for m in d.mask]) if d.mask else np.zeros(0, bool)
        out["mask"] = [arrays.put(np.array(places, np.int32).reshape(-1, 4)), arrays.put(np.packbits(bits))]
    if d.attributes is not None:
        out["attributes"] = [
            [(a.label, a.class_id, a.confidence, a.component_id) for a in row] for row in d.attributes
        ]
    if d.data:
        out["data"] = {
            key: arrays.default(column) if isinstance(column, np.ndarray) else list(column)
            for key, column in d.data.items()
        }
    return out


def decode(raw: bytes) -> tuple[FrameResults, tuple[int, int], float]:
    """What ``encode`` was given: results, (width, height) and pixel aspect of the frame. Arrays are read-only.

    Raises:
        HostError: Bytes of another version, or cut short.
    """
    if len(raw) < _HEAD.size:
        raise HostError(f"results on a buffer are cut short: {len(raw)} bytes")
    magic, version, length = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != VERSION:
        raise HostError(
            f"results on a buffer have version {version}, this gstinfer reads {VERSION}",
            hint="use one version of gstinfer in all elements of a pipeline",
        )
    start = _HEAD.size + length
    start += -start % 8

    def get(place: list[Any]) -> NDArray[Any]:
        dtype, shape, offset = place
        kind = np.dtype(dtype)
        count = math.prod(shape)
        if not count or not kind.itemsize:
            return np.zeros(shape, kind)
        array: NDArray[Any] = np.frombuffer(raw, kind, count, start + offset).reshape(shape)
        return array

    def hook(value: dict[str, Any]) -> Any:
        return get(value[_ARRAY]) if len(value) == 1 and _ARRAY in value else value

    try:
        header = json.loads(raw[_HEAD.size : _HEAD.size + length].decode("utf-8", "surrogatepass"), object_hook=hook)
        results = FrameResults(header["model"], header["inferred"], stream_id=header["stream_id"])
        if "detections" in header:
            results.detections = _read_detections(header["detections"], get)
        results.classifications = [
            Classifications(get(ids), get(confidence), label, component)
            for ids, confidence, label, component in header.get("classifications", ())
        ]
        if "segmentation" in header:
            class_map, label, confidence, component = header["segmentation"]
            results.segmentation = SegmentationMap(
                get(class_map), label, None if confidence is None else get(confidence), component
            )
        results.texts = [Text(**fields) for fields in header.get("texts", ())]
        results.tensors = [
            Tensors({name: get(place) for name, place in outputs.items()}, component)
            for outputs, component in header.get("tensors", ())
        ]
        width, height = header["size"]
        aspect = float(header["pixel_aspect"])
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"results on a buffer are damaged: {error}") from error
    return results, (width, height), aspect


def _read_detections(header: dict[str, Any], get: Any) -> Detections:
    columns: dict[str, Any] = {
        name: get(header[name]) for name in ("tracker_id", "obb", "keypoints", "parent") if name in header
    }
    count, offset = header["boxes"]
    for name, dtype, width in _BOXES:
        columns[name] = get([dtype, (count, width) if width > 1 else (count,), offset])
        offset += count * width * 4
    if "mask" in header:
        places, packed = get(header["mask"][0]).tolist(), get(header["mask"][1])
        bits = np.unpackbits(packed, count=sum(h * w for _, _, h, w in places)).view(bool)
        bits.setflags(write=False)
        masks, at = [], 0
        for x, y, h, w in places:
            masks.append(Mask(x, y, bits[at : at + h * w].reshape(h, w)))
            at += h * w
        columns["mask"] = masks
    if "attributes" in header:
        columns["attributes"] = [tuple(Attribute(*a) for a in row) for row in header["attributes"]]
    return Detections(label=header.get("label"), data=header.get("data", {}), **columns)
