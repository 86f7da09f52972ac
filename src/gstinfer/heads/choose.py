"""Which head decodes a network, and the evidence for it. What stays ambiguous is refused, never guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.heads.base import Head, NetworkInfo
from gstinfer.heads.centerface import CenterFaceHead
from gstinfer.heads.classify import ClassifyHead, YoloClsHead
from gstinfer.heads.detr import DetrHead
from gstinfer.heads.facts import class_names, ends_itself, grid_counts, input_size, shapes
from gstinfer.heads.gfl import GflHead, pair_outputs
from gstinfer.heads.movenet import MoveNetHead
from gstinfer.heads.raw import RawHead
from gstinfer.heads.semantic import SemanticHead
from gstinfer.heads.ssd import SsdHead
from gstinfer.heads.yolo import YoloE2eHead, YoloHead, YoloV5Head
from gstinfer.heads.yolo_tasks import YoloObbHead, YoloPoseHead, YoloSegHead
from gstinfer.heads.yolox import YoloxHead

__all__ = ["LAYOUTS", "NAMES", "Decision", "choose"]

HEADS: dict[str, type[Head]] = {
    head.name: head
    for head in (
        YoloHead,
        YoloE2eHead,
        YoloV5Head,
        YoloSegHead,
        YoloPoseHead,
        YoloObbHead,
        YoloClsHead,
        YoloxHead,
        GflHead,
        SsdHead,
        DetrHead,
        MoveNetHead,
        CenterFaceHead,
        ClassifyHead,
        SemanticHead,
        RawHead,
    )
}
NAMES = ("auto", *HEADS)
"""Values of the ``head`` property."""
LAYOUTS = ("auto", "channels-first", "channels-last")
"""Values of the ``layout`` property."""

TASKS = {
    "detect": "yolo",
    "segment": "yolo-seg",
    "pose": "yolo-pose",
    "obb": "yolo-obb",
    "classify": "yolo-cls",
    "semantic": "semantic",
}
"""Ultralytics' ``task`` -> head."""


@dataclass(frozen=True)
class Decision:
    """What was decided for a network.

    Attributes:
        head: Bound to the network, ready to decode.
        layout: channels-first or channels-last; auto where the family has one layout, or it shows only at run time.
        reasons: The evidence, in the order it was weighed.
    """

    head: Head
    layout: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """One reading of the outputs."""

    head: str
    layout: str = "auto"
    note: str = ""

    def __str__(self) -> str:
        layout = "" if self.layout == "auto" else f" layout={self.layout}"
        return f"head={self.head}{layout}" + (f" ({self.note})" if self.note else "")


def choose(info: NetworkInfo, head: str = "auto", layout: str = "auto") -> Decision:
    """Decides by the user's properties, else by metadata, else by names of outputs, else by shapes.

    Args:
        info: The network, its labels and metadata completed from files beside it.
        head: One of ``NAMES``.
        layout: One of ``LAYOUTS``.

    Raises:
        UnknownNameError: Not one of those names.
        ConfigError: Ambiguous; the message lists the candidates and the property to set. Or the head does not fit.
    """
    if head not in NAMES:
        raise UnknownNameError("head", head, NAMES)
    if layout not in LAYOUTS:
        raise UnknownNameError("layout", layout, LAYOUTS)
    if layout == "auto" and info.metadata.get("layout") in LAYOUTS:
        layout = info.metadata["layout"]
    if head != "auto":
        return _decide(info, head, layout, f"head={head} was set")
    for step in (_by_metadata, _by_names):
        found = step(info)
        if found is not None:
            return _decide(info, found[0], layout, found[1])
    candidates = [c for c in _by_shape(info) if layout in ("auto", c.layout)]
    if len(candidates) == 1:
        only = candidates[0]
        picked = only.layout if HEADS[only.head].layouts and layout == "auto" else layout
        return _decide(info, only.head, picked, f"the shapes {shapes(info)} fit {only} and nothing else")
    if not candidates:
        raise ConfigError(
            f"no head is known for the outputs {shapes(info)}",
            hint="set head=raw to get the tensors, or head= to one of " + ", ".join(NAMES[1:-1]),
        )
    raise ConfigError(
        f"the outputs {shapes(info)} may be read as {'; or as '.join(map(str, candidates))}",
        hint="set head=" + (" and layout=" if any(c.layout != "auto" for c in candidates) else "")
        + ", or give the class names with labels= if they settle it",
    )


