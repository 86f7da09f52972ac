"""Colours that stay with a class or a track, and what they are in the pixels of a format."""

from __future__ import annotations

import colorsys
from functools import lru_cache

from gstinfer.image import FORMATS, ColorInfo

__all__ = ["BLACK", "GREY", "WHITE", "class_color", "color_of", "ink_on", "plane_values", "to_yuv"]

RGB = tuple[int, int, int]

BLACK: RGB = (0, 0, 0)
WHITE: RGB = (255, 255, 255)
GREY: RGB = (150, 150, 150)

GOLDEN = (5**0.5 - 1) / 2
"""Steps of this share of the hue circle never come close to each other."""

WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}
"""Share of red and of blue in luma, by matrix (ITU-R BT.601, BT.709, BT.2020)."""


ELEMENTS = 31
"""Classes of two elements share a colour only where they lie a multiple of this apart."""


def class_color(class_id: int, component_id: int = 0) -> RGB:
    """The colour of a class of an element: class 0 of another element has another one."""
    return color_of(class_id + ELEMENTS * component_id)


@lru_cache(maxsize=4096)
def color_of(key: int) -> RGB:
    """A vivid colour for a class or a track number; the same number has the same colour everywhere."""
    hue = (0.36 + key * GOLDEN) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, (0.85, 0.65, 1.0)[key % 3], (1.0, 1.0, 0.8)[key % 3])
    return round(red * 255), round(green * 255), round(blue * 255)


def ink_on(paper: RGB) -> RGB:
    """Black or white, whichever reads better on a colour (luma of BT.709 in gamma-coded values)."""
    return BLACK if 0.2126 * paper[0] + 0.7152 * paper[1] + 0.0722 * paper[2] > 120 else WHITE


def to_yuv(rgb: RGB, color: ColorInfo) -> RGB:
    """A colour as 8-bit Y, U, V of a matrix and range."""
    kr, kb = WEIGHTS.get(color.matrix, WEIGHTS["bt601"])
    red, green, blue = (c / 255 for c in rgb)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    u, v = (blue - luma) / (2 - 2 * kb), (red - luma) / (2 - 2 * kr)
    base, luma_range, chroma_range = (0, 255, 255) if color.full_range else (16, 219, 224)
    values = base + luma_range * luma, 128 + chroma_range * u, 128 + chroma_range * v
    y, u8, v8 = (min(255, max(0, round(c))) for c in values)
    return y, u8, v8


def plane_values(format: str, color: ColorInfo, rgb: RGB) -> tuple[tuple[int, ...], ...]:
    """What to write into each plane of a format for a colour; alpha and unused channels become 255."""
    layout = FORMATS[format]
    if layout.kind == "packed":
        by_letter = dict(zip("RGB", rgb))
        return (tuple(by_letter.get(letter, 255) for letter in layout.order),)
    y, u, v = to_yuv(rgb, color)
    if layout.kind == "gray":
        return ((y,),)
    chroma = (u, v) if layout.order == "UV" else (v, u)
    return ((y,), chroma) if layout.kind == "nv" else ((y,), chroma[:1], chroma[1:])
