"""How results look; every field is an option, so that it is a property of the element as well."""

from __future__ import annotations

from functools import lru_cache

from gstinfer.settings import Settings, option

__all__ = ["Style"]


class Style(Settings):
    """What is drawn, and how. Sizes of 0 follow the picture's."""

    color_by = option(str, "class", "What decides the colour", choices=("class", "track"), mutable=True)
    line_width = option(int, 0, "Width of lines in pixels; 0 follows the picture's size", minimum=0, mutable=True)
    font_size = option(int, 0, "Height of letters in pixels; 0 follows the picture's size", minimum=0, mutable=True)
    font = option(str, "", "Font file or family; empty for the usual sans-serif font")
    show_boxes = option(bool, True, "Draw boxes; rotated ones as polygons", mutable=True)
    show_labels = option(bool, True, "Write class names, attributes of objects and classes of the frame", mutable=True)
    show_ids = option(bool, True, "Write the ids of tracked objects", mutable=True)
    show_confidence = option(bool, True, "Write confidences", mutable=True)
    show_masks = option(bool, True, "Tint masks of objects and class maps", mutable=True)
    show_keypoints = option(bool, True, "Draw keypoints, with a skeleton for the 17 of COCO", mutable=True)
    show_texts = option(bool, True, "Write captions and answers at the bottom", mutable=True)
    show_predicted = option(bool, True, "Draw objects that a tracker predicted for a skipped frame", mutable=True)
    labels = option(str, "", "Class names to draw, separated by commas; empty for all", mutable=True)
    min_confidence = option(float, 0.0, "Confidence below which nothing is drawn", minimum=0, maximum=1, mutable=True)
    min_keypoint_score = option(float, 0.3, "Score of a keypoint that is drawn", minimum=0, maximum=1, mutable=True)
    mask_opacity = option(float, 0.45, "Share of the colour in a mask", minimum=0, maximum=1, mutable=True)

    def line_width_for(self, width: int, height: int) -> int:
        """Pixels of a line on a picture of the given size."""
        return self.line_width or max(1 if min(width, height) < 160 else 2, round(0.001 * (width + height)))

    def font_size_for(self, width: int, height: int) -> int:
        """Pixels of a letter on a picture of the given size."""
        return self.font_size or min(96, max(11, round(0.022 * min(width, height))))

    def wanted_labels(self) -> frozenset[str]:
        """Names of the label filter in lower case; empty for all."""
        return _names(self.labels)


@lru_cache(maxsize=64)
def _names(labels: str) -> frozenset[str]:
    return frozenset(name for name in (part.strip().lower() for part in labels.split(",")) if name)
