"""The drawing kernel in Triton; imported only where Triton is installed. See ``cuda_table`` for the table."""

from __future__ import annotations

import triton
import triton.language as tl

from gstinfer.overlay.cuda_table import BOX, COVER, HEAD, MAP, OPERATION_WORDS, TINT, index, operation_index

__all__ = ["draw"]

_BOX = tl.constexpr(BOX)
_TINT = tl.constexpr(TINT)
_COVER = tl.constexpr(COVER)
_MAP = tl.constexpr(MAP)
_HEAD_WORDS = tl.constexpr(HEAD.itemsize // 4)
_OPERATION_WORDS = tl.constexpr(OPERATION_WORDS)
_PITCH = tl.constexpr(index("pitch"))
_STEP = tl.constexpr(index("step"))
_GAP = tl.constexpr(index("gap"))
_WIDTH = tl.constexpr(index("width"))
_HEIGHT = tl.constexpr(index("height"))
_CHANNELS = tl.constexpr(index("channels"))
_SHIFT = tl.constexpr(index("shift"))
_COUNT = tl.constexpr(index("count"))
_DATA = tl.constexpr(index("data"))
_LOW = tl.constexpr(index("low"))
_KIND = tl.constexpr(operation_index("kind"))
_PLANES = tl.constexpr(operation_index("planes"))
_RECTANGLE = tl.constexpr(operation_index("box"))
_BORDER = tl.constexpr(operation_index("border"))
_COLUMNS = tl.constexpr(operation_index("columns"))
_ROWS = tl.constexpr(operation_index("rows"))
_VALUE = tl.constexpr(operation_index("value"))
_AT = tl.constexpr(operation_index("at"))
_SHARE = tl.constexpr(operation_index("share"))


@triton.jit
def draw(table, BX: tl.constexpr, BY: tl.constexpr):
    """Each program draws on BX samples (channels of pixels) by BY rows of one plane. ``table``: int64 view of its bytes."""
    p = tl.program_id(2)
    head = table.to(tl.pointer_type(tl.int32))
    width = tl.load(head + _WIDTH + p)
    height = tl.load(head + _HEIGHT + p)
    channels = tl.load(head + _CHANNELS + p)
    s = tl.load(head + _SHIFT + p)
    count = tl.load(head + _COUNT)
    data = table.to(tl.pointer_type(tl.uint8)) + tl.load(head + _DATA)
    first = tl.program_id(0) * BX
    upper = tl.program_id(1) * BY
    if (first < width * channels) & (upper < height):
        sample = first + tl.arange(0, BX)[None, :]
        y = upper + tl.arange(0, BY)[:, None]
        x = sample // channels
        k = sample - x * channels
        inside = (sample < width * channels) & (y < height)
        offset = y * tl.load(head + _PITCH + p) + x * tl.load(head + _STEP + p) + k * tl.load(head + _GAP + p)
        at = tl.load(table + p).to(tl.pointer_type(tl.uint8)) + offset
        before = tl.load(at, mask=inside, other=0).to(tl.float32)
        value = before
        low_x = first // channels
        high_x = (first + BX - 1) // channels
        for n in range(count):
            op = head + _HEAD_WORDS + n * _OPERATION_WORDS
            x1 = tl.load(op + _RECTANGLE)
            y1 = tl.load(op + _RECTANGLE + 1)
            x2 = tl.load(op + _RECTANGLE + 2)
            y2 = tl.load(op + _RECTANGLE + 3)
            left = x1 >> s
            top = y1 >> s
            right = (x2 + s) >> s
            bottom = (y2 + s) >> s
            wanted = ((tl.load(op + _PLANES) >> p) & 1) != 0
            if wanted & (left <= high_x) & (right > low_x) & (top < upper + BY) & (bottom > upper):
                kind = tl.load(op + _KIND)
                within = inside & (x >= left) & (x < right) & (y >= top) & (y < bottom)
                color = (tl.load(op + _VALUE + p) >> (8 * k)) & 255
                target = (tl.zeros((BY, BX), tl.int32) + color).to(tl.float32)
                share = tl.zeros((BY, BX), tl.float32)
                part = tl.load(op + _SHARE).to(tl.float32) / 65536.0
                if kind == _BOX:
                    border = tl.load(op + _BORDER)
                    inner = (x >= ((x1 + border + s) >> s)) & (x < ((x2 - border) >> s))
                    inner = inner & (y >= ((y1 + border + s) >> s)) & (y < ((y2 - border) >> s)) & (border > 0)
                    share = tl.where(within & (inner == 0), 1.0, 0.0)
                elif kind == _TINT:
                    column = (x << s) - x1
                    line = (y << s) - y1
                    hit = within & (column >= 0) & (column < x2 - x1) & (line >= 0) & (line < y2 - y1)
                    place = tl.load(op + _AT) + line * tl.load(op + _COLUMNS) + column
                    bit = tl.load(data + place, mask=hit, other=0)
                    share = tl.where(bit != 0, part, 0.0)
                elif kind == _MAP:
                    columns = tl.load(op + _COLUMNS)
                    line = y * tl.load(op + _ROWS) // height
                    place = tl.load(op + _AT) + line * columns + x * columns // width
                    number = tl.load(data + place, mask=within, other=0).to(tl.int32)
                    palette = (data + tl.load(op + _AT + 1)).to(tl.pointer_type(tl.int32)) + 256 * p
                    entry = tl.load(palette + number, mask=within, other=0)
                    target = ((entry >> (8 * k)) & 255).to(tl.float32)
                    share = tl.where(number != 0, part, 0.0)
                else:
                    place = (y - top) * (right - left) + (x - left)
                    start = data + tl.load(op + _AT + p)
                    if kind == _COVER:
                        share = tl.load(start + place, mask=within, other=0).to(tl.float32) / 255.0
                    else:
                        target = tl.load(start + (place * channels + k), mask=within, other=0).to(tl.float32)
                        share = tl.where(within, 1.0, 0.0)
                # Adding 1.5 * 2**23 leaves no bits for a fraction: round to nearest, ties to even, as rint does.
                value = (value + (target - value) * share + 12582912.0) - 12582912.0
        changed = inside & (value != before)
        tl.store(at, value.to(tl.int32).to(tl.uint8), mask=changed)
        if tl.load(head + _LOW) != 0:
            tl.store(at - 1, tl.zeros((BY, BX), tl.uint8), mask=changed)
