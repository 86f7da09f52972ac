"""What a ``.tflite`` file carries besides the network, and the habits of Ultralytics' exports of that format."""

from __future__ import annotations

import ast
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.heads.facts import class_names, ends_itself, input_size, literal
from gstinfer.models.files import json_texts, texts

__all__ = ["Exported", "normalization", "read_metadata"]

NORMALIZATION = 1
"""Number of NormalizationOptions among the kinds of ProcessUnit, in TensorFlow's metadata_schema.fbs."""


def read_metadata(path: Path) -> tuple[dict[str, str], tuple[str, ...] | None]:
    """Metadata and labels from the zip archive that may follow the network in its file.

    Ultralytics adds ``metadata.json``, or in older releases one file with a Python literal; TensorFlow's metadata writer
    adds a file of labels, one a line.
    """
    if not zipfile.is_zipfile(path):
        return {}, None
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}
    for name, content in files.items():
        if name.endswith(".json") and (found := json_texts(content)):
            return found, None
        try:
            found = texts(ast.literal_eval(content.strip()))
        except (ValueError, SyntaxError, MemoryError):
            continue
        if found:
            return found, None
    lists = [content.splitlines() for name, content in files.items() if name.endswith(".txt")]
    return {}, tuple(line.strip() for line in lists[0]) if len(lists) == 1 and lists[0] else None


class _Table:
    """A table of a FlatBuffer: fields by their number in the schema."""

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self.data = data
        self.at = self._u32(0) if at is None else at

    def _u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.data, at)[0])

    def _field(self, number: int) -> int | None:
        """Where a field lies, or None where it is absent."""
        (back,) = struct.unpack_from("<i", self.data, self.at)
        table = self.at - back
        (size,) = struct.unpack_from("<H", self.data, table)
        if 4 + 2 * number >= size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, table + 4 + 2 * number)
        return self.at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        at = self._field(field)
        return 0 if at is None else int(struct.unpack_from(kind, self.data, at)[0])

    def table(self, field: int) -> _Table | None:
        at = self._field(field)
        return None if at is None else _Table(self.data, at + self._u32(at))

    def _vector(self, field: int) -> tuple[int, int]:
        """(first byte, length) of a vector."""
        at = self._field(field)
        if at is None:
            return 0, 0
        start = at + self._u32(at)
        return start + 4, self._u32(start)

    def bytes(self, field: int) -> bytes:
        start, count = self._vector(field)
        return self.data[start : start + count]

    def floats(self, field: int) -> tuple[float, ...]:
        start, count = self._vector(field)
        return struct.unpack_from(f"<{count}f", self.data, start)

    def tables(self, field: int) -> list[_Table]:
        start, count = self._vector(field)
        return [_Table(self.data, at + self._u32(at)) for at in range(start, start + 4 * count, 4)]


def normalization(path: Path) -> dict[str, Any]:
    """How the file says that pixels of 0..255 become the numbers of its first input: ``scale``, ``mean`` and ``std``.

    TensorFlow's metadata writer leaves it in the buffer TFLITE_METADATA; empty where there is none. The numbers of the
    fields are those of TensorFlow's schema.fbs and metadata_schema.fbs.
    """
    try:
        model = _Table(path.read_bytes())
        stored = next((item for item in model.tables(6) if item.bytes(0) == b"TFLITE_METADATA"), None)
        if stored is None:
            return {}
        graphs = _Table(model.tables(4)[stored.number(1, "<I")].bytes(0)).tables(3)
        units = graphs[0].tables(2)[0].tables(4)
        options = next((u.table(1) for u in units if u.number(0, "<B") == NORMALIZATION), None)
        if options is None:
            return {}
        mean, std = options.floats(0), options.floats(1)
    except (struct.error, IndexError):
        return {}
    return {"scale": 1.0, "mean": mean, "std": std} if mean and std else {}


class Exported:
    """Outputs of an Ultralytics export, brought into the form of its other formats.

    Boxes and keypoints are fractions of the input there, and maps lie channels last when the input does. Files that
    suppress overlaps themselves give pixels when they are channels-first, and fractions otherwise.

    Args:
        info: The network as the file says.

    Attributes:
        info: The network as its outputs are after ``outputs``.
    """

    def __init__(self, info: NetworkInfo) -> None:
        self._size = input_size(info)
        self._last = info.inputs[0].shape[-1] in (1, 3)
        self._ends = ends_itself(info)
        self._task = info.metadata.get("task")
        self._detr = "rtdetr" in info.metadata.get("head", "").lower()
        keypoints = literal(info, "kpt_shape")
        self._dims = int(keypoints[1]) if isinstance(keypoints, (list, tuple)) and len(keypoints) == 2 else 3
        self._classes = len(class_names(info) or ())
        self.info = replace(info, outputs=tuple(self._described(item) for item in info.outputs))

    def _turns(self, axes: int) -> bool:
        return self._last and axes == 4 and self._task in ("segment", "semantic")

    def _described(self, item: TensorInfo) -> TensorInfo:
        if not self._turns(len(item.shape)):
            return item
        batch, height, width, channels = item.shape
        return TensorInfo(item.name, (batch, channels, height, width), item.dtype)

    def outputs(self, found: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The arrays with boxes in input pixels and maps channels-first."""
        return {name: self._output(value) for name, value in found.items()}

    def _output(self, value: NDArray[Any]) -> NDArray[Any]:
        if self._turns(value.ndim):
            return value.transpose(0, 3, 1, 2)
        pixels = self._ends and not self._last
        if value.ndim != 3 or self._size is None or self._detr or pixels or self._task == "semantic":
            return value
        width, height = self._size
        value = np.array(value, np.float32)
        columns = value.transpose(0, 2, 1) if self._ends else value
        starts = {0: width, 1: height, 2: width, 3: height}
        for start, side in starts.items():
            columns[:, start] *= side
        if self._task == "pose":
            first = 6 if self._ends else 4 + self._classes
            columns[:, first :: self._dims] *= width
            columns[:, first + 1 :: self._dims] *= height
        return value
