"""YOLO detectors: raw candidates without objectness (v8, v9, 11, 12), with it (v5, v7), and end-to-end (v10, 26)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError, ResultError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.heads.facts import check_labels, class_names, grid_counts, input_size, rows_above, shapes
from gstinfer.heads.nms import nms
from gstinfer.results import Detections, Result

__all__ = ["Candidates", "YoloE2eHead", "YoloHead", "YoloV5Head", "orient"]

Float = NDArray[np.float32]


def orient(
    shape: Sequence[int | None],
    fits: Callable[[int], bool],
    size: tuple[int, int] | None,
    *,
    anchors: int = 1,
    trusted: bool = False,
) -> str:
    """Where the columns of a candidate lie in an output ``[B,a,b]``.

    Args:
        shape: Of the output; None where dynamic.
        fits: Whether a number of columns fits the family and the labels.
        size: (width, height) of the input, or None.
        anchors: Candidates per cell of the grid.
        trusted: The file comes from an exporter that always puts columns first.

    Returns:
        ``"channels-first"``, ``"channels-last"``, or ``""`` where the shape leaves both possible.
    """
    first, last = shape[1], shape[2]
    if first is None or last is None:
        known = first if first is not None else last
        if known is None or not fits(known):
            return "channels-first" if trusted and known is None else ""
        return "channels-first" if last is None else "channels-last"
    counts = grid_counts(size, anchors)
    as_first = fits(first) and (not counts or last in counts)
    as_last = fits(last) and (not counts or first in counts)
    if not as_first and not as_last:
        as_first, as_last = fits(first), fits(last)
    if as_first and (trusted or not as_last):
        return "channels-first"
    return "channels-last" if as_last and not as_first else ""


@dataclass
class Candidates:
    """Rows of one frame above the threshold.

    Attributes:
        box: ``[M,4]`` in input pixels: xyxy; (cx, cy, w, h) for rotated boxes.
        score: ``[M]``.
        class_id: ``[M]``.
        place: ``[M]``: their columns in the output.
        extra: ``[M,E]``: further columns; filled in once suppression is done.
    """

    box: Float
    score: Float
    class_id: NDArray[Any]
    place: NDArray[np.int64]
    extra: Float | None = None

    def __getitem__(self, rows: Any) -> Candidates:
        return Candidates(self.box[rows], self.score[rows], self.class_id[rows], self.place[rows])


class YoloHead(Head):
    """``[B,4+nc,N]`` or transposed: cx, cy, w, h in input pixels, then class probabilities.

    The base of the family: subclasses add columns behind the classes, or take rows whose suppression is already done.
    """

    name = "yolo"
    thresholds = Thresholds(confidence=0.25, iou=0.7)
    layouts = True
    end2end = False
    anchors = 1
    first_class = 4

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        super().__init__(info, layout)
        self.labels = self.names = class_names(info)
        self.size = input_size(info)
        output = next((o for o in info.outputs if len(o.shape) == 3), None)
        if output is None:
            raise ConfigError(f"head={self.name} needs an output of three axes, got {shapes(info)}")
        self.output, self.shape = output.name, output.shape
        self.extra = self._extra(info)
        self.end2end = self._ends_itself(output.shape)
        self.layout = self._layout(output.shape) if layout == "auto" else layout
        if self.layout:
            self._check(output.shape)

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        return {"resize": "letterbox", "pad_value": 114, "color": "rgb", "scale": 1 / 255}

    def _extra(self, info: NetworkInfo) -> int:
        """Columns besides box, score and class."""
        return 0

    def _ends_itself(self, shape: Sequence[int | None]) -> bool:
        """Whether the rows are finished detections, x1, y1, x2, y2, score, class, rather than raw candidates."""
        return self.end2end

    def _fits(self, columns: int) -> bool:
        """Whether a number of columns fits what is known."""
        if self.end2end:
            return columns == 6 + self.extra
        known = self.first_class + self.extra
        return columns == known + len(self.names) if self.names is not None else columns > known

    def _layout(self, shape: Sequence[int | None]) -> str:
        """The layout; ``""`` for shapes that are only known when the network runs."""
        if self.end2end:
            return "channels-last"
        found = orient(shape, self._fits, self.size, anchors=self.anchors, trusted="task" in self.info.metadata)
        if not found and None not in shape[1:]:
            self._refuse(shape)
        return found

    def _refuse(self, shape: Sequence[int | None]) -> None:
        a, b, known = shape[1] or 0, shape[2] or 0, self.first_class + self.extra
        options = [
            f"{layout}: {columns - known} classes, {count} candidates"
            for layout, columns, count in (("channels-first", a, b), ("channels-last", b, a))
            if columns > known
        ]
        if not options:
            raise ConfigError(
                f"the output {self.output} {list(shape)} does not fit head={self.name}, which has {known} columns "
                "besides the classes",
                hint="check head=",
            )
        if self.names is not None and not self._fits(a) and not self._fits(b):
            raise ConfigError(
                f"{len(self.names)} labels do not fit head={self.name}, whose output {self.output} {list(shape)} may be "
                f"read as {' or as '.join(options)}",
                hint="check labels= and head=",
            )
        raise ConfigError(
            f"the output {self.output} {list(shape)} may be read as {' or as '.join(options)}",
            hint="set layout=channels-first or layout=channels-last, or give labels=",
        )

    def _check(self, shape: Sequence[int | None]) -> None:
        columns = shape[1] if self.layout == "channels-first" else shape[2]
        if columns is None:
            return
        if self.end2end:
            if not self._fits(columns):
                raise ConfigError(
                    f"head={self.name} end-to-end needs {6 + self.extra} columns, got {self.output} {list(shape)}",
                    hint="set head= to the network's own family, or layout=",
                )
            return
        classes = columns - self.first_class - self.extra
        if classes < 1:
            raise ConfigError(
                f"head={self.name} with layout={self.layout} finds no class column in {self.output} {list(shape)}",
                hint="check head= and layout=",
            )
        check_labels(self.names, classes, f"{self.output} of head={self.name}, layout={self.layout}")

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        array = outputs[self.output]
        if array.ndim != 3 or len(array) < len(transforms):
            raise ResultError(
                f"the output {self.output} has shape {list(array.shape)}, expected three axes and at least "
                f"{len(transforms)} rows"
            )
        if not self.layout:
            self.layout = self._layout(array.shape)
            self._check(array.shape)
        if array.dtype != np.float32:
            array = array[: len(transforms)].astype(np.float32)
        columns_first = self.layout == "channels-first"
        results: list[Result | tuple[Result, ...]] = []
        for i, transform in enumerate(transforms):
            columns = array[i] if columns_first else array[i].T
            if self.end2end:
                found = self._finished(columns, thresholds)
            else:
                found = self._suppress(self._raw(columns, thresholds), columns, thresholds)
            if self.extra:
                found.extra = columns[len(columns) - self.extra :, found.place].T
            results.append(self._result(found, i, outputs, transform) if len(found.score) else Detections.empty())
        return results

    def _raw(self, columns: Float, thresholds: Thresholds) -> Candidates:
        """The candidates of columns ``[C,N]`` above the threshold; each under its best class. NaN passes."""
        stop = len(columns) - self.extra
        place = rows_above(columns[self.first_class : stop].T, thresholds.confidence)
        classes = columns[self.first_class : stop, place]
        return Candidates(columns[:4, place].T, classes.max(0, initial=-np.inf), classes.argmax(0), place)

    def _finished(self, columns: Float, thresholds: Thresholds) -> Candidates:
        place = np.flatnonzero(~(columns[4] < thresholds.confidence))
        place = place[np.argsort(-columns[4, place], kind="stable")][: thresholds.limit]
        picked = columns[:6, place].T
        # Rounded before the cast: a float16 network may say 1.9995 for class 2.
        class_id = np.rint(np.nan_to_num(picked[:, 5], nan=-1, posinf=-1, neginf=-1)).clip(-1, 2**31 - 256)
        return Candidates(picked[:, :4].copy(), picked[:, 4].copy(), class_id.astype(np.int32), place)

    def _suppress(self, found: Candidates, columns: Float, thresholds: Thresholds) -> Candidates:
        half = found.box[:, 2:] / 2
        found.box = np.concatenate([found.box[:, :2] - half, found.box[:, :2] + half], 1)
        return found[nms(found.box, found.score, found.class_id, thresholds)]

    def _result(
        self, found: Candidates, index: int, outputs: Mapping[str, NDArray[Any]], transform: ImageTransform
    ) -> Detections:
        return Detections(transform.boxes_to_frame(found.box), found.score, found.class_id)


class YoloE2eHead(YoloHead):
    """``[B,N,6]``: x1, y1, x2, y2 in input pixels, confidence, class; suppression is the network's."""

    name = "yolo-e2e"
    end2end = True


class YoloV5Head(YoloHead):
    """``[B,N,5+nc]``: cx, cy, w, h in input pixels, objectness, class probabilities; the score is their product."""

    name = "yolov5"
    thresholds = Thresholds(confidence=0.25, iou=0.45)
    anchors = 3
    first_class = 5

    def _layout(self, shape: Sequence[int | None]) -> str:
        return "channels-last"

    def _raw(self, columns: Float, thresholds: Thresholds) -> Candidates:
        # No score can exceed its objectness, so most candidates end here.
        rows = np.flatnonzero(~(columns[4] < thresholds.confidence))
        picked = columns[:, rows]
        score = picked[4] * picked[5:].max(0, initial=-np.inf)
        good = ~(score < thresholds.confidence)
        picked = picked[:, good]
        return Candidates(picked[:4].T, score[good], picked[5:].argmax(0), rows[good])
