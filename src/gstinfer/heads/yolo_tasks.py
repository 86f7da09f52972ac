"""YOLO's other tasks: masks, keypoints and rotated boxes, raw or end-to-end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform, obb_hull
from gstinfer.heads.base import NetworkInfo, Thresholds
from gstinfer.heads.facts import ends_itself, grid_counts, input_size, literal, shapes
from gstinfer.heads.masks import cut_masks
from gstinfer.heads.nms import nms_rotated
from gstinfer.heads.yolo import Candidates, YoloHead
from gstinfer.results import Detections

__all__ = ["YoloObbHead", "YoloPoseHead", "YoloSegHead"]


class _TaskHead(YoloHead):
    """Raw or end-to-end: by metadata, else by the number of columns and candidates."""

    def _ends_itself(self, shape: Sequence[int | None]) -> bool:
        if ends_itself(self.info):
            return True
        if "task" in self.info.metadata and "end2end" in self.info.metadata:
            return False
        rows, columns = (shape[2], shape[1]) if self.layout == "channels-first" else (shape[1], shape[2])
        if columns != 6 + self.extra:
            return False
        counts, known = grid_counts(self.size), 4 + self.extra
        both = [(columns, rows)] if self.layout != "auto" else [(columns, rows), (rows, columns)]
        raw = any(
            width is not None
            and width > known
            and (self.names is None or width == known + len(self.names))
            and (not counts or count is None or count in counts)
            for width, count in both
        )
        if raw and self.layout == "auto" and not counts:
            raise ConfigError(
                f"the output {self.output} {list(shape)} of head={self.name} may be raw or end-to-end",
                hint="give the class names with labels=, or set layout=, which means raw candidates here",
            )
        return not raw


class YoloSegHead(_TaskHead):
    """Rows with mask coefficients at the end, and prototypes ``[B,m,h,w]``; outputs are told apart by their axes."""

    name = "yolo-seg"

    def _extra(self, info: NetworkInfo) -> int:
        protos = next((o for o in info.outputs if len(o.shape) == 4), None)
        if protos is None or protos.shape[1] is None:
            raise ConfigError(f"head=yolo-seg needs prototypes [B,m,h,w] beside the rows, got {shapes(info)}")
        self.protos = protos.name
        return protos.shape[1]

    def _result(
        self, found: Candidates, index: int, outputs: Mapping[str, NDArray[Any]], transform: ImageTransform
    ) -> Detections:
        assert found.extra is not None
        result = super()._result(found, index, outputs, transform)
        result.mask = cut_masks(found.extra, outputs[self.protos][index], result.xyxy, transform)
        return result


class YoloPoseHead(_TaskHead):
    """Rows with K keypoints (x, y, score) at the end; their number comes from ``kpt_shape``, else from the columns."""

    name = "yolo-pose"

    def _extra(self, info: NetworkInfo) -> int:
        shape = literal(info, "kpt_shape")
        self.dims = 3
        if isinstance(shape, (list, tuple)) and len(shape) == 2 and shape[1] in (2, 3):
            self.dims = int(shape[1])
            return int(shape[0]) * self.dims
        classes = 1 if self.names is None else len(self.names)
        size, counts = input_size(info), set()
        if size is not None:
            counts = grid_counts(size)
        first, last = self.shape[1], self.shape[2]
        raw = [c - 4 - classes for c, n in ((first, last), (last, first)) if c and (not counts or n in (None, *counts))]
        finished = [last - 6] if last else []
        fits = {extra for extra in raw + ([] if raw else finished) if extra > 0 and extra % 3 == 0}
        if len(fits) != 1:
            raise ConfigError(
                f"head=yolo-pose cannot tell the number of keypoints from {self.output} {list(self.shape)}",
                hint="write kpt_shape = [K, 3] into the file's metadata",
            )
        return fits.pop()

    def _result(
        self, found: Candidates, index: int, outputs: Mapping[str, NDArray[Any]], transform: ImageTransform
    ) -> Detections:
        assert found.extra is not None
        result = super()._result(found, index, outputs, transform)
        points = found.extra.reshape(len(found.score), -1, self.dims)
        if self.dims == 2:
            points = np.concatenate([points, np.ones((*points.shape[:2], 1), np.float32)], -1)
        result.keypoints = transform.keypoints_to_frame(points)
        return result


class YoloObbHead(_TaskHead):
    """cx, cy, w, h, then class probabilities and the angle in radians; end-to-end: score, class, angle."""

    name = "yolo-obb"

    def _extra(self, info: NetworkInfo) -> int:
        return 1

    def _suppress(
        self, found: Candidates, columns: NDArray[np.float32], thresholds: Thresholds
    ) -> Candidates:
        obb = np.concatenate([found.box, columns[-1, found.place][:, None]], 1)
        return found[nms_rotated(obb, found.score, found.class_id, thresholds)]

    def _result(
        self, found: Candidates, index: int, outputs: Mapping[str, NDArray[Any]], transform: ImageTransform
    ) -> Detections:
        assert found.extra is not None
        obb = _regular(transform.obb_to_frame(np.concatenate([found.box, found.extra], 1)))
        hull = obb_hull(obb)
        # A negative side still has a hull; as an empty box it is dropped and counted.
        hull[(found.box[:, 2:4] <= 0).any(1)] = 0
        return Detections(hull, found.score, found.class_id, obb=obb)


def _regular(obb: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same rectangles with angles in [0, pi/2): sides change places where the angle is past a right one."""
    angle = obb[:, 4] % math.pi
    turned = angle >= math.pi / 2
    obb = np.where(turned[:, None], obb[:, [0, 1, 3, 2, 4]], obb)
    obb[:, 4] = angle % (math.pi / 2)
    return obb.astype(np.float32)
