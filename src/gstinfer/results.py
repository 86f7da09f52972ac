"""What a model says about a frame. Object facts are columns, under the field names that supervision made common.

Boxes are float pixels of the frame, angles radians, times nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ResultError
from gstinfer.geometry import ImageTransform, clip_boxes, obb_hull
from gstinfer.mask import Mask

__all__ = [
    "Attribute",
    "Classifications",
    "Detections",
    "FrameResults",
    "Mask",
    "Result",
    "SegmentationMap",
    "Tensors",
    "Text",
]


@dataclass(frozen=True)
class Attribute:
    """A classifier's word about one object, or about the frame.

    Attributes:
        label: Name of the class; the number as text where none is known.
        class_id: Index of the class.
        confidence: 0..1.
        component_id: unique-id of the element that wrote it.
    """

    label: str
    class_id: int
    confidence: float
    component_id: int = 0


def _column(name: str, value: Any, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
    if type(value) is np.ndarray and value.dtype == dtype and _fits(value, shape):
        return value
    try:
        array = np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ResultError(f"Detections.{name} cannot be read as {np.dtype(dtype).name}: {error}") from error
    empty = [0 if d is None else d for d in shape]
    if array.size == 0 and 0 in empty and not _fits(array, shape):
        array = array.reshape(empty)
    if not _fits(array, shape):
        want = "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
        raise ResultError(f"Detections.{name} must have shape {want}, got {list(array.shape)}")
    return array


def _fits(array: NDArray[Any], shape: tuple[int | None, ...]) -> bool:
    return array.shape == shape or (
        array.ndim == len(shape) and all(d is None or d == got for d, got in zip(shape, array.shape))
    )


@dataclass
class Detections:
    """Objects of one frame, one row each in every column.

    Attributes:
        xyxy: float32 ``[N,4]`` (x1,y1,x2,y2) in frame pixels; for rotated boxes their upright hull.
        confidence: float32 ``[N]``, 0..1; ones when not given.
        class_id: int32 ``[N]``; zeros when not given.
        tracker_id: int64 ``[N]``, -1 where untracked, or None when no tracker ran.
        label: N names; filled from the model's labels, else the number as text.
        component_id: int32 ``[N]``, unique-id of the element that found the object.
        mask: N ``Mask`` or None.
        obb: float32 ``[N,5]`` (cx, cy, w, h, angle in radians) or None.
        keypoints: float32 ``[N,K,3]`` (x, y, score) or None; a score below 0 means absent.
        attributes: N tuples of ``Attribute`` or None.
        data: Further columns of N rows each: arrays or lists.
        parent: int64 ``[N]``, row of the object that this one was found on, -1 where it was found on the whole frame, or
            None where all were. Choosing rows and merging keep it right; the child of a row left out has none.
    """

    xyxy: NDArray[np.float32]
    # None stands for "not given" in the call alone: the columns are filled at once.
    confidence: NDArray[np.float32] = None  # type: ignore[assignment]
    class_id: NDArray[np.int32] = None  # type: ignore[assignment]
    tracker_id: NDArray[np.int64] | None = None
    label: list[str] | None = None
    component_id: NDArray[np.int32] = None  # type: ignore[assignment]
    mask: list[Mask] | None = None
    obb: NDArray[np.float32] | None = None
    keypoints: NDArray[np.float32] | None = None
    attributes: list[tuple[Attribute, ...]] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    parent: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.xyxy is None and self.obb is not None:
            self.xyxy = obb_hull(self.obb)
        self.xyxy = _column("xyxy", self.xyxy, np.float32, (None, 4))
        n = len(self.xyxy)
        confidence = np.ones(n, np.float32) if self.confidence is None else self.confidence
        self.confidence = _column("confidence", confidence, np.float32, (n,))
        class_id = np.zeros(n, np.int32) if self.class_id is None else self.class_id
        self.class_id = _column("class_id", class_id, np.int32, (n,))
        component = np.zeros(n, np.int32) if self.component_id is None else self.component_id
        self.component_id = _column("component_id", component, np.int32, (n,))
        if self.tracker_id is not None:
            self.tracker_id = _column("tracker_id", self.tracker_id, np.int64, (n,))
        if self.parent is not None:
            self.parent = _column("parent", self.parent, np.int64, (n,))
        if self.obb is not None:
            self.obb = _column("obb", self.obb, np.float32, (n, 5))
        if self.keypoints is not None:
            self.keypoints = _column("keypoints", self.keypoints, np.float32, (n, None, 3))
        if isinstance(self.mask, np.ndarray):
            if self.mask.shape[:1] != (n,) or self.mask.ndim != 3:
                raise ResultError(f"Detections.mask must have shape [{n},H,W], got {list(self.mask.shape)}")
            self.mask = [Mask.from_frame(m, b) for m, b in zip(self.mask, self.xyxy)]
        for name in ("label", "mask", "attributes"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ResultError(f"Detections.{name} must have {n} entries, got {len(value)}")
        if self.label is not None:
            self.label = [str(text) for text in self.label]
        for name, value in self.data.items():
            if len(value) != n:
                raise ResultError(f"Detections.data[{name!r}] must have {n} rows, got {len(value)}")

    @classmethod
    def empty(cls) -> Detections:
        """Nothing found."""
        # As empty columns hold nothing that could change, all empty detections share them.
        return _EMPTY.with_columns(data={})

    def __len__(self) -> int:
        return len(self.xyxy)

    def __getitem__(self, index: Any) -> Detections:
        """The rows of an index array, a boolean mask, a slice or one integer, in every column."""
        if isinstance(index, (int, np.integer)):
            index = [int(index)]
        rows = np.arange(len(self))[index]
        columns = ((name, column) for name, column in vars(self).items() if name != "data")
        picked = {name: None if column is None else _rows(column, rows) for name, column in columns}
        if self.parent is not None:
            place = np.full(len(self) + 1, -1, np.int64)
            place[rows[::-1]] = np.arange(len(rows))[::-1]
            picked["parent"] = place[picked["parent"]]
        return self.with_columns(**picked, data={key: _rows(column, rows) for key, column in self.data.items()})

    def with_columns(self, **columns: Any) -> Detections:
        """The same objects with some columns exchanged for others of the right type and length; nothing is checked.

        For code that has just made the columns; ``dataclasses.replace`` checks, at ten times the cost.
        """
        other = object.__new__(Detections)
        vars(other).update(vars(self), **columns)
        return other

    def placed(self, transform: ImageTransform) -> Detections:
        """Objects in pixels of a network's input, or of a crop, as objects of the frame; boxes clipped to it.

        In a turned crop boxes become rotated ones. ``ImageTransform.to_frame`` is the same.
        """
        obb = self.obb
        if obb is None and transform.angle:
            obb = _upright(self.xyxy)
        if obb is not None:
            obb = transform.obb_to_frame(obb)
        boxes = obb_hull(obb) if obb is not None else transform.boxes_to_frame(self.xyxy)
        columns: dict[str, Any] = {"xyxy": clip_boxes(boxes, *transform.frame_size), "obb": obb}
        if self.keypoints is not None:
            columns["keypoints"] = transform.keypoints_to_frame(self.keypoints)
        if self.mask is not None:
            columns["mask"] = [mask.placed(transform) for mask in self.mask]
        return self.with_columns(**columns)

    def named(self, labels: Sequence[str] | Mapping[int, str] | None) -> Detections:
        """The same objects with ``label`` filled from class names; the number as text where none is known."""
        if self.label is not None:
            return self
        return self.with_columns(label=_names(labels, self.class_id.tolist()))

    @classmethod
    def merge(cls, parts: Sequence[Detections]) -> Detections:
        """All rows of several detections, in order; columns that only some have are filled with their neutral value."""
        parts = [p for p in parts if len(p)]
        if not parts:
            return cls.empty()
        if len(parts) == 1:
            return parts[0]
        merged: dict[str, Any] = {
            name: np.concatenate([getattr(p, name) for p in parts])
            for name in ("xyxy", "confidence", "class_id", "component_id")
        }
        if any(p.tracker_id is not None for p in parts):
            merged["tracker_id"] = np.concatenate(
                [np.full(len(p), -1) if p.tracker_id is None else p.tracker_id for p in parts]
            )
        if any(p.label is not None for p in parts):
            merged["label"] = [text for p in parts for text in (p.named(None).label or [])]
        if any(p.mask is not None for p in parts):
            none = Mask(0, 0, np.zeros((0, 0), bool))
            merged["mask"] = [m for p in parts for m in (p.mask or [none] * len(p))]
        if any(p.attributes is not None for p in parts):
            merged["attributes"] = [a for p in parts for a in (p.attributes or [()] * len(p))]
        if any(p.obb is not None for p in parts):
            merged["obb"] = np.concatenate([_upright(p.xyxy) if p.obb is None else p.obb for p in parts])
        if any(p.keypoints is not None for p in parts):
            count = max(p.keypoints.shape[1] for p in parts if p.keypoints is not None)
            merged["keypoints"] = np.concatenate([_padded_keypoints(p, count) for p in parts])
        if any(p.parent is not None for p in parts):
            before = np.cumsum([0, *map(len, parts)])
            merged["parent"] = np.concatenate(
                [
                    np.full(len(p), -1) if p.parent is None else np.where(p.parent < 0, -1, p.parent + start)
                    for p, start in zip(parts, before)
                ]
            )
        keys = {key for p in parts for key in p.data}
        merged["data"] = {k: [v for p in parts for v in p.data.get(k, [None] * len(p))] for k in sorted(keys)}
        return cls(**merged)


_EMPTY = Detections(np.zeros((0, 4), np.float32))


def _rows(column: Any, rows: NDArray[np.int64]) -> Any:
    return column[rows] if isinstance(column, np.ndarray) else [column[i] for i in rows]


def _names(labels: Sequence[str] | Mapping[int, str] | None, class_ids: list[int]) -> list[str]:
    if labels is None:
        return [str(c) for c in class_ids]
    if isinstance(labels, Mapping):
        return [str(labels.get(c, c)) for c in class_ids]
    count = len(labels)
    return [str(labels[c]) if 0 <= c < count else str(c) for c in class_ids]


def _upright(xyxy: NDArray[np.float32]) -> NDArray[np.float32]:
    size = xyxy[:, 2:] - xyxy[:, :2]
    return np.concatenate([xyxy[:, :2] + size / 2, size, np.zeros((len(xyxy), 1), np.float32)], 1)


def _padded_keypoints(part: Detections, count: int) -> NDArray[np.float32]:
    out = np.zeros((len(part), count, 3), np.float32)
    out[..., 2] = -1
    if part.keypoints is not None:
        out[:, : part.keypoints.shape[1]] = part.keypoints
    return out


@dataclass
class Classifications:
    """Classes of a whole frame, best first.

    Attributes:
        class_id: int32 ``[M]``.
        confidence: float32 ``[M]``.
        label: M names; the number as text where none is known.
        component_id: unique-id of the element that wrote them.
    """

    class_id: NDArray[np.int32]
    confidence: NDArray[np.float32]
    label: list[str] | None = None
    component_id: int = 0

    def __post_init__(self) -> None:
        self.class_id = np.atleast_1d(np.asarray(self.class_id, np.int32))
        self.confidence = np.atleast_1d(np.asarray(self.confidence, np.float32))
        if self.class_id.shape != self.confidence.shape or self.class_id.ndim != 1:
            raise ResultError(
                f"Classifications need as many confidences as class ids, "
                f"got {list(self.class_id.shape)} ids and {list(self.confidence.shape)} confidences"
            )
        if self.label is not None and len(self.label) != len(self.class_id):
            raise ResultError(f"Classifications.label must have {len(self.class_id)} entries, got {len(self.label)}")

    def __len__(self) -> int:
        return len(self.class_id)

    def __getitem__(self, index: Any) -> Classifications:
        """The classes of an index array, a boolean mask or a slice."""
        rows = np.arange(len(self))[index]
        label = None if self.label is None else _rows(self.label, rows)
        return replace(self, class_id=self.class_id[rows], confidence=self.confidence[rows], label=label)

    def named(self, labels: Sequence[str] | Mapping[int, str] | None) -> Classifications:
        """The same classes with ``label`` filled from class names."""
        if self.label is not None:
            return self
        return replace(self, label=_names(labels, self.class_id.tolist()))

    def attributes(self) -> tuple[Attribute, ...]:
        """The classes as attributes of an object."""
        named = self.named(None)
        return tuple(
            Attribute(label, int(c), float(p), self.component_id)
            for label, c, p in zip(named.label or [], self.class_id, self.confidence)
        )


@dataclass
class SegmentationMap:
    """A class for every pixel.

    Attributes:
        class_map: int32 ``[h,w]``, spanning the whole frame at any resolution; -1 where no class.
        label: Names by class, or None.
        confidence: float32 ``[h,w]`` or None.
        component_id: unique-id of the element that wrote it.
    """

    class_map: NDArray[np.int32]
    label: list[str] | None = None
    confidence: NDArray[np.float32] | None = None
    component_id: int = 0

    def __post_init__(self) -> None:
        self.class_map = np.asarray(self.class_map, np.int32)
        if self.class_map.ndim != 2:
            raise ResultError(f"SegmentationMap.class_map must have shape [h,w], got {list(self.class_map.shape)}")


@dataclass
class Text:
    """Words about a frame or a span of frames.

    Attributes:
        text: The words.
        data: Structured answer, or None.
        start: First PTS it speaks of, ns, or None.
        end: Last PTS it speaks of, ns, or None.
        prompt_id: Which prompt was answered.
        model: Who answered.
        tokens: Tokens of the answer, or None.
        latency: ns from question to answer, or None.
        finish_reason: As the backend named it.
        component_id: unique-id of the element that wrote it.
        invalid: Why the answer does not fit the schema that was asked for, or empty; ``data`` is None then.
        tracker_id: The object that it speaks of, or None where it speaks of whole frames.
    """

    text: str
    data: Any = None
    start: int | None = None
    end: int | None = None
    prompt_id: str = ""
    model: str = ""
    tokens: int | None = None
    latency: int | None = None
    finish_reason: str = ""
    component_id: int = 0
    invalid: str = ""
    tracker_id: int | None = None


@dataclass
class Tensors:
    """Raw outputs of a network for one frame, without the batch axis.

    Attributes:
        outputs: Arrays by name.
        component_id: unique-id of the element that wrote them.
    """

    outputs: dict[str, NDArray[Any]]
    component_id: int = 0


Result = Detections | Classifications | SegmentationMap | Text | Tensors
"""What a model may return for one frame, next to None (nothing found) and a tuple of these."""


@dataclass
class FrameResults:
    """Everything known about one frame so far; what travels with the buffer.

    Attributes:
        model: Spec of the model that ran last on whole frames, or empty.
        inferred: False where inference was skipped for this frame, None where no inference element saw it, or saw it before
            it was cropped or turned.
        detections: All objects, or None when no detector ran.
        classifications: Frame-level classes of all classifiers.
        segmentation: Class map, or None.
        texts: Texts that speak of this frame.
        tensors: Raw outputs asked for.
        stream_id: Name of the stream as the inference element knew it, for elements behind it.
    """

    model: str = ""
    inferred: bool | None = None
    detections: Detections | None = None
    classifications: list[Classifications] = field(default_factory=list)
    segmentation: SegmentationMap | None = None
    texts: list[Text] = field(default_factory=list)
    tensors: list[Tensors] = field(default_factory=list)
    stream_id: str = ""

    def add(self, result: Result | tuple[Result, ...] | None) -> None:
        """Adds what one model said; detections join those that are there."""
        if result is None:
            return
        if isinstance(result, tuple):
            for part in result:
                self.add(part)
        elif isinstance(result, Detections):
            self.detections = result if self.detections is None else Detections.merge([self.detections, result])
        elif isinstance(result, Classifications):
            self.classifications.append(result)
        elif isinstance(result, SegmentationMap):
            self.segmentation = result
        elif isinstance(result, Text):
            self.texts.append(result)
        elif isinstance(result, Tensors):
            self.tensors.append(result)
        else:
            raise ResultError(f"a result of type {type(result).__name__} is not supported")
