"""What the drawing kernel is told: a head that describes the picture, a list of operations, and the bytes these refer to.

The kernel knows five operations and no pixel formats. Each has a rectangle in pixels of the picture, one value per plane,
and changes a sample to ``round(before + (target - before) * share)``, in the order of the list. Chroma that is half-size
takes the rectangle halved, rounded outwards. ``emulate`` does the same in NumPy.
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.image import FORMATS, Image
from gstinfer.preprocess.cuda_table import plane_layout

__all__ = [
    "BOX",
    "COVER",
    "HEAD",
    "MAP",
    "OPERATION",
    "OPERATION_WORDS",
    "TILE",
    "TINT",
    "WHOLE",
    "Drawing",
    "emulate",
    "head_of",
    "index",
    "operation",
    "operation_index",
]

BOX, TINT, COVER, TILE, MAP = range(5)
"""Kinds of operations.

``BOX``: a border of ``border`` pixels, drawn inwards, or with 0 the whole rectangle. ``TINT``: ``share`` of the value where
a bitmap, ``columns`` bytes a row, is not 0; chroma looks at every second pixel. ``COVER``: the value, as far as a plane's
own coverage of 0..255 says. ``TILE``: a plane's own bytes, as they are. ``MAP``: ``share`` of ``palette[n]`` where a map of
``columns`` x ``rows`` bytes that spans the picture says n; 0 is left.
"""

HEAD = np.dtype(
    [
        ("plane", "<i8", 3),
        ("pitch", "<i4", 3),
        ("step", "<i4", 3),
        ("gap", "<i4", 3),
        ("width", "<i4", 3),
        ("height", "<i4", 3),
        ("channels", "<i4", 3),
        ("shift", "<i4", 3),
        ("count", "<i4"),
        ("data", "<i4"),
        ("low", "<i4"),
        ("unused", "<i4", 2),
    ]
)
"""The picture. ``pitch``, ``step``, ``gap``: bytes between rows, pixels and channels. ``width``, ``height``: of a plane, in
its pixels. ``shift``: 1 where a plane is half-size. ``count``: operations; right behind it ``data``: where their bytes
begin. ``low``: 1 where samples are the upper bytes of words whose lower bytes become 0 with them.
"""

OPERATION = np.dtype(
    [
        ("kind", "<i4"),
        ("planes", "<i4"),
        ("box", "<i4", 4),
        ("border", "<i4"),
        ("columns", "<i4"),
        ("rows", "<i4"),
        ("value", "<i4", 3),
        ("at", "<i4", 3),
        ("share", "<i4"),
    ]
)
"""``planes``: one bit per plane. ``box``: x1, y1, x2, y2. ``value``: a plane's channels, the first in the lowest byte.
``at``: offsets of bytes behind ``HEAD["data"]``, per plane (``TINT``: the first only; ``MAP``: numbers, then palette).
``share``: in units of 1 / ``WHOLE``.
"""

WHOLE = 1 << 16
OPERATION_WORDS = OPERATION.itemsize // 4
_ROW = struct.Struct("<9i3I4i")

Data = bytes | memoryview
ALIGN = 16
"""Bytes that data is aligned to, so that a palette may be read as words."""


def index(name: str) -> int:
    """Position of a field of the head, counted in 4-byte words."""
    return int(HEAD.fields[name][1]) // 4  # type: ignore[index]


def operation_index(name: str) -> int:
    """Position of a field of an operation, counted in 4-byte words."""
    return int(OPERATION.fields[name][1]) // 4  # type: ignore[index]


def head_of(image: Image) -> bytearray:
    """The head of a picture, without operations.

    Raises:
        ConfigError: A format that is not drawn on by the kernel.
    """
    addresses, strides = zip(*map(plane_layout, image.planes))
    head = bytearray(_head(image.format, image.width, image.height, strides))
    struct.pack_into(f"<{len(addresses)}q", head, 4 * index("plane"), *addresses)
    return head


@lru_cache(maxsize=256)
def _head(format: str, width: int, height: int, strides: tuple[tuple[int, ...], ...]) -> bytes:
    """What the heads of all pictures of one size and pitch have in common."""
    layout = FORMATS[format]
    if not layout.is_plain:
        raise ConfigError(
            f"pixel format {layout.name} is not drawn on in CUDA memory",
            hint="put cudaconvert ! video/x-raw(memory:CUDAMemory),format=NV12 before pyoverlay",
        )
    head = np.zeros((), HEAD)
    for number, (stride, shape) in enumerate(zip(strides, layout.plane_shapes(width, height))):
        head["pitch"][number], head["step"][number] = stride[:2]
        head["height"][number], head["width"][number] = shape[:2]
        head["channels"][number] = shape[2] if len(shape) == 3 else 1
        head["gap"][number] = stride[2] if len(stride) == 3 else 1
        head["shift"][number] = int(layout.is_yuv and number > 0)
    # A grey or luma sample is one byte wide: a step of two means words of P010.
    head["low"] = int(layout.kind in ("nv", "planar") and head["step"][0] == 2)
    return head.tobytes()


def operation(
    kind: int,
    planes: int,
    box: tuple[int, int, int, int],
    value: tuple[int, int, int],
    at: tuple[int, int, int] = (0, 0, 0),
    border: int = 0,
    grid: tuple[int, int] = (0, 0),
    share: int = WHOLE,
) -> bytes:
    """One operation; see ``OPERATION``."""
    return _ROW.pack(kind, planes, *box, border, *grid, *value, *at, share)


class Drawing:
    """A list of operations in the making.

    Attributes:
        rows: What ``operation`` gives, one behind the other.
        size: Bytes of their data so far.
    """

    __slots__ = ("_kept", "_parts", "rows", "size")

    def __init__(self) -> None:
        self.rows = bytearray()
        self.size = 0
        self._parts: list[tuple[int, Data]] = []
        self._kept: dict[Data, int] = {}

    def __len__(self) -> int:
        return len(self.rows) // OPERATION.itemsize

    @property
    def bytes(self) -> int:
        """Size of the packed table."""
        return HEAD.itemsize + len(self.rows) + self.size

    def data(self, values: NDArray[np.uint8]) -> int:
        """Adds bytes, contiguous ones; returns their offset."""
        return self._add(values.reshape(-1).data)

    def kept(self, values: Data) -> int:
        """The same for ``bytes``, which are added only once."""
        offset = self._kept.get(values)
        if offset is None:
            offset = self._kept[values] = self._add(values)
        return offset

    def _add(self, values: Data) -> int:
        offset = self.size
        self._parts.append((offset, values))
        self.size += -(-len(values) // ALIGN) * ALIGN
        return offset

    def pack(self, head: bytearray, out: NDArray[np.uint8]) -> None:
        """Writes the table to the start of ``out``, which has ``bytes`` bytes at least.

        Args:
            head: See ``head_of``; its ``count`` and ``data`` are set.
            out: Contiguous.
        """
        first, view = HEAD.itemsize + len(self.rows), out.data
        struct.pack_into("<2i", head, 4 * index("count"), len(self), first)
        view[: HEAD.itemsize] = head
        view[HEAD.itemsize : first] = self.rows
        for offset, values in self._parts:
            view[first + offset : first + offset + len(values)] = values


def emulate(table: NDArray[np.uint8]) -> None:
    """What the kernel does, in NumPy over host pointers: the oracle of its tests."""
    head = table[: HEAD.itemsize].view(HEAD)[0]
    first, data = HEAD.itemsize, table[int(head["data"]) :]
    rows = table[first : first + int(head["count"]) * OPERATION.itemsize].view(OPERATION)
    for plane in range(3):
        if head["plane"][plane]:
            _emulate_plane(head, plane, rows, data)


def _emulate_plane(head: Any, plane: int, rows: NDArray[np.void], data: NDArray[np.uint8]) -> None:
    height, width, channels, shift = (int(head[name][plane]) for name in ("height", "width", "channels", "shift"))
    strides = tuple(int(head[name][plane]) for name in ("pitch", "step", "gap"))
    low = int(head["low"])
    end = (height - 1) * strides[0] + (width - 1) * strides[1] + (channels - 1) * strides[2] + 1
    memory = np.asarray((ctypes.c_uint8 * (end + low)).from_address(int(head["plane"][plane]) - low), np.uint8)
    shape = (height, width, channels)
    pixels = np.lib.stride_tricks.as_strided(memory[low:], shape, strides, writeable=True)
    before = pixels.copy()
    value = before.astype(np.float32)
    for row in rows:
        x1, y1, x2, y2 = (int(v) for v in row["box"])
        left, right = (min(max(0, v >> shift), width) for v in (x1, x2 + shift))
        top, bottom = (min(max(0, v >> shift), height) for v in (y1, y2 + shift))
        if int(row["planes"]) >> plane & 1:
            y, x = np.mgrid[top:bottom, left:right]
            share, target = _operation(row, plane, shift, x, y, (width, height, channels), data)
            there = value[top:bottom, left:right]
            there[...] = np.rint(there + (target - there) * share[..., None].astype(np.float32))
    pixels[...] = value
    if low:
        lower = np.lib.stride_tricks.as_strided(memory, shape, strides, writeable=True)
        lower[pixels != before] = 0


def _operation(
    row: Any, plane: int, shift: int, x: Any, y: Any, size: tuple[int, int, int], data: NDArray[np.uint8]
) -> tuple[Any, Any]:
    """Share ``[H,W]`` and target ``[H,W,C]`` of an operation on a plane."""
    kind, border = int(row["kind"]), int(row["border"])
    x1, y1, x2, y2 = (int(v) for v in row["box"])
    left, top, right, bottom = x1 >> shift, y1 >> shift, x2 + shift >> shift, y2 + shift >> shift
    within = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    width, height, channels = size
    target: Any = _channels(np.int64(row["value"][plane]), channels)
    share = int(row["share"]) / 65536
    if kind == BOX:
        inner_left, inner_top = x1 + border + shift >> shift, y1 + border + shift >> shift
        inner_right, inner_bottom = x2 - border >> shift, y2 - border >> shift
        inner = (x >= inner_left) & (x < inner_right) & (y >= inner_top) & (y < inner_bottom)
        return within & ~(inner & (border > 0)), target
    if kind == TINT:
        column, line = (x << shift) - x1, (y << shift) - y1
        within = within & (column >= 0) & (column < x2 - x1) & (line >= 0) & (line < y2 - y1)
        where = np.where(within, line * int(row["columns"]) + column, 0) + int(row["at"][0])
        return (within & (data[where] != 0)) * share, target
    if kind == MAP:
        columns, lines = int(row["columns"]), int(row["rows"])
        number = data[y * lines // height * columns + x * columns // width + int(row["at"][0])]
        start = int(row["at"][1]) + 1024 * plane
        palette = data[start : start + 1024].view("<i4")
        return (number != 0) * share, _channels(palette[number].astype(np.int64), channels)
    place = np.where(within, (y - top) * (right - left) + x - left, 0)
    if kind == COVER:
        return within * (data[place + int(row["at"][plane])] / np.float32(255)), target
    bytes_of = place[..., None] * channels + np.arange(channels) + int(row["at"][plane])
    return within, data[bytes_of].astype(np.float32)


def _channels(value: Any, channels: int) -> NDArray[np.float32]:
    return (np.asarray(value)[..., None] >> 8 * np.arange(channels) & 255).astype(np.float32)
