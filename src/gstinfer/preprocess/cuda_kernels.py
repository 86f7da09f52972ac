"""The fused kernel, twice over one table: in Triton, and in CUDA C for NVRTC through CuPy. See ``cuda_table.ROW``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gstinfer.preprocess.cuda_table import ROW, ROW_BYTES

__all__ = ["CUDA_SOURCE", "index", "triton_kernel"]


def index(name: str) -> int:
    """Position of a field in a row, counted in 4-byte words."""
    return int(ROW.fields[name][1]) // 4  # type: ignore[index]


@lru_cache(maxsize=1)
def triton_kernel() -> Any:
    """The kernel for ``[grid](table, out, width, height, stride_n, stride_c, stride_y, stride_x, ...)``."""
    from gstinfer.preprocess import cuda_triton

    return cuda_triton.fused


CUDA_SOURCE = (
    f"#define ROW_BYTES {ROW_BYTES}\n"
    + "".join(f"#define AT_{n.upper()} {index(n)}\n" for n in ROW.names or ())
    + r"""
__device__ float fetch(const long long* plane, const int* ri, int c, int x, int y) {
    int group = c ? 1 : 0;
    return ((const unsigned char*)plane[c])[(long long)y * ri[AT_PITCH + group] + x * ri[AT_STEP + group]];
}

__device__ void pixel(const long long* plane, const int* ri, const float* rf, int x, int y, float* color) {
    int s = ri[AT_SHIFT];
    float v0 = fetch(plane, ri, 0, x, y);
    float v1 = fetch(plane, ri, 1, x >> s, y >> s), v2 = fetch(plane, ri, 2, x >> s, y >> s);
    for (int k = 0; k < CHANNELS; ++k) {
        const float* m = rf + AT_MATRIX + 3 * k;
        float value = m[0] * v0 + m[1] * v1 + m[2] * v2 + rf[AT_OFFSET + k];
        color[k] = rintf(fminf(fmaxf(value, 0.f), 255.f));
    }
}

extern "C" __global__ void fused(const char* table, OUT* out, int width, int height, long long stride_n,
                                 long long stride_c, long long stride_y, long long stride_x) {
    int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.z;
    if (ox >= width || oy >= height) return;
    const char* row = table + (long long)n * ROW_BYTES;
    const long long* plane = (const long long*)row;
    const int* ri = (const int*)row;
    const float* rf = (const float*)row;
    const int* area = ri + AT_CONTENT;
    bool inside = ox >= area[0] && ox < area[2] && oy >= area[1] && oy < area[3];
    float a[3], b[3], c[3], d[3], ax = 0, ay = 0;
    if (inside) {
        const float* m = rf + AT_AFFINE;
        const int *low = ri + AT_LOW, *high = ri + AT_HIGH;
        float x = fminf(fmaxf(m[0] * ox + m[1] * oy + m[2], (float)low[0]), (float)high[0]);
        float y = fminf(fmaxf(m[3] * ox + m[4] * oy + m[5], (float)low[1]), (float)high[1]);
        int x0 = (int)x, y0 = (int)y, x1 = min(x0 + 1, high[0]), y1 = min(y0 + 1, high[1]);
        ax = x - x0; ay = y - y0;
        pixel(plane, ri, rf, x0, y0, a); pixel(plane, ri, rf, x1, y0, b);
        pixel(plane, ri, rf, x0, y1, c); pixel(plane, ri, rf, x1, y1, d);
    }
    for (int k = 0; k < CHANNELS; ++k) {
        float value = rf[AT_PAD + k];
        if (inside) {
            float mixed = (a[k] * (1 - ax) + b[k] * ax) * (1 - ay) + (c[k] * (1 - ax) + d[k] * ax) * ay;
            value = rintf(mixed) * rf[AT_MUL + k] + rf[AT_ADD + k];
        }
        if (INTEGER) value = rintf(value);
        if (BYTE) value = fminf(fmaxf(value, 0.f), 255.f);
        out[n * stride_n + k * stride_c + oy * stride_y + ox * stride_x] = (OUT)value;
    }
}
"""
)
"""CUDA C; compile with OUT (the output's C type), CHANNELS, INTEGER and BYTE defined."""
