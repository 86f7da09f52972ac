"""Colours of numbers, and of formats."""

from __future__ import annotations

import itertools

import pytest

from gstinfer.image import FORMATS, ColorInfo
from gstinfer.overlay.color import color_of, ink_on, plane_values, to_yuv


def test_the_first_numbers_look_different() -> None:
    colors = [color_of(k) for k in range(10)]
    for a, b in itertools.combinations(colors, 2):
        assert sum(abs(x - y) for x, y in zip(a, b)) > 60
    assert color_of(3) == color_of(3) and len({color_of(k) for k in range(200)}) > 190


@pytest.mark.parametrize(
    ("color", "rgb", "yuv"),
    [
        (ColorInfo("bt601"), (255, 0, 0), (81, 90, 240)),
        (ColorInfo("bt709"), (255, 0, 0), (63, 102, 240)),
        (ColorInfo("bt601", True), (255, 0, 0), (76, 85, 255)),
        (ColorInfo("bt709"), (0, 255, 0), (173, 42, 26)),
        (ColorInfo("bt2020"), (0, 0, 255), (29, 240, 119)),
        (ColorInfo("bt601"), (255, 255, 255), (235, 128, 128)),
        (ColorInfo("bt601", True), (0, 0, 0), (0, 128, 128)),
    ],
    ids=str,
)
def test_known_colours(color: ColorInfo, rgb: tuple[int, int, int], yuv: tuple[int, int, int]) -> None:
    assert to_yuv(rgb, color) == pytest.approx(yuv, abs=1)


def test_values_fit_the_planes_of_every_format() -> None:
    for name, layout in FORMATS.items():
        values = plane_values(name, ColorInfo(), (200, 100, 50))
        shapes = layout.plane_shapes(4, 4)
        assert [len(v) for v in values] == [s[2] if len(s) == 3 else 1 for s in shapes]
    assert plane_values("BGRx", ColorInfo(), (1, 2, 3)) == ((3, 2, 1, 255),)
    assert plane_values("I420", ColorInfo(), (1, 2, 3))[1:] == plane_values("YV12", ColorInfo(), (1, 2, 3))[:0:-1]


def test_ink() -> None:
    assert ink_on((255, 255, 0)) == (0, 0, 0) and ink_on((0, 0, 160)) == (255, 255, 255)
