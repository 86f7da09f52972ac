"""Draws what is known about a frame on its picture."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import obb_corners
from gstinfer.image import Image
from gstinfer.overlay.canvas import Canvas
from gstinfer.overlay.color import BLACK, GREY, RGB, WHITE, class_color, color_of, ink_on
from gstinfer.overlay.cuda_canvas import CudaCanvas
from gstinfer.overlay.style import Style
from gstinfer.overlay.text import Lettering
from gstinfer.results import Classifications, Detections, FrameResults, SegmentationMap, Text

__all__ = ["COCO_SKELETON", "Overlay"]

COCO_SKELETON = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10),
    (5, 11), (6, 12), (11, 12), (11, 13), (13, 15), (12, 14), (14, 16), (3, 5), (4, 6),
)  # fmt: skip
"""Bones between the 17 keypoints of COCO: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles."""

TILES = 1024
"""Most labels kept ready."""

Tile = list[NDArray[np.uint8]]

CELL = 8
"""Pixels of a cell of the grid that says where labels lie already."""


class Overlay:
    """Draws with one font; keeps set words and labels from frame to frame.

    Args:
        font: See ``Style.font``.

    Raises:
        ConfigError: No such font.
    """

    def __init__(self, font: str = "") -> None:
        self._lettering = Lettering(font)
        self._tiles: OrderedDict[tuple[object, ...], Tile] = OrderedDict()

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

    def tiles(self, canvas: Canvas | CudaCanvas, parts: Sequence[str], size: int, paper: RGB) -> list[Tile]:
        """Words on paper, ready to be put side by side. The parts are kept apart, so that a number that changes does
        not set the words anew; their sides are even where chroma is half-size."""
        return [self._tile(canvas, part, size, paper, k == 0, k == len(parts) - 1) for k, part in enumerate(parts)]

    def _tile(self, canvas: Canvas | CudaCanvas, text: str, size: int, paper: RGB, first: bool, last: bool) -> Tile:
        key = (type(canvas), text, size, paper, first, last, canvas.format, canvas.color.matrix, canvas.color.full_range)
        tile = self._tiles.get(key)
        if tile is None:
            mask, side = self._lettering.mask(text, size), max(2, size // 4)
            height, width = mask.shape[0], mask.shape[1] + side * (first + last)
            coverage = np.zeros((height + height % canvas.step, width + width % canvas.step), np.uint8)
            coverage[:height, side * first :][:, : mask.shape[1]] = mask
            tile = self._tiles[key] = canvas.tiles(coverage, ink_on(paper), paper)
            if len(self._tiles) > TILES:
                self._tiles.popitem(last=False)
        else:
            self._tiles.move_to_end(key)
        return tile

    def wrap(self, text: str, size: int, width: int, lines: int) -> Iterable[str]:
        return self._lettering.wrap(text, size, width, lines)

    def line_height(self, size: int) -> int:
        return self._lettering.height(size)


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
        self.width, self.height = canvas.width, canvas.height
        self.line = style.line_width_for(self.width, self.height)
        self.size = style.font_size_for(self.width, self.height)
        self.taken = np.zeros((self.height // CELL + 1, self.width // CELL + 1), bool)

    def paint(self, results: FrameResults) -> int:
        style = self.style
        if results.segmentation is not None and style.show_masks:
            self.segmentation(results.segmentation)
        found = results.detections if results.detections is not None else Detections.empty()
        rows = self.rows(found)
        colors = {row: self.color(found, row) for row in rows}
        self.shapes(found, rows, colors)
        if style.show_texts and results.texts:
            self.caption(results.texts[-1])
        if style.show_labels and results.classifications:
            self.classifications(results.classifications)
        self.labels(found, rows, colors)
        return len(rows)

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

    def shapes(self, found: Detections, rows: list[int], colors: dict[int, RGB]) -> None:
        """Masks, boxes and keypoints, in this order over all objects."""
        style, canvas = self.style, self.canvas
        if found.mask is not None and style.show_masks:
            for row in rows:
                mask = found.mask[row]
                canvas.tint(mask.x, mask.y, mask.bitmap, colors[row], style.mask_opacity)
        if style.show_boxes:
            boxes = _whole(found.xyxy)
            corners = obb_corners(found.obb) if found.obb is not None else None
            for row in rows:
                if corners is not None:
                    canvas.lines(corners[row] - 0.5, self.line, colors[row], closed=True)
                else:
                    canvas.box(*self.inside(boxes[row]), self.line, colors[row])
        if found.keypoints is not None and style.show_keypoints:
            for row in rows:
                self.keypoints(found.keypoints[row], colors[row])

    def labels(self, found: Detections, rows: list[int], colors: dict[int, RGB]) -> None:
        """Labels over everything else; the most certain object has the first choice of place."""
        if not (self.style.show_labels or self.style.show_ids or self.style.show_confidence):
            return
        xyxy = found.xyxy
        if found.obb is not None:
            # The hull's corner may be far from a turned box: its highest corner is where the label goes.
            corners = obb_corners(found.obb)
            xyxy = xyxy.copy()
            xyxy[:, 0] = corners[np.arange(len(corners)), corners[..., 1].argmin(1), 0]
        boxes = _whole(xyxy)
        for row in reversed(rows):
            parts = self.words(found, row)
            if parts:
                self.label(parts, colors[row], boxes[row])

    def rows(self, found: Detections) -> list[int]:
        """What to draw, the least certain first, so that the others lie above."""
        keep = found.confidence >= self.style.min_confidence
        if not self.style.show_predicted and "predicted" in found.data:
            keep &= ~np.array([bool(p) for p in found.data["predicted"]])
        rows: list[int] = np.flatnonzero(keep)[np.argsort(found.confidence[keep], kind="stable")].tolist()
        wanted = self.style.wanted_labels()
        if wanted:
            names = found.label or [str(c) for c in found.class_id.tolist()]
            rows = [row for row in rows if names[row].lower() in wanted]
        return rows

    def color(self, found: Detections, row: int) -> RGB:
        if self.style.color_by == "class":
            return class_color(int(found.class_id[row]), int(found.component_id[row]))
        track = -1 if found.tracker_id is None else int(found.tracker_id[row])
        return GREY if track < 0 else color_of(track)

    def inside(self, box: list[int]) -> tuple[int, int, int, int]:
        """The part of a box within the picture, at least a pixel."""
        x1, y1 = min(max(box[0], 0), self.width - 1), min(max(box[1], 0), self.height - 1)
        return x1, y1, max(x1 + 1, min(box[2], self.width)), max(y1 + 1, min(box[3], self.height))

    def words(self, found: Detections, row: int) -> list[str]:
        style, parts = self.style, []
        if style.show_labels:
            parts.append(found.label[row] if found.label is not None else str(found.class_id[row]))
            if found.attributes is not None:
                parts += [f" {attribute.label}" for attribute in found.attributes[row]]
        if style.show_ids and found.tracker_id is not None and found.tracker_id[row] >= 0:
            parts.append(f" #{found.tracker_id[row]}")
        if style.show_confidence:
            parts.append(f" {found.confidence[row]:.2f}")
        if parts:
            parts[0] = parts[0].lstrip()
        return [part[:200] for part in parts if part]

    def keypoints(self, points: NDArray[np.float32], color: RGB) -> None:
        seen = (points[:, 2] >= self.style.min_keypoint_score) & np.isfinite(points).all(1)
        places = points[:, :2] - 0.5
        if len(points) == 17:
            bones = [places[[a, b]] for a, b in COCO_SKELETON if seen[a] and seen[b]]
            if bones:
                self.canvas.lines(np.stack(bones), self.line, color)
        self.canvas.dots(places[seen], self.line + 1, WHITE if len(points) == 17 else color)
        if len(points) == 17:
            self.canvas.dots(places[seen], self.line, color)

    def label(self, parts: list[str], color: RGB, box: list[int]) -> None:
        """A label above its box; inside or below where that is outside of the picture or taken."""
        tiles = self.overlay.tiles(self.canvas, parts, self.size, color)
        height, width = tiles[0][0].shape[0], sum(tile[0].shape[1] for tile in tiles)
        x = max(0, min(box[0], self.width - width))
        x -= x % self.canvas.step
        choices = [box[1] - height, box[1], box[3], box[3] - height]
        inside = [y for y in choices if 0 <= y <= self.height - height]
        free = (y for y in inside if not self.taken[self.cells(x, y, width, height)].any())
        top = next(free, inside[0] if inside else max(0, min(choices[0], self.height - height)))
        self.put(x, top, tiles)

    def cells(self, x: int, y: int, width: int, height: int) -> tuple[slice, slice]:
        return slice(y // CELL, (y + height - 1) // CELL + 1), slice(x // CELL, (x + width - 1) // CELL + 1)

    def put(self, x: int, y: int, tiles: list[Tile]) -> None:
        """Puts words down from (x, y) on, and notes the place as taken."""
        start = x
        for tile in tiles:
            self.canvas.paste(x, y, tile)
            x += tile[0].shape[1]
        self.taken[self.cells(start, y, x - start, tiles[0][0].shape[0])] = True

    def classifications(self, found: Sequence[Classifications]) -> None:
        """The best three classes of each classifier, at the top left."""
        y = 0
        for classes in found:
            names = classes.named(None).label or []
            for name, number, confidence in list(zip(names, classes.class_id.tolist(), classes.confidence))[:3]:
                if confidence < self.style.min_confidence or y >= self.height:
                    continue
                parts = [name[:200], f" {confidence:.2f}"] if self.style.show_confidence else [name[:200]]
                tiles = self.overlay.tiles(self.canvas, parts, self.size, class_color(number, classes.component_id))
                self.put(0, y, tiles)
                y += tiles[0][0].shape[0]

    def caption(self, text: Text) -> None:
        """The words at the bottom, wrapped, in at most a third of the picture."""
        step = self.overlay.line_height(self.size)
        step += step % self.canvas.step
        lines = max(1, self.height // 3 // step)
        wrapped = list(self.overlay.wrap(text.text, self.size, max(1, self.width - self.size), lines))
        top = max(0, self.height - step * len(wrapped))
        top -= top % self.canvas.step
        self.canvas.fill(0, top, self.width, self.height, BLACK)
        for k, line in enumerate(wrapped):
            self.put(0, top + k * step, self.overlay.tiles(self.canvas, [line], self.size, BLACK))


def _whole(xyxy: NDArray[np.float32]) -> list[list[int]]:
    """Boxes on whole pixels, the far ones pulled in."""
    boxes: list[list[int]] = np.rint(np.nan_to_num(xyxy).clip(-(2**20), 2**20)).astype(int).tolist()
    return boxes
