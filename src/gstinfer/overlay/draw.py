"""Draws what is known about a frame on its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import obb_corners
from gstinfer.image import Image
from gstinfer.overlay.canvas import Canvas, Dots
from gstinfer.overlay.color import BLACK, GREY, RGB, WHITE, class_color, color_of, ink_on
from gstinfer.overlay.cuda_canvas import CudaCanvas
from gstinfer.overlay.palette import Palette, Tile
from gstinfer.overlay.style import Style
from gstinfer.overlay.text import Lettering
from gstinfer.results import Classifications, Detections, FrameResults, SegmentationMap, Text

__all__ = ["COCO_SKELETON", "Overlay"]

COCO_SKELETON = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10),
    (5, 11), (6, 12), (11, 12), (11, 13), (13, 15), (12, 14), (14, 16), (3, 5), (4, 6),
)  # fmt: skip
"""Bones between the 17 keypoints of COCO: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles."""

BONES = {17: np.array(COCO_SKELETON)}
"""By number of keypoints."""
NO_BONES = np.empty((0, 2), int)

TILES = 1024
"""Most words kept ready, and most labels."""

CELL = 8
"""Pixels of a cell of the grid that says where labels lie already."""


class Label(NamedTuple):
    """Words side by side; sizes in pixels."""

    tiles: list[Tile]
    width: int
    height: int


class Objects(NamedTuple):
    """What is drawn of a frame's objects, the least certain first, so that the others lie above.

    Attributes:
        found: All of them.
        rows: Those that are drawn, as all that follows.
        colors: One each.
        boxes: x1, y1, x2, y2 each, in whole pixels.
    """

    found: Detections
    rows: list[int]
    colors: list[RGB]
    boxes: list[list[int]]


class Overlay:
    """Draws with one font; keeps set words and labels from frame to frame.

    Args:
        font: See ``Style.font``.

    Raises:
        ConfigError: No such font.
    """

    def __init__(self, font: str = "") -> None:
        self._lettering = Lettering(font)
        self.label, self.tile = lru_cache(maxsize=TILES)(self._label), lru_cache(maxsize=TILES)(self._tile)
        self.wrap, self.line_height = self._lettering.wrap, self._lettering.height

    def draw(self, image: Image, results: FrameResults, style: Style) -> int:
        """Draws results on a picture in place.

        Args:
            image: Writable, in host memory of any format in ``FORMATS``, or in CUDA memory of NV12 and other formats with
                a byte a sample; there the drawing is done when the event that the planes keep has happened.
            results: In pixels of that picture.
            style: What to draw, and how.

        Returns:
            How many objects were drawn.

        Raises:
            ConfigError: A picture in CUDA memory of another format, or torch sees no GPU.
            MissingDependencyError: A picture in CUDA memory, and neither torch nor CuPy is installed.
        """
        with canvas_of(image) as canvas:
            return _Painter(self, canvas, style).paint(results)

    def _label(self, palette: Palette, parts: tuple[str, ...], size: int, paper: RGB) -> Label:
        """The parts are kept apart, so that a number that changes does not set the words anew."""
        last = len(parts) - 1
        tiles = [self.tile(palette, part, size, paper, k == 0, k == last) for k, part in enumerate(parts)]
        return Label(tiles, sum(tile.width for tile in tiles), tiles[0].height)

    def _tile(self, palette: Palette, text: str, size: int, paper: RGB, first: bool, last: bool) -> Tile:
        """Words on paper, ready to be put beside others: room is left before the first and behind the last."""
        mask, side, step = self._lettering.mask(text, size), max(2, size // 4), palette.step
        height, width = mask.shape[0], mask.shape[1] + side * (first + last)
        coverage = np.zeros((height + height % step, width + width % step), np.uint8)
        coverage[:height, side * first :][:, : mask.shape[1]] = mask
        return palette.tile(coverage, ink_on(paper), paper)


def canvas_of(image: Image) -> Canvas | CudaCanvas:
    """What draws where the picture lies."""
    if not image.device.is_cuda:
        return Canvas(image)
    from gstinfer.overlay.cuda import engine

    return CudaCanvas(image, engine(image.device.index))


class _Painter:
    """One picture being drawn on."""

    def __init__(self, overlay: Overlay, canvas: Canvas | CudaCanvas, style: Style) -> None:
        self.overlay, self.canvas, self.style = overlay, canvas, style
        self.width, self.height, self.step = canvas.width, canvas.height, canvas.palette.step
        self.line = style.line_width_for(self.width, self.height)
        self.size = style.font_size_for(self.width, self.height)
        # Of each row of cells the taken ones, one bit a cell.
        self.taken = [0] * (self.height // CELL + 1)

    def paint(self, results: FrameResults) -> int:
        style = self.style
        if results.segmentation is not None and style.show_masks:
            self.segmentation(results.segmentation)
        objects = None if results.detections is None else self.objects(results.detections)
        if objects is not None:
            self.shapes(objects)
        if style.show_texts and results.texts:
            self.caption(results.texts[-1])
        if style.show_labels and results.classifications:
            self.classifications(results.classifications)
        if objects is not None:
            self.labels(objects)
        return 0 if objects is None else len(objects.rows)

    def segmentation(self, found: SegmentationMap) -> None:
        wanted = self.style.wanted_labels()
        names = found.label
        last = int(found.class_map.max(initial=-1))
        hidden = [
            k for k in range(last + 1)
            if wanted and (names[k] if names and k < len(names) else str(k)).lower() not in wanted
        ]
        shown = np.where(np.isin(found.class_map, hidden), -1, found.class_map) if hidden else found.class_map
        # 255 colours serve any number of classes.
        numbers = np.where(shown < 0, 0, shown % 255 + 1).astype(np.uint8)
        if numbers.size and numbers.any():
            self.canvas.tint_map(numbers, [class_color(k, found.component_id) for k in range(255)], self.style.mask_opacity)

    def objects(self, found: Detections) -> Objects | None:
        """Those to draw; None where there are none."""
        # As a float32 like the column, so that an object just at the limit stays.
        confidences, least = found.confidence.tolist(), float(np.float32(self.style.min_confidence))
        rows = [row for row, confidence in enumerate(confidences) if confidence >= least]
        if not self.style.show_predicted and "predicted" in found.data:
            rows = [row for row in rows if not found.data["predicted"][row]]
        wanted = self.style.wanted_labels()
        if wanted:
            names = _names(found)
            rows = [row for row in rows if names[row].lower() in wanted]
        if not rows:
            return None
        rows.sort(key=confidences.__getitem__)
        boxes = _whole(found.xyxy)
        return Objects(found, rows, self.colors(found, rows), [boxes[row] for row in rows])

    def colors(self, found: Detections, rows: list[int]) -> list[RGB]:
        if self.style.color_by == "class":
            classes, components = found.class_id.tolist(), found.component_id.tolist()
            return [class_color(classes[row], components[row]) for row in rows]
        tracks = [-1] * len(found) if found.tracker_id is None else found.tracker_id.tolist()
        return [GREY if tracks[row] < 0 else color_of(tracks[row]) for row in rows]

    def shapes(self, objects: Objects) -> None:
        """Masks, boxes and keypoints, in this order over all objects."""
        style, canvas, (found, rows, colors, boxes) = self.style, self.canvas, objects
        if found.mask is not None and style.show_masks:
            canvas.masks([found.mask[row] for row in rows], colors, style.mask_opacity)
        if style.show_boxes and found.obb is not None:
            canvas.polygons(obb_corners(found.obb)[rows] - 0.5, self.line, colors)
        elif style.show_boxes:
            for box, color in zip(boxes, colors):
                canvas.box(*self.inside(*box), self.line, color)
        if found.keypoints is not None and style.show_keypoints:
            points = found.keypoints[rows]
            seen = (points[..., 2] >= style.min_keypoint_score) & np.isfinite(points).all(-1)
            bones = BONES.get(points.shape[1], NO_BONES)
            dots: Dots = [(self.line + 1, WHITE), (self.line, None)] if len(bones) else [(self.line + 1, None)]
            canvas.keypoints(points[..., :2] - 0.5, seen, bones, self.line, dots, colors)

    def inside(self, x1: int, y1: int, x2: int, y2: int) -> tuple[int, int, int, int]:
        """The part of a box within the picture, at least a pixel."""
        if 0 <= x1 < x2 <= self.width and 0 <= y1 < y2 <= self.height:
            return x1, y1, x2, y2
        x1, y1 = min(max(x1, 0), self.width - 1), min(max(y1, 0), self.height - 1)
        return x1, y1, max(x1 + 1, min(x2, self.width)), max(y1 + 1, min(y2, self.height))

    def labels(self, objects: Objects) -> None:
        """Labels over everything else; the most certain object has the first choice of place."""
        style, (found, rows, colors, boxes) = self.style, objects
        if not (style.show_labels or style.show_ids or style.show_confidence):
            return
        if found.obb is not None:
            # The hull's corner may be far from a turned box: its highest corner is where the label goes.
            corners, xyxy = obb_corners(found.obb)[rows], found.xyxy[rows]
            xyxy[:, 0] = corners[np.arange(len(rows)), corners[..., 1].argmin(1), 0]
            boxes = _whole(xyxy)
        make, palette, size = self.overlay.label, self.canvas.palette, self.size
        for parts, (x1, y1, _, y2), color in zip(self.words(found, rows[::-1]), reversed(boxes), reversed(colors)):
            if parts:
                self.place(make(palette, parts, size, color), x1, y1, y2)

    def words(self, found: Detections, rows: list[int]) -> Iterator[tuple[str, ...]]:
        """The parts of each row's label."""
        style = self.style
        names = _names(found) if style.show_labels else None
        attributes = found.attributes if style.show_labels else None
        tracks = found.tracker_id.tolist() if style.show_ids and found.tracker_id is not None else None
        confidences = found.confidence.tolist() if style.show_confidence else None
        for row in rows:
            parts = [] if names is None else [names[row]]
            if attributes is not None:
                parts += [f" {attribute.label}" for attribute in attributes[row]]
            if tracks is not None and tracks[row] >= 0:
                parts.append(f" #{tracks[row]}")
            if confidences is not None:
                parts.append(f" {confidences[row]:.2f}")
            if parts:
                parts[0] = parts[0].lstrip()
            yield tuple([part[:200] for part in parts if part])

    def place(self, label: Label, x: int, y1: int, y2: int) -> None:
        """A label above its box; inside or below where that is outside of the picture or taken."""
        height, last = label.height, self.height - label.height
        x = max(0, min(x, self.width - label.width))
        x -= x % self.step
        bits, inside = _bits(x, label.width), [y for y in (y1 - height, y1, y2, y2 - height) if 0 <= y <= last]
        for y in inside:
            if not any([row & bits for row in self.taken[_cells(y, height)]]):
                break
        else:
            y = inside[0] if inside else max(0, min(y1 - height, last))
        self.put(x, y, label, bits)

    def put(self, x: int, y: int, label: Label, bits: int) -> None:
        """Puts words down, and notes the place as taken; ``bits``: the cells of a row that it takes."""
        cells = _cells(y, label.height)
        self.taken[cells] = [row | bits for row in self.taken[cells]]
        self.canvas.paste(x, y - y % self.step, label.tiles)

    def classifications(self, found: Sequence[Classifications]) -> None:
        """The best three classes of each classifier, at the top left."""
        y = 0
        for classes in found:
            names = classes.named(None).label or []
            for name, number, confidence in list(zip(names, classes.class_id.tolist(), classes.confidence))[:3]:
                if confidence < self.style.min_confidence or y >= self.height:
                    continue
                parts = (name[:200], f" {confidence:.2f}") if self.style.show_confidence else (name[:200],)
                color = class_color(number, classes.component_id)
                label = self.overlay.label(self.canvas.palette, parts, self.size, color)
                self.put(0, y, label, _bits(0, label.width))
                y += label.height

    def caption(self, text: Text) -> None:
        """The words at the bottom, wrapped, in at most a third of the picture."""
        step = self.overlay.line_height(self.size)
        step += step % self.step
        lines = max(1, self.height // 3 // step)
        wrapped = self.overlay.wrap(text.text, self.size, max(1, self.width - self.size), lines)
        top = max(0, self.height - step * len(wrapped))
        top -= top % self.step
        self.canvas.fill(0, top, self.width, self.height, BLACK)
        for k, line in enumerate(wrapped):
            label = self.overlay.label(self.canvas.palette, (line,), self.size, BLACK)
            self.put(0, top + k * step, label, _bits(0, label.width))


def _names(found: Detections) -> list[str]:
    return found.label if found.label is not None else [str(number) for number in found.class_id.tolist()]


def _cells(start: int, length: int) -> slice:
    """Cells that so many pixels touch."""
    return slice(start // CELL, (start + length - 1) // CELL + 1)


def _bits(start: int, length: int) -> int:
    """The same, one bit a cell."""
    cells = _cells(start, length)
    return (1 << cells.stop) - (1 << cells.start)


def _whole(xyxy: NDArray[np.float32]) -> list[list[int]]:
    """Boxes on whole pixels."""
    # Rounded one by one: what NumPy would save on many boxes it costs on few, each call anew.
    try:
        return [[round(x1), round(y1), round(x2), round(y2)] for x1, y1, x2, y2 in xyxy.tolist()]
    except (OverflowError, ValueError):
        return _whole(np.nan_to_num(xyxy))
