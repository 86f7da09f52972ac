"""The fused kernel in Triton; imported only where Triton is installed. See ``cuda_table.ROW`` for the table."""

from __future__ import annotations

import triton
import triton.language as tl

from gstinfer.preprocess.cuda_kernels import index
from gstinfer.preprocess.cuda_table import ROW_BYTES

__all__ = ["fused"]

_WORDS = tl.constexpr(ROW_BYTES // 4)
_SHIFT = tl.constexpr(index("shift"))
_PITCH = tl.constexpr(index("pitch"))
_STEP = tl.constexpr(index("step"))
_LOW = tl.constexpr(index("low"))
_HIGH = tl.constexpr(index("high"))
_CONTENT = tl.constexpr(index("content"))
_AFFINE = tl.constexpr(index("affine"))
_MATRIX = tl.constexpr(index("matrix"))
_OFFSET = tl.constexpr(index("offset"))
_MUL = tl.constexpr(index("mul"))
_ADD = tl.constexpr(index("add"))
_PAD = tl.constexpr(index("pad"))


@triton.jit
def _round(value):
    # Adding 1.5 * 2**23 leaves no bits for a fraction: round to nearest, ties to even, as rint does.
    return (value + 12582912.0) - 12582912.0


@triton.jit
def _below(value):
    """The integer below a value >= 0, and the distance to it; a whole number may give the one before it and 1."""
    moved = (value - 0.5) + 12582912.0
    return moved.to(tl.int32, bitcast=True) - 0x4B400000, value - (moved - 12582912.0)


@triton.jit
def _real(byte):
    # 0x4B000000 is 2**23, whose last bits count ones: cheaper than the converter, which runs at an eighth of the rate.
    return (byte.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0


@triton.jit
def _fetch(pointer, pitch, step, x, y):
    # No mask: positions are held inside the picture, also for pixels that turn out to be padding.
    return _real(tl.load(pointer + (y * pitch + x * step)))


@triton.jit
def _chroma(p1, p2, pitch, step, x, y, PAIRED: tl.constexpr):
    """U and V; one load where they lie side by side."""
    if PAIRED:
        both = tl.load(p1.to(tl.pointer_type(tl.uint16)) + ((y * pitch + x * step) >> 1))
        return _real(both & 255), _real(both >> 8)
    else:
        return _fetch(p1, pitch, step, x, y), _fetch(p2, pitch, step, x, y)


@triton.jit
def _color(row, p, q, r):
    """A colour 0..255, rounded, plus 1.5 * 2**23."""
    return tl.minimum(tl.maximum(row[0] * p + row[1] * q + row[2] * r + row[3], 0.0), 255.0) + 12582912.0


@triton.jit
def _channel(rf, k: tl.constexpr):
    """Matrix row, offset, factor, addend and padding of one channel of the output."""
    matrix = rf + _MATRIX + 3 * k
    first = tl.load(matrix), tl.load(matrix + 1), tl.load(matrix + 2), tl.load(rf + _OFFSET + k)
    return first + (tl.load(rf + _MUL + k), tl.load(rf + _ADD + k), tl.load(rf + _PAD + k))  # noqa: RUF005


@triton.jit
def _value(row, a, b, c, d, ax, ay, inside, INTEGER: tl.constexpr, BYTE: tl.constexpr):
    first, second = _color(row, a[0], a[1], a[2]), _color(row, b[0], b[1], b[2])
    upper = (first - 12582912.0) + (second - first) * ax
    first, second = _color(row, c[0], c[1], c[2]), _color(row, d[0], d[1], d[2])
    lower = (first - 12582912.0) + (second - first) * ax
    value = _round(upper + (lower - upper) * ay) * row[4] + row[5]
    value = tl.where(inside, value, row[6])
    if INTEGER:
        value = _round(value)
    if BYTE:
        value = tl.minimum(tl.maximum(value, 0.0), 255.0)
    if INTEGER:
        value = value.to(tl.int32)
    return value


@triton.jit
def fused(
    table,
    out,
    width,
    height,
    stride_n,
    stride_c,
    stride_y,
    stride_x,
    CHANNELS: tl.constexpr,
    INTEGER: tl.constexpr,
    BYTE: tl.constexpr,
    PAIRED: tl.constexpr,
    BX: tl.constexpr,
    BY: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Each program makes BX x (BY * STEPS) pixels of one picture, BY rows at a time.

    ``table``: int64 view of the rows; ``out`` in any of the output types, strides in elements. PAIRED: all pictures have U
    and V side by side at even addresses.
    """
    n = tl.program_id(2)
    r8 = table + n * (_WORDS // 2)
    ri = r8.to(tl.pointer_type(tl.int32))
    rf = r8.to(tl.pointer_type(tl.float32))
    left = tl.load(ri + _CONTENT)
    top = tl.load(ri + _CONTENT + 1)
    right = tl.load(ri + _CONTENT + 2)
    bottom = tl.load(ri + _CONTENT + 3)
    p0 = tl.load(r8).to(tl.pointer_type(tl.uint8))
    p1 = tl.load(r8 + 1).to(tl.pointer_type(tl.uint8))
    p2 = tl.load(r8 + 2).to(tl.pointer_type(tl.uint8))
    pitch0 = tl.load(ri + _PITCH)
    pitch1 = tl.load(ri + _PITCH + 1)
    step0 = tl.load(ri + _STEP)
    step1 = tl.load(ri + _STEP + 1)
    s = tl.load(ri + _SHIFT)
    low_x = tl.load(ri + _LOW).to(tl.float32)
    low_y = tl.load(ri + _LOW + 1).to(tl.float32)
    high_x = tl.load(ri + _HIGH)
    high_y = tl.load(ri + _HIGH + 1)
    axx = tl.load(rf + _AFFINE)
    axy = tl.load(rf + _AFFINE + 1)
    axc = tl.load(rf + _AFFINE + 2)
    ayx = tl.load(rf + _AFFINE + 3)
    ayy = tl.load(rf + _AFFINE + 4)
    ayc = tl.load(rf + _AFFINE + 5)
    row0 = _channel(rf, 0)
    row1 = _channel(rf, CHANNELS // 2)
    row2 = _channel(rf, CHANNELS - 1)

    first_x = tl.program_id(0) * BX
    first_y = tl.program_id(1) * (BY * STEPS)
    ox = first_x + tl.arange(0, BX)[None, :]
    fx = ox.to(tl.float32)
    base = out + n.to(tl.int64) * stride_n + ox * stride_x
    for step in range(STEPS):
        block_y = first_y + step * BY
        oy = block_y + tl.arange(0, BY)[:, None]
        target = base + oy * stride_y
        stored = (ox < width) & (oy < height)
        if (block_y >= bottom) | (block_y + BY <= top) | (first_x >= right) | (first_x + BX <= left):
            # Nothing but padding here.
            zero = tl.zeros((BY, BX), tl.float32)
            v0, v1, v2 = zero + row0[6], zero + row1[6], zero + row2[6]
            if INTEGER:
                v0, v1, v2 = v0.to(tl.int32), v1.to(tl.int32), v2.to(tl.int32)
        else:
            inside = (ox >= left) & (oy >= top) & (ox < right) & (oy < bottom)
            fy = oy.to(tl.float32)
            x = tl.minimum(tl.maximum(axx * fx + axy * fy + axc, low_x), high_x.to(tl.float32))
            y = tl.minimum(tl.maximum(ayx * fx + ayy * fy + ayc, low_y), high_y.to(tl.float32))
            x0, ax = _below(x)
            y0, ay = _below(y)
            x1 = tl.minimum(x0 + 1, high_x)
            y1 = tl.minimum(y0 + 1, high_y)
            a0 = _fetch(p0, pitch0, step0, x0, y0)
            b0 = _fetch(p0, pitch0, step0, x1, y0)
            c0 = _fetch(p0, pitch0, step0, x0, y1)
            d0 = _fetch(p0, pitch0, step0, x1, y1)
            a1, a2 = _chroma(p1, p2, pitch1, step1, x0 >> s, y0 >> s, PAIRED)
            b1, b2 = _chroma(p1, p2, pitch1, step1, x1 >> s, y0 >> s, PAIRED)
            c1, c2 = _chroma(p1, p2, pitch1, step1, x0 >> s, y1 >> s, PAIRED)
            d1, d2 = _chroma(p1, p2, pitch1, step1, x1 >> s, y1 >> s, PAIRED)
            a, b, c, d = (a0, a1, a2), (b0, b1, b2), (c0, c1, c2), (d0, d1, d2)
            v0 = _value(row0, a, b, c, d, ax, ay, inside, INTEGER, BYTE)
            v1 = v0
            v2 = v0
            if CHANNELS == 3:
                v1 = _value(row1, a, b, c, d, ax, ay, inside, INTEGER, BYTE)
                v2 = _value(row2, a, b, c, d, ax, ay, inside, INTEGER, BYTE)
        tl.store(target, v0.to(out.dtype.element_ty), mask=stored)
        if CHANNELS == 3:
            tl.store(target + stride_c, v1.to(out.dtype.element_ty), mask=stored)
            tl.store(target + 2 * stride_c, v2.to(out.dtype.element_ty), mask=stored)
