"""The drawing kernel, twice over one table: in Triton, and in CUDA C for NVRTC through CuPy. See ``cuda_table``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gstinfer.overlay.cuda_table import (
    BOX,
    COVER,
    HEAD,
    MAP,
    OPERATION,
    OPERATION_WORDS,
    TILE,
    TINT,
    index,
    operation_index,
)

__all__ = ["CUDA_SOURCE", "triton_kernel"]


@lru_cache(maxsize=1)
def triton_kernel() -> Any:
    """The kernel for ``[columns, rows, planes](table, BX, BY)``."""
    from gstinfer.overlay import cuda_triton

    return cuda_triton.draw


CUDA_SOURCE = (
    "".join(f"#define {n} {v}\n" for n, v in (("BOX", BOX), ("TINT", TINT), ("COVER", COVER), ("TILE", TILE), ("MAP", MAP)))
    + f"#define HEAD_WORDS {HEAD.itemsize // 4}\n#define OPERATION_WORDS {OPERATION_WORDS}\n"
    + "".join(f"#define AT_{n.upper()} {index(n)}\n" for n in HEAD.names or ())
    + "".join(f"#define OP_{n.upper()} {operation_index(n)}\n" for n in OPERATION.names or ())
    + r"""
extern "C" __global__ void draw(const int* table) {
    int p = blockIdx.z, sample = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int width = table[AT_WIDTH + p], height = table[AT_HEIGHT + p], channels = table[AT_CHANNELS + p];
    if (y >= height || sample >= width * channels) return;
    int x = sample / channels, k = sample - x * channels, s = table[AT_SHIFT + p];
    unsigned char* at = (unsigned char*)((const long long*)table)[p] + (long long)y * table[AT_PITCH + p]
        + (long long)x * table[AT_STEP + p] + k * table[AT_GAP + p];
    const unsigned char* data = (const unsigned char*)table + table[AT_DATA];
    float before = *at, value = before;
    for (int n = 0, count = table[AT_COUNT]; n < count; ++n) {
        const int* op = table + HEAD_WORDS + n * OPERATION_WORDS;
        const int* box = op + OP_BOX;
        int left = box[0] >> s, top = box[1] >> s, right = (box[2] + s) >> s, bottom = (box[3] + s) >> s;
        if (!(op[OP_PLANES] >> p & 1) || x < left || x >= right || y < top || y >= bottom) continue;
        int kind = op[OP_KIND];
        float target = (float)(op[OP_VALUE + p] >> 8 * k & 255), share = 1.f;
        if (kind == BOX) {
            int border = op[OP_BORDER];
            if (border && x >= (box[0] + border + s) >> s && x < (box[2] - border) >> s
                && y >= (box[1] + border + s) >> s && y < (box[3] - border) >> s) continue;
        } else if (kind == TINT) {
            int column = (x << s) - box[0], line = (y << s) - box[1];
            if (column < 0 || column >= box[2] - box[0] || line < 0 || line >= box[3] - box[1]) continue;
            if (!data[op[OP_AT] + line * op[OP_COLUMNS] + column]) continue;
            share = op[OP_SHARE] / 65536.f;
        } else if (kind == MAP) {
            int columns = op[OP_COLUMNS];
            int number = data[op[OP_AT] + y * op[OP_ROWS] / height * columns + x * columns / width];
            if (!number) continue;
            target = (float)(((const int*)(data + op[OP_AT + 1]))[256 * p + number] >> 8 * k & 255);
            share = op[OP_SHARE] / 65536.f;
        } else {
            int place = (y - top) * (right - left) + x - left;
            if (kind == COVER) share = data[op[OP_AT + p] + place] / 255.f;
            else target = data[op[OP_AT + p] + place * channels + k];
        }
        value = rintf(value + (target - value) * share);
    }
    if (value != before) {
        *at = (unsigned char)value;
        if (table[AT_LOW]) at[-1] = 0;
    }
}
"""
)
