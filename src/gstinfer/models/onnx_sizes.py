"""Makes the fixed sizes of an ONNX file free, for networks that work at any size but were exported at one.

Only the few messages on the way to the shapes are read, by the wire format of protocol buffers, so that the ``onnx`` package
is not needed. The field numbers are those of ``onnx.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["free_sizes"]

GRAPH, INPUT, OUTPUT, INITIALIZER = 7, 11, 12, 5
"""``ModelProto.graph`` and fields of ``GraphProto``."""
NAME, TYPE, TENSOR, SHAPE, DIM = 1, 2, 1, 2, 1
"""``ValueInfoProto.name`` and ``type``, ``TypeProto.tensor_type``, its ``shape`` and that one's ``dim``."""
TENSOR_NAME, DIM_PARAM = 8, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, bytes]
"""Number, wire type and payload."""


def free_sizes(raw: bytes) -> bytes:
    """A model whose pictures, and the maps made of them, have any batch, height and width.

    Args:
        raw: The file.

    Raises:
        ValueError: It is no model.
    """
    return _edit(raw, GRAPH, _graph)


def _graph(raw: bytes) -> bytes:
    weights = {_bytes(body, TENSOR_NAME) for number, _, body in _fields(raw) if number == INITIALIZER}

    def value(body: bytes) -> bytes:
        return body if _bytes(body, NAME) in weights else _edit(body, TYPE, _type)

    return _edit(_edit(raw, INPUT, value), OUTPUT, value)


def _type(raw: bytes) -> bytes:
    return _edit(raw, TENSOR, lambda tensor: _edit(tensor, SHAPE, _shape))


def _shape(raw: bytes) -> bytes:
    dims = [body for number, _, body in _fields(raw) if number == DIM]
    if len(dims) != 4:
        return raw
    # The axis of the channels stays: the second, or the last where that one is 1 or 3.
    channels = 3 if dims[3] in (b"\x08\x01", b"\x08\x03") and dims[1] not in (b"\x08\x01", b"\x08\x03") else 1
    freed = [
        body if axis == channels else _field(DIM_PARAM, BYTES, f"free{axis}".encode()) for axis, body in enumerate(dims)
    ]
    return b"".join(_field(DIM, BYTES, body) for body in freed)


def _edit(raw: bytes, wanted: int, change: Callable[[bytes], bytes]) -> bytes:
    """The message with every field of a number changed."""
    return b"".join(
        _field(number, kind, change(body) if number == wanted and kind == BYTES else body)
        for number, kind, body in _fields(raw)
    )


def _bytes(raw: bytes, wanted: int) -> bytes:
    return next((body for number, kind, body in _fields(raw) if number == wanted and kind == BYTES), b"")


def _fields(raw: bytes) -> Iterator[Field]:
    at = 0
    while at < len(raw):
        key, at = _read_varint(raw, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            _, end = _read_varint(raw, at)
        elif kind == BYTES:
            length, at = _read_varint(raw, at)
            end = at + length
        elif kind in (FIXED32, FIXED64):
            end = at + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError(f"wire type {kind} at byte {at}")
        if end > len(raw):
            raise ValueError(f"a field ends at byte {end} of {len(raw)}")
        yield number, kind, raw[at:end]
        at = end


def _field(number: int, kind: int, body: bytes) -> bytes:
    head = _varint(number << 3 | kind)
    return head + _varint(len(body)) + body if kind == BYTES else head + body


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw):
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut short")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
