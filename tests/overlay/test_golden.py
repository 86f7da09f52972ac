"""Fixed results on plain pictures, compared with pictures that were looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gstinfer.image import FORMATS, ColorInfo
from gstinfer.overlay import Overlay, Style
from gstinfer.results import (
    Attribute,
    Classifications,
    Detections,
    FrameResults,
    Mask,
    SegmentationMap,
    Text,
)

Make = Callable[..., Any]

HALVED = sorted(n for n, layout in FORMATS.items() if not layout.is_yuv or layout.subsampling == (2, 2))
SHAPES = Style(show_labels=False, show_ids=False, show_confidence=False, line_width=2)
NOTHING = Mask(0, 0, np.zeros((0, 0), bool))


def ellipse(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width] + 0.5
    return (x / width * 2 - 1) ** 2 + (y / height * 2 - 1) ** 2 < 1


def person(x: float, y: float, scale: float) -> np.ndarray:
    """COCO's 17 points of someone who walks; the right wrist has too low a score."""
    places = (
        (5, 4), (4, 3), (6, 3), (3, 4), (7, 4), (1, 9), (9, 9), (-1, 15), (11, 15), (-2, 20), (12, 20),
        (3, 21), (7, 21), (2, 29), (9, 29), (0, 38), (11, 37),
    )  # fmt: skip
    points = np.array([(x + a * scale, y + b * scale, 0.9) for a, b in places])
    points[10, 2] = 0.2
    return points


def shapes() -> FrameResults:
    """Boxes inside, over every edge and outside of 192x128, one mask, one skeleton."""
    boxes = [[20, 20, 70, 100], [80, 14, 130, 122], [-9, 40, 12, 90], [140, -20, 230, 30], [150, 90, 188, 160]]
    points = np.full((5, 17, 3), -1.0)
    points[1] = person(88, 16, 2.6)
    mask = [Mask(20, 20, ellipse(50, 80)), NOTHING, Mask(-9, 41, ellipse(21, 49)), NOTHING, NOTHING]
    return FrameResults(
        detections=Detections(boxes, [0.9, 0.8, 0.7, 0.6, 0.5], [0, 0, 1, 2, 3], mask=mask, keypoints=points)
    )


def turned() -> FrameResults:
    """Rotated boxes over a class map, and five points that are no COCO skeleton."""
    obb = [[60, 60, 70, 30, 0.5], [130, 64, 30, 80, -0.3], [190, 120, 40, 20, 1.2]]
    points = np.zeros((3, 5, 3))
    points[0] = [(40 + 10 * k, 60, 1 if k != 2 else 0) for k in range(5)]
    points[1:, :, 2] = -1
    classes = np.full((8, 12), -1)
    classes[5:] = 4
    classes[:3, 8:] = 5
    return FrameResults(
        detections=Detections(None, class_id=[6, 7, 8], obb=obb, keypoints=points),
        segmentation=SegmentationMap(classes, ["road"] * 5 + ["sky"]),
    )


@pytest.mark.parametrize("name", HALVED)
@pytest.mark.parametrize("scene", [shapes, turned])
def test_shapes_on_every_format(name: str, scene: Make, make_picture: Make, as_rgb: Make, golden: Make) -> None:
    image = make_picture(name, 192, 128, pad=13)
    Overlay().draw(image, scene(), SHAPES)
    kind = {"packed": "rgb", "gray": "gray", "nv": "nv", "planar": "planar"}[image.layout.kind]
    golden(as_rgb(image), f"{scene.__name__}_{kind}")


@pytest.mark.parametrize("name", sorted(set(FORMATS) - set(HALVED)))
@pytest.mark.parametrize("scene", [shapes, turned])
def test_other_chroma_is_drawn_at_full_size(name: str, scene: Make, make_picture: Make, as_rgb: Make) -> None:
    image, plain = make_picture(name, 192, 128, pad=13), make_picture("RGB", 192, 128)
    plain.planes[0][...] = as_rgb(image)[0, 0]
    for picture in (image, plain):
        Overlay().draw(picture, scene(), SHAPES)
    a, b = (as_rgb(p).astype(int).reshape(128, 96, 2, 3).mean(2) for p in (image, plain))
    # OpenCV smooths no lines on two interleaved channels.
    assert np.abs(a - b).mean() < 2.5 and (np.abs(a - b).max(-1) > 40).mean() < 0.03
    assert np.abs(a - np.array(as_rgb(image)[0, 0])).max() > 100


@pytest.mark.parametrize("color", [ColorInfo("bt709"), ColorInfo("bt601", True), ColorInfo("bt709", True)], ids=str)
def test_colours_follow_matrix_and_range(color: ColorInfo, make_picture: Make, as_rgb: Make) -> None:
    """Read back with the picture's own matrix and range, a border has the colour that RGB shows."""
    found = FrameResults(detections=Detections([[20, 20, 70, 100]], class_id=[2]))
    plain, image = make_picture("RGB", 192, 128), make_picture("NV12", 192, 128, color=color)
    for picture in (plain, image):
        Overlay().draw(picture, found, SHAPES)
    assert np.abs(as_rgb(image)[20, 30:60].astype(int) - as_rgb(plain)[20, 30:60]).max() <= 3


@pytest.mark.parametrize("name", ["NV12", "RGB"])
def test_words(name: str, make_picture: Make, as_rgb: Make, golden: Make) -> None:
    """Labels above, below and inside of boxes, with ids and attributes, classes of the frame and a caption."""
    boxes = [[30, 40, 90, 170], [110, 60, 180, 180], [-10, 100, 22, 190], [262, -6, 340, 50], [200, 110, 300, 178]]
    found = FrameResults(
        detections=Detections(
            boxes,
            [0.91, 0.88, 0.7, 0.65, 0.8],
            [0, 0, 0, 2, 1],
            np.array([1, 2, -1, 4, 5]),
            ["person", "person", "person", "car", "vélo / велосипед"],
            attributes=[(), (Attribute("red jacket", 0, 0.9),), (), (), ()],
        ),
        classifications=[Classifications([4, 7], [0.8, 0.1], ["street", "park"])],
        texts=[Text("Two people walk down a street. A bicycle is parked at its side, and a car leaves the picture.")],
    )
    image = make_picture(name, 320, 240)
    drawn = Overlay("DejaVuSans.ttf").draw(image, found, Style(font_size=12))
    assert drawn == 5
    golden(as_rgb(image), f"words_{image.layout.kind}", blur=4)
