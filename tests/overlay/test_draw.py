"""What is drawn where, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gstinfer.errors import ConfigError, MissingDependencyError
from gstinfer.geometry import obb_corners
from gstinfer.image import FORMATS, Device, Image
from gstinfer.overlay import Overlay, Style
from gstinfer.overlay.color import GREY, class_color, color_of, ink_on
from gstinfer.results import Attribute, Classifications, Detections, FrameResults, Mask, SegmentationMap, Text

Make = Callable[..., Any]

BARE = {"show_labels": False, "show_ids": False, "show_confidence": False}


def everything(scale: float = 1) -> FrameResults:
    """One of each kind, some of it outside of any small picture."""
    boxes = np.array([[2, 3, 30, 40], [-50, -50, 5, 5], [20, 20, 900, 900], [-9, -9, 999, 999]]) * scale
    points = np.stack([np.linspace(-40, 80, 68), np.linspace(90, -30, 68), np.ones(68)], -1).reshape(4, 17, 3)
    return FrameResults(
        detections=Detections(
            boxes,
            [0.9, 0.8, 0.7, 0.6],
            [0, 1, 2, 3],
            np.array([1, -1, 3, 4]),
            ["a", "漢字 \n\t", "long " * 40, ""],
            mask=[Mask(round(b[0]), round(b[1]), np.ones((30, 20), bool)) for b in boxes],
            keypoints=points,
            attributes=[(Attribute("x", 1, 0.5),), (), (), ()],
        ),
        classifications=[Classifications([1, 2], [0.5, 0.4])],
        segmentation=SegmentationMap(np.arange(12).reshape(3, 4) - 1),
        texts=[Text("word " * 30)],
    )


def turned(results: FrameResults) -> FrameResults:
    """The same with rotated boxes."""
    found = results.detections
    assert found is not None
    size = found.xyxy[:, 2:] - found.xyxy[:, :2]
    found.obb = np.concatenate([found.xyxy[:, :2] + size / 2, size, np.full((4, 1), 0.4)], 1).astype(np.float32)
    return results


@pytest.fixture(scope="module")
def overlay() -> Overlay:
    return Overlay()


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (2, 2), (3, 5), (161, 121)], ids=str)
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_any_size_is_drawn_on_and_no_byte_beside_it(
    name: str, size: tuple[int, int], make_picture: Make, overlay: Overlay
) -> None:
    image = make_picture(name, *size, pad=9)
    before = [plane.copy() for plane in image.planes]
    for results in (everything(), turned(everything())):
        assert overlay.draw(image, results, Style()) == 4
    assert any((plane != old).any() for plane, old in zip(image.planes, before))
    for plane in image.planes:
        memory = plane.base
        while memory.base is not None:
            memory = memory.base
        assert (memory[:, -9:] == 7).all()


SHARED = Overlay()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(width=32), min_size=4, max_size=4), st.sampled_from(["NV12", "RGB"]), st.booleans())
def test_any_box_is_survived(box: list[float], name: str, rotated: bool) -> None:
    layout = FORMATS[name]
    image = Image(name, tuple(np.zeros(shape, np.uint8) for shape in layout.plane_shapes(33, 21)), 33, 21)
    obb = [[*box, 0.5]] if rotated else None
    found = Detections([box], obb=obb, keypoints=[[[*box[:2], 1.0]] * 17])
    with np.errstate(all="ignore"):
        SHARED.draw(image, FrameResults(detections=found), Style())


@pytest.mark.parametrize("name", ["GRAY8", "NV12", "I420", "BGRx"])
def test_planes_that_opencv_cannot_write_are_drawn_on(name: str, make_picture: Make, overlay: Overlay) -> None:
    """Mirrored rows: negative strides."""
    plain, mirrored = make_picture(name, 64, 48), make_picture(name, 64, 48)
    mirrored.planes = tuple(plane[::-1] for plane in mirrored.planes)
    for image in (plain, mirrored):
        overlay.draw(image, everything(), Style())
    assert all((a == b).all() for a, b in zip(plain.planes, mirrored.planes))


def test_a_picture_is_drawn_on_in_place_and_opaque(overlay: Overlay) -> None:
    pixels = np.zeros((40, 40, 4), np.uint8)
    image = Image.from_array(pixels, "bgr")
    overlay.draw(image, FrameResults(detections=Detections([[10, 10, 30, 30]])), Style(**BARE, line_width=2))
    red, green, blue = color_of(0)
    assert pixels[10, 10].tolist() == pixels[29, 29].tolist() == [blue, green, red, 255]
    drawn = (pixels != 0).any(-1)
    assert drawn.sum() == 20 * 20 - 16 * 16 and not drawn[12:28, 12:28].any()


def test_a_box_over_the_edge_is_drawn_along_it(overlay: Overlay, make_picture: Make) -> None:
    image = make_picture("GRAY8", 60, 40)
    overlay.draw(image, FrameResults(detections=Detections([[-20, -5, 90, 70]])), Style(**BARE, line_width=1))
    drawn = image.planes[0] != 50
    assert drawn[0].all() and drawn[-1].all() and drawn[:, 0].all() and drawn[:, -1].all()
    assert not drawn[1:-1, 1:-1].any()


def labelled(overlay: Overlay, box: list[float], style: Style, **columns: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """The picture and (left, top, right, bottom) of what a label without a box painted on it."""
    pixels = np.full((120, 200, 3), 77, np.uint8)
    found = Detections([box], [0.5], **columns)
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), style)
    rows, cols = (np.flatnonzero((pixels != 77).any(-1).any(axis)) for axis in (1, 0))
    return pixels, (cols[0], rows[0], cols[-1] + 1, rows[-1] + 1) if len(cols) else (0, 0, 0, 0)


def test_labels_lie_above_their_box_and_move_inside_where_there_is_no_room(overlay: Overlay) -> None:
    style = Style(show_boxes=False, font_size=12)
    _, (left, top, right, bottom) = labelled(overlay, [50, 60, 90, 100], style, label=["cat"])
    assert left == 50 and bottom == 60 and top > 0
    height, width = bottom - top, right - left
    assert labelled(overlay, [50, 4, 90, 100], style, label=["cat"])[1][1] == 4
    assert labelled(overlay, [190, 60, 200, 100], style, label=["cat"])[1][2] == 200
    assert labelled(overlay, [-40, 60, 20, 100], style, label=["cat"])[1][0] == 0
    assert labelled(overlay, [-40, -60, 20, -30], style, label=["cat"])[1] == (0, 0, width, height)
    assert labelled(overlay, [50, 400, 90, 500], style, label=["cat"])[1][3] == 120
    assert labelled(overlay, [50, 60, 90, 100], style, label=["a very long name indeed " * 4])[1][::2] == (0, 200)


def test_labels_make_room_for_each_other(overlay: Overlay) -> None:
    pixels = np.full((120, 200, 3), 77, np.uint8)
    found = Detections([[50, 60, 90, 100], [52, 60, 92, 100]], [0.5, 0.9], [0, 1], label=["cat", "dog"])
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(show_boxes=False, font_size=12))
    first, second = ((pixels == color_of(k)).all(-1) for k in (1, 0))
    assert np.flatnonzero(first.any(1))[-1] == 59
    assert np.flatnonzero(second.any(1))[0] >= 60


def test_ink_reads_on_its_paper(overlay: Overlay) -> None:
    for number in range(12):
        pixels, (left, top, right, bottom) = labelled(
            overlay, [50, 60, 90, 100], Style(show_boxes=False), class_id=[number], label=["cat"]
        )
        tile = pixels[top:bottom, left:right].reshape(-1, 3)
        paper, ink = color_of(number), ink_on(color_of(number))
        assert (tile == paper).all(-1).mean() > 0.4 and (tile == ink).all(-1).sum() > 5
        weights = np.array([0.2126, 0.7152, 0.0722])
        assert abs(weights @ paper - weights @ ink) > 90


def test_words_are_chosen_by_style(overlay: Overlay) -> None:
    columns = {"label": ["cat"], "tracker_id": np.array([7])}
    widths = [
        labelled(overlay, [10, 60, 90, 100], Style(show_boxes=False, **chosen), **columns)[1]
        for chosen in ({}, {"show_ids": False}, {"show_ids": False, "show_confidence": False}, BARE)
    ]
    lengths = [right - left for left, _, right, _ in widths]
    assert lengths[0] > lengths[1] > lengths[2] > lengths[3] == 0


def colors_in(pixels: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(row) for row in np.unique(pixels.reshape(-1, 3), axis=0).tolist()}


@pytest.mark.parametrize(
    ("settings", "classes"),
    [({}, {0, 1, 2}), ({"labels": "Cat , dog"}, {0, 1}), ({"min_confidence": 0.5}, {0, 2}), ({"labels": "cow"}, set()),
     ({"show_boxes": False}, set()), ({"show_predicted": False}, {0, 1})],
    ids=str,
)  # fmt: skip
def test_objects_are_chosen_by_style(overlay: Overlay, settings: dict[str, Any], classes: set[int]) -> None:
    pixels = np.zeros((60, 90, 3), np.uint8)
    found = Detections(
        [[5, 5, 25, 40], [30, 5, 50, 40], [55, 5, 80, 40]], [0.9, 0.3, 0.8], [0, 1, 2], label=["cat", "dog", "bird"],
        data={"predicted": [None, False, True]},
    )  # fmt: skip
    drawn = overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(**BARE, **settings))
    assert colors_in(pixels) - {(0, 0, 0)} == {color_of(k) for k in classes}
    assert drawn == (3 if settings == {"show_boxes": False} else len(classes))


def test_an_object_at_the_limit_of_confidence_is_drawn(overlay: Overlay) -> None:
    """As a float32, 0.7 is a little less than 0.7."""
    found = Detections([[5, 5, 25, 40], [30, 5, 50, 40]], [0.7, 0.69])
    image = Image.from_array(np.zeros((60, 90, 3), np.uint8))
    assert overlay.draw(image, FrameResults(detections=found), Style(min_confidence=0.7)) == 1


def test_the_same_class_of_two_elements_has_two_colours(overlay: Overlay) -> None:
    pixels = np.zeros((60, 90, 3), np.uint8)
    boxes = [[5, 5, 25, 40], [30, 5, 50, 40], [55, 5, 80, 40]]
    found = Detections(boxes, class_id=[0, 0, 0], component_id=np.array([1, 2, 1], np.int32))
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(**BARE))
    assert tuple(pixels[5, 10]) == tuple(pixels[5, 60]) != tuple(pixels[5, 35])
    assert len({class_color(0, component) for component in range(64)}) > 60


def test_colours_stay_with_a_track(overlay: Overlay) -> None:
    pixels = np.zeros((60, 90, 3), np.uint8)
    found = Detections([[5, 5, 25, 40], [55, 5, 80, 40]], class_id=[3, 3], tracker_id=np.array([9, -1]))
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(**BARE, color_by="track"))
    assert colors_in(pixels) == {(0, 0, 0), color_of(9), GREY}


def test_a_mask_lies_on_its_object_and_lets_the_picture_through(overlay: Overlay) -> None:
    pixels = np.full((60, 90, 3), 100, np.uint8)
    bitmap = np.zeros((10, 20), bool)
    bitmap[2:5, 3:9] = True
    found = Detections([[30, 20, 50, 30]], mask=[Mask(30, 20, bitmap)])
    style = Style(**BARE, show_boxes=False, mask_opacity=0.5)
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), style)
    expected = np.zeros((60, 90), bool)
    expected[22:25, 33:39] = True
    assert ((pixels != 100).any(-1) == expected).all()
    assert pixels[23, 35].tolist() == pytest.approx([(100 + c) / 2 for c in color_of(0)], abs=1)


def test_keypoints_with_a_low_score_are_left_out(overlay: Overlay) -> None:
    points = np.zeros((1, 17, 3))
    points[0, 5], points[0, 6], points[0, 7] = (20, 20, 0.9), (60, 20, 0.9), (40, 50, 0.2)
    pixels = np.zeros((60, 90, 3), np.uint8)
    found = Detections([[1, 1, 80, 50]], keypoints=points)
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(**BARE, show_boxes=False))
    drawn = pixels.any(-1)
    assert drawn[20, 18:62].all() and not drawn[28:].any() and not drawn[:12].any()


def test_the_class_map_obeys_the_label_filter(overlay: Overlay) -> None:
    pixels = np.full((40, 40, 3), 100, np.uint8)
    found = SegmentationMap([[0, 1], [-1, 1]], ["sky", "road"])
    overlay.draw(Image.from_array(pixels), FrameResults(segmentation=found), Style(labels="road"))
    changed = (pixels != 100).any(-1)
    assert changed[:, 20:].all() and not changed[:, :20].any()


def test_the_newest_caption_is_shown_in_the_lower_third(overlay: Overlay) -> None:
    pictures = []
    for texts in ([Text("old"), Text("new " * 200)], [Text("new " * 200)]):
        pixels = np.full((90, 160, 3), 100, np.uint8)
        overlay.draw(Image.from_array(pixels), FrameResults(texts=texts), Style())
        pictures.append(pixels)
    assert (pictures[0] == pictures[1]).all()
    changed = (pictures[0] != 100).any(-1).any(1)
    assert changed[-1] and not changed[:59].any()


def test_nothing_known_changes_nothing(overlay: Overlay, make_picture: Make) -> None:
    image = make_picture("NV12", 64, 48)
    before = [plane.copy() for plane in image.planes]
    assert overlay.draw(image, FrameResults(detections=Detections.empty()), Style()) == 0
    assert overlay.draw(image, FrameResults(), Style()) == 0
    assert all((a == b).all() for a, b in zip(before, image.planes))


def test_what_is_kept_ready_is_bounded(overlay: Overlay, make_picture: Make) -> None:
    own, image = Overlay(), make_picture("I420", 64, 48)
    for number in range(1100):
        found = Detections([[5, 5, 40, 40]], label=[f"object {number}"])
        own.draw(image, FrameResults(detections=found), Style(show_confidence=False))
    assert max(kept.cache_info().currsize for kept in (own.tile, own.label)) <= 1024


def test_gpu_memory_without_a_gpu_library_is_refused_with_a_remedy(overlay: Overlay) -> None:
    try:
        import torch

        if torch.cuda.is_available():
            pytest.skip("a GPU is here")
    except ImportError:
        pass
    image = Image("RGB", (np.zeros((40, 40, 3), np.uint8),), 40, 40, device=Device("cuda", 0))
    with pytest.raises((ConfigError, MissingDependencyError), match="torch"):
        overlay.draw(image, FrameResults(detections=Detections([[1, 1, 9, 9]])), Style())


@pytest.mark.parametrize("angle", [0.5, -0.5])
def test_the_label_of_a_turned_box_begins_at_its_highest_corner(overlay: Overlay, angle: float) -> None:
    pixels = np.zeros((240, 320, 3), np.uint8)
    found = Detections(None, obb=np.array([[160, 140, 120, 30, angle]], np.float32), label=["a"])
    overlay.draw(Image.from_array(pixels), FrameResults(detections=found), Style(show_boxes=False, show_confidence=False))
    ys, xs = np.nonzero(pixels.any(-1))
    corner = min(obb_corners(found.obb)[0].tolist(), key=lambda point: point[1])
    assert xs.min() == pytest.approx(corner[0], abs=1) and ys.max() + 1 == pytest.approx(corner[1], abs=1)