def _decide(info: NetworkInfo, name: str, layout: str, *reasons: str) -> Decision:
    made = HEADS[name](info, layout)
    if made.layouts and made.layout:
        why = "was set" if layout == made.layout else "follows from the shapes and what is known of them"
        reasons = (*reasons, f"layout={made.layout} {why}")
    return Decision(made, made.layout or "auto", reasons)


def _by_metadata(info: NetworkInfo) -> tuple[str, str] | None:
    head = str(info.metadata.get("head", ""))
    if head in HEADS:
        return head, f"metadata says head={head}"
    if "rtdetr" in head.lower():
        return "detr", f"metadata says head={head}"
    if "rtdetr" in str(info.metadata.get("description", "")).lower().replace("-", ""):
        return "detr", f"metadata says description={info.metadata['description']}"
    task = str(info.metadata.get("task", ""))
    if task in TASKS:
        if task == "detect":
            return _detect(info)
        return TASKS[task], f"metadata says task={task}"
    output = info.outputs[0] if info.outputs else None
    names = class_names(info)
    if "stride" in info.metadata and names is not None and output is not None and len(output.shape) == 3:
        # YOLOv5's own exporter writes stride and names, and no task.
        count, columns = output.shape[1], output.shape[2]
        if columns == 5 + len(names) and (count is None or count in grid_counts(input_size(info), 3)):
            return "yolov5", f"metadata has stride and {len(names)} names without a task, and {columns} columns"
    return None


def _detect(info: NetworkInfo) -> tuple[str, str] | None:
    """Ultralytics' detectors: raw or end-to-end."""
    if ends_itself(info):
        return "yolo-e2e", "metadata says task=detect and end2end or nms"
    names = class_names(info)
    output = next((o for o in info.outputs if len(o.shape) == 3), None)
    if names is not None and output is not None and 4 + len(names) not in output.shape[1:] and output.shape[2] == 6:
        return "yolo-e2e", f"metadata says task=detect, and 6 columns cannot be raw with {len(names)} names"
    return "yolo", "metadata says task=detect"


def _by_names(info: NetworkInfo) -> tuple[str, str] | None:
    names = {o.name.lower() for o in info.outputs}
    inputs = {i.name.lower() for i in info.inputs}
    for pair in (("dets", "labels"), ("pred_boxes", "logits"), ("pred_boxes", "pred_logits")):
        if names >= set(pair):
            return "detr", f"outputs are named {pair[0]} and {pair[1]}"
    if names >= {"labels", "boxes", "scores"} and "orig_target_sizes" in inputs:
        return "detr", "outputs are named labels, boxes, scores and an input orig_target_sizes"
    if names == {"out", "aux"} and all(len(o.shape) == 4 for o in info.outputs):
        return "semantic", "outputs are named out and aux, as torchvision's are"
    if len(info.outputs) == 1 and len(info.outputs[0].shape) == 2:
        name = info.outputs[0].name.lower()
        if any(word in name for word in ("softmax", "prob", "logit", "class")):
            return "classify", f"the output is named {info.outputs[0].name}"
    return None


def _by_shape(info: NetworkInfo) -> list[_Candidate]:
    """Every head whose shapes fit, each possible layout on its own."""
    ranks = sorted(len(o.shape) for o in info.outputs)
    readers: list[Callable[[NetworkInfo], list[_Candidate]]] = [_several]
    if ranks == [3]:
        readers.append(_rows)
    elif ranks == [3, 4]:
        readers.append(_rows_and_maps)
    elif len(ranks) == 1:
        readers.append(_single)
    return [candidate for read in readers for candidate in read(info)]


