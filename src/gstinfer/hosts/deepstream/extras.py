"""Words about an object: labels that fit, attributes by element, and the columns that no struct has room for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gstinfer.hosts.deepstream.abi import LABEL_SIZE
from gstinfer.hosts.deepstream.reader import OBJECT
from gstinfer.results import Attribute, Detections, Tensors

__all__ = ["by_component", "cut", "extra_of", "gained", "label_of", "object_tensors", "with_words"]

TENSOR_COLUMN = "tensor:"


@lru_cache(maxsize=4096)
def cut(label: str) -> bytes:
    """A label as ``obj_label`` holds it: at most 127 bytes of UTF-8, whole characters, without the ``|`` at which
    nvmsgconv's minimal schema splits."""
    raw = label.replace("|", "/").replace("\0", "").encode("utf-8", "replace")
    return raw if len(raw) < LABEL_SIZE else raw[: LABEL_SIZE - 1].decode("utf-8", "ignore").encode()


def label_of(found: Detections, row: int) -> str:
    """An object's label; the number as text where it has none."""
    return str(found.class_id[row]) if found.label is None else found.label[row]


def by_component(words: tuple[Attribute, ...]) -> list[tuple[Attribute, ...]]:
    """Attributes grouped by the element that found them, in order."""
    groups: dict[int, list[Attribute]] = {}
    for word in words:
        groups.setdefault(word.component_id, []).append(word)
    return [tuple(group) for group in groups.values()]


def with_words(label: str, words: tuple[Attribute, ...]) -> str:
    """A display text: the label, then each classifier's word."""
    return " ".join([label, *(word.label for word in words)])


def extra_of(found: Detections, row: int, label: bool = False) -> Detections | None:
    """The columns of one row that the structs have no room for, or None."""
    obb = found.obb[row : row + 1] if found.obb is not None else None
    points = found.keypoints[row : row + 1] if found.keypoints is not None else None
    if points is not None and not (points[..., 2] >= 0).any():
        points = None
    data = {key: [value[row]] for key, value in found.data.items() if key != OBJECT and value[row] is not None}
    if obb is None and points is None and not data and not label:
        return None
    names = [found.label[row]] if label and found.label is not None else None
    return Detections(found.xyxy[row : row + 1], label=names, obb=obb, keypoints=points, data=data)


def object_tensors(extra: Detections) -> tuple[Detections, list[Tensors]]:
    """Takes raw outputs, which process-mode=2 puts into columns ``tensor:COMPONENT:NAME``, out of an object's extras."""
    outputs: dict[int, dict[str, Any]] = {}
    rest = dict(extra.data)
    for key in extra.data:
        if key.startswith(TENSOR_COLUMN):
            component, _, name = key[len(TENSOR_COLUMN) :].partition(":")
            outputs.setdefault(int(component), {})[name] = rest.pop(key)[0]
    return extra.with_columns(data=rest), [Tensors(arrays, component) for component, arrays in outputs.items()]


def gained(before: Detections, old: int, now: Detections, row: int) -> Detections | None:
    """What an element added to an object that was there: keypoints, a rotated box, data columns."""
    extra = extra_of(now, row)
    if extra is None:
        return None
    was = extra_of(before, old)
    if was is None:
        return extra
    same_points = was.keypoints is None or extra.keypoints is None or np.array_equal(was.keypoints, extra.keypoints)
    new_points = extra.keypoints is not None and (was.keypoints is None or not same_points)
    new_obb = extra.obb is not None and (was.obb is None or not np.array_equal(was.obb, extra.obb))
    data = {k: v for k, v in extra.data.items() if k not in was.data or not np.array_equal(v[0], was.data[k][0])}
    if not (new_points or new_obb or data):
        return None
    return extra.with_columns(
        keypoints=extra.keypoints if new_points else None, obb=extra.obb if new_obb else None, data=data
    )
