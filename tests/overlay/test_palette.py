"""Colours as numbers, and tiles whose planes lie in one piece of memory."""

from __future__ import annotations

import numpy as np
import pytest

from gstinfer.image import FORMATS, ColorInfo
from gstinfer.overlay.palette import palette_of

PINK = (200, 100, 150)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_words_are_a_colours_bytes(name: str) -> None:
    palette = palette_of(name, ColorInfo("bt709"))
    values = palette.values(PINK)
    assert [word.to_bytes(4, "little") for word in palette.words(PINK)[: len(values)]] == [
        bytes(value).ljust(4, b"\0") for value in values
    ]
    assert palette.words(PINK)[len(values) :] == (0, 0, 0)[len(values) :]
    assert palette_of(name, ColorInfo("bt709")) is palette


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_planes_of_a_tile_lie_behind_each_other(name: str) -> None:
    palette = palette_of(name, ColorInfo())
    coverage = np.zeros((6, 10), np.uint8)
    coverage[:, 4:] = 255
    tile = palette.tile(coverage, (255, 255, 255), PINK)
    assert (tile.width, tile.height) == (10, 6)
    for plane, start, shift, paper in zip(tile.planes, tile.starts, palette.shifts, palette.values(PINK)):
        assert plane.shape[:2] == (6 >> shift, 10 >> shift)
        assert tile.data[start : start + plane.size] == plane.tobytes()
        assert np.array_equal(np.ravel(plane[0, 0]), paper) and not np.array_equal(np.ravel(plane[0, -1]), paper)
    assert sum(plane.size for plane in tile.planes) == len(tile.data)
