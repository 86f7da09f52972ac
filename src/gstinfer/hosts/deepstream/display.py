"""Keypoints, skeletons and rotated boxes as display metas: circles and lines that nvdsosd draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import obb_corners
from gstinfer.hosts.deepstream.abi import CIRCLE, DISPLAY_ELEMENTS, LINE, Layout
from gstinfer.hosts.deepstream.reader import OBJECT
from gstinfer.overlay.draw import COCO_SKELETON
from gstinfer.results import Detections

__all__ = ["displays_of"]

LINE_WIDTH, RADIUS = 2, 3
RED, GREEN, YELLOW = (1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 1.0), (1.0, 1.0, 0.0, 1.0)
LEAST = 0.3
"""Keypoints below this score are not drawn."""


def displays_of(
    layout: Layout, now: Detections, before: Detections | None, size: tuple[int, int]
) -> list[NDArray[Any]]:
    """Display meta records for what is new on a frame, at most 16 lines and 16 circles each.

    Args:
        layout: Of the structs.
        now: All objects of the frame.
        before: Those that were there, drawn already; None where there were none.
        size: Width and height of the frame.
    """
    if now.keypoints is None and now.obb is None:
        return []
    lines: list[tuple[Any, Any, tuple[float, ...]]] = []
    circles: list[tuple[Any, tuple[float, ...]]] = []
    old = _drawn(before)
    for row in range(len(now)):
        had_points, had_box = old.get(_handle(now, row), (False, False))
        if now.keypoints is not None and not had_points:
            points = now.keypoints[row]
            seen = (points[:, 2] >= LEAST) & np.isfinite(points).all(1)
            if len(points) == 17:
                lines += [(points[a], points[b], YELLOW) for a, b in COCO_SKELETON if seen[a] and seen[b]]
            circles += [(point, GREEN) for point in points[seen]]
        if now.obb is not None and not had_box and now.obb[row, 4] and not _turned(layout, now.obb[row], size):
            corners = obb_corners(now.obb[row : row + 1])[0]
            lines += [(corners[k], corners[(k + 1) % 4], RED) for k in range(4)]
    return _records(layout, lines, circles, size)


def _handle(found: Detections, row: int) -> int:
    column = found.data.get(OBJECT)
    return int(column[row] or 0) if column is not None else 0


def _drawn(before: Detections | None) -> dict[int, tuple[bool, bool]]:
    if before is None:
        return {}
    nothing = np.zeros(len(before), bool)
    points: Any = nothing if before.keypoints is None else (before.keypoints[..., 2] >= LEAST).any(1)
    boxes: Any = nothing if before.obb is None else before.obb[:, 4] != 0
    return dict(zip(before.data[OBJECT].tolist(), zip(points, boxes)))


def _turned(layout: Layout, obb: NDArray[np.float32], size: tuple[int, int]) -> bool:
    """Whether the object's own rectangle is drawn turned already."""
    corner, far = obb[:2] - obb[2:4] / 2, obb[:2] + obb[2:4] / 2
    return layout.rotation and bool((corner >= 0).all() and (far <= np.array(size)).all())


def _records(layout: Layout, lines: list[Any], circles: list[Any], size: tuple[int, int]) -> list[NDArray[Any]]:
    count = max(-(-len(lines) // DISPLAY_ELEMENTS), -(-len(circles) // DISPLAY_ELEMENTS))
    if not count:
        return []
    most = np.array([size[0] - 1, size[1] - 1])
    records = np.zeros(count, layout.display)
    for number, record in enumerate(records):
        part = slice(number * DISPLAY_ELEMENTS, (number + 1) * DISPLAY_ELEMENTS)
        for place, (start, end, color) in enumerate(lines[part]):
            line = np.zeros(1, LINE)
            line["x1"], line["y1"] = np.clip(start[:2], 0, most).astype(np.uint32)
            line["x2"], line["y2"] = np.clip(end[:2], 0, most).astype(np.uint32)
            line["width"], line["color"] = LINE_WIDTH, color
            record["lines"][place] = line[0]
        for place, (point, color) in enumerate(circles[part]):
            circle = np.zeros(1, CIRCLE)
            circle["xc"], circle["yc"] = np.clip(point[:2], 0, most).astype(np.uint32)
            circle["radius"], circle["color"], circle["width"] = RADIUS, color, LINE_WIDTH
            circle["has_bg_color"], circle["bg_color"] = 1, color
            record["circles"][place] = circle[0]
        record["num_lines"], record["num_circles"] = len(lines[part]), len(circles[part])
    return list(records)