def _several(info: NetworkInfo) -> list[_Candidate]:
    """Families whose several outputs, or whose input, leave no doubt."""
    found = []
    for head in (MoveNetHead, CenterFaceHead, SsdHead):
        if head.recognises(info):
            found.append(_Candidate(head.name))
    if len(info.outputs) >= 4 and len(info.outputs) % 2 == 0:
        try:
            levels = pair_outputs(info)
        except ConfigError as error:
            if "do not say" in error.message:
                raise
        else:
            found.append(_Candidate("gfl", note=f"{len(levels)} strides"))
    return found


def _rows(info: NetworkInfo) -> list[_Candidate]:
    """Readings of a single ``[B,a,b]``."""
    if MoveNetHead.recognises(info):
        return []
    _, a, b = info.outputs[0].shape
    names = class_names(info)
    size = input_size(info)
    grids = grid_counts(size) | grid_counts(size, 3)
    found = []

    def raw(head: str, columns: int | None, count: int | None, layout: str, known: int, anchors: int = 1) -> None:
        if columns is None or columns <= known:
            return
        if names is not None and columns - known != len(names):
            return
        if count is not None and count not in grid_counts(size, anchors) and columns in grids:
            return
        found.append(_Candidate(head, layout, f"{columns - known} classes, {count or 'any number of'} candidates"))

    for layout, columns, count in (("channels-first", a, b), ("channels-last", b, a)):
        raw("yolo", columns, count, layout, 4)
        raw("yolo-obb", columns, count, layout, 5)
    raw("yolov5", b, a, "channels-last", 5, 3)
    raw("yolox", b, a, "auto", 5)
    if b == 6:
        found.append(_Candidate("yolo-e2e", "channels-last", "x1, y1, x2, y2, score, class"))
        found.append(_Candidate("detr", note="cx, cy, w, h, score, class"))
    if b == 7:
        found.append(_Candidate("yolo-obb", "channels-last", "end-to-end: cx, cy, w, h, score, class, angle"))
    for layout, columns in (("channels-first", a), ("channels-last", b)):
        if columns is not None and columns > 7 and (columns - 5) % 3 == 0 and (names is None or len(names) == 1):
            found.append(_Candidate("yolo-pose", layout, f"{(columns - 5) // 3} keypoints"))
    return found


def _rows_and_maps(info: NetworkInfo) -> list[_Candidate]:
    """Readings of ``[B,a,b]`` with prototypes ``[B,m,h,w]``."""
    if SsdHead.recognises(info):
        return []
    rows = next(o for o in info.outputs if len(o.shape) == 3)
    coefficients = next(o for o in info.outputs if len(o.shape) == 4).shape[1]
    if coefficients is None:
        return []
    names = class_names(info)
    found = []
    for layout, columns, count in (
        ("channels-first", rows.shape[1], rows.shape[2]),
        ("channels-last", rows.shape[2], rows.shape[1]),
    ):
        other = grid_counts(input_size(info))
        classes = 0 if columns is None else columns - 4 - coefficients
        if classes < 1 or (names is not None and classes != len(names)):
            continue
        if count is not None and other and count not in other and columns in other:
            continue
        found.append(_Candidate("yolo-seg", layout, f"{classes} classes, {count or 'any number of'} candidates"))
        if layout == "channels-last" and names is None:
            found.append(_Candidate("raw", note="YOLOv5 with masks, which no head decodes"))
    if rows.shape[2] == 6 + coefficients:
        found.append(_Candidate("yolo-seg", "channels-last", "end-to-end: x1, y1, x2, y2, score, class"))
    return found


def _single(info: NetworkInfo) -> list[_Candidate]:
    """Readings of one output of two or four axes."""
    output, names = info.outputs[0], class_names(info)
    shape = output.shape
    whole = _Candidate("raw", note="the tensor as it is")
    if len(shape) == 2 or (len(shape) == 4 and shape[2:] == (1, 1)):
        fits = _Candidate("classify", note=f"{shape[1]} classes")
        if names is not None:
            return [fits] if shape[1] in (None, len(names)) else [whole]
        return [fits, whole]
    if len(shape) == 4:
        maps = _Candidate("semantic", note=f"{shape[1]} maps")
        return [maps] if names is not None and len(names) in (shape[1], shape[3]) else [maps, whole]
    return []
