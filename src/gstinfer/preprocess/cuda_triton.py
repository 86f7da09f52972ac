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
def _real(byte):
    # 0x4B000000 is 2**23, whose last bits count ones: cheaper than the converter, which runs at an eighth of the rate.
    return (byte.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0


@triton.jit
def _fetch(pointer, pitch, step, x, y, mask):
    return _real(tl.load(pointer + (y * pitch + x * step), mask=mask, other=0))


@triton.jit
def _chroma(p1, p2, pitch, step, x, y, mask, PAIRED: tl.constexpr):
    """U and V; one load where they lie side by side."""
    if PAIRED:
        both = tl.load(p1.to(tl.pointer_type(tl.uint16)) + ((y * pitch + x * step) >> 1), mask=mask, other=0)
        return _real(both & 255), _real(both >> 8)
    else:
        return _fetch(p1, pitch, step, x, y, mask), _fetch(p2, pitch, step, x, y, mask)


@triton.jit
def _color(rf, k: tl.constexpr, p, q, r):
    value = tl.load(rf + _MATRIX + 3 * k) * p + tl.load(rf + _MATRIX + 3 * k + 1) * q
    value = value + tl.load(rf + _MATRIX + 3 * k + 2) * r + tl.load(rf + _OFFSET + k)
    return _round(tl.minimum(tl.maximum(value, 0.0), 255.0))


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
):
    """``table``: int64 view of the rows; ``out`` in any of the output types, strides in elements. PAIRED: all pictures have
    U and V side by side at even addresses."""
    n = tl.program_id(2)
    r8 = table + n * (_WORDS // 2)
    ri = r8.to(tl.pointer_type(tl.int32))
    rf = r8.to(tl.pointer_type(tl.float32))
    ox = tl.program_id(0) * BX + tl.arange(0, BX)[None, :]
    oy = tl.program_id(1) * BY + tl.arange(0, BY)[:, None]
    left = tl.load(ri + _CONTENT)
    top = tl.load(ri + _CONTENT + 1)
    right = tl.load(ri + _CONTENT + 2)
    bottom = tl.load(ri + _CONTENT + 3)
    target = out + n.to(tl.int64) * stride_n + (oy * stride_y + ox * stride_x)
    stored = (ox < width) & (oy < height)
    first_x = tl.program_id(0) * BX
    first_y = tl.program_id(1) * BY
    if (first_y >= bottom) | (first_y + BY <= top) | (first_x >= right) | (first_x + BX <= left):
        # Nothing but padding here.
        for k in tl.static_range(CHANNELS):
            value = tl.full((BY, BX), 0.0, tl.float32) + tl.load(rf + _PAD + k)
            if INTEGER:
                value = value.to(tl.int32)
            tl.store(target + k * stride_c, value.to(out.dtype.element_ty), mask=stored)
        return
    inside = (ox >= left) & (oy >= top) & (ox < right) & (oy < bottom)
    p0 = tl.load(r8).to(tl.pointer_type(tl.uint8))
    p1 = tl.load(r8 + 1).to(tl.pointer_type(tl.uint8))
    p2 = tl.load(r8 + 2).to(tl.pointer_type(tl.uint8))
    pitch0 = tl.load(ri + _PITCH)
    pitch1 = tl.load(ri + _PITCH + 1)
    step0 = tl.load(ri + _STEP)
    step1 = tl.load(ri + _STEP + 1)
    high_x = tl.load(ri + _HIGH)
    high_y = tl.load(ri + _HIGH + 1)
    fx = ox.to(tl.float32)
    fy = oy.to(tl.float32)
    x = tl.load(rf + _AFFINE) * fx + tl.load(rf + _AFFINE + 1) * fy + tl.load(rf + _AFFINE + 2)
    y = tl.load(rf + _AFFINE + 3) * fx + tl.load(rf + _AFFINE + 4) * fy + tl.load(rf + _AFFINE + 5)
    x = tl.minimum(tl.maximum(x, tl.load(ri + _LOW).to(tl.float32)), high_x.to(tl.float32))
    y = tl.minimum(tl.maximum(y, tl.load(ri + _LOW + 1).to(tl.float32)), high_y.to(tl.float32))
    x0 = x.to(tl.int32)
    y0 = y.to(tl.int32)
    x1 = tl.minimum(x0 + 1, high_x)
    y1 = tl.minimum(y0 + 1, high_y)
    ax = x - x0.to(tl.float32)
    ay = y - y0.to(tl.float32)
    s = tl.load(ri + _SHIFT)
    a0 = _fetch(p0, pitch0, step0, x0, y0, inside)
    b0 = _fetch(p0, pitch0, step0, x1, y0, inside)
    c0 = _fetch(p0, pitch0, step0, x0, y1, inside)
    d0 = _fetch(p0, pitch0, step0, x1, y1, inside)
    a1, a2 = _chroma(p1, p2, pitch1, step1, x0 >> s, y0 >> s, inside, PAIRED)
    b1, b2 = _chroma(p1, p2, pitch1, step1, x1 >> s, y0 >> s, inside, PAIRED)
    c1, c2 = _chroma(p1, p2, pitch1, step1, x0 >> s, y1 >> s, inside, PAIRED)
    d1, d2 = _chroma(p1, p2, pitch1, step1, x1 >> s, y1 >> s, inside, PAIRED)
    for k in tl.static_range(CHANNELS):
        upper = _color(rf, k, a0, a1, a2) * (1 - ax) + _color(rf, k, b0, b1, b2) * ax
        lower = _color(rf, k, c0, c1, c2) * (1 - ax) + _color(rf, k, d0, d1, d2) * ax
        value = _round(upper * (1 - ay) + lower * ay)
        value = value * tl.load(rf + _MUL + k) + tl.load(rf + _ADD + k)
        value = tl.where(inside, value, tl.load(rf + _PAD + k))
        if INTEGER:
            value = _round(value)
        if BYTE:
            value = tl.minimum(tl.maximum(value, 0.0), 255.0)
        if INTEGER:
            value = value.to(tl.int32)
        tl.store(target + k * stride_c, value.to(out.dtype.element_ty), mask=stored)
