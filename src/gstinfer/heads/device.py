"""YOLO detectors decoded where the network ran: box decoding, top-k and suppression of a whole batch, as torch code.

Every step has a fixed shape and none waits for the GPU, so that all of it can be captured in a CUDA graph. What leaves the
device is one small tensor of candidates; thresholds are applied to it on the host, so they may change at any time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, Thresholds
from gstinfer.heads.nms import nms
from gstinfer.heads.yolo import YoloE2eHead, YoloHead, YoloV5Head
from gstinfer.results import Detections

__all__ = ["CANDIDATES", "DeviceDecoder", "suppress"]

CANDIDATES = 1024
"""Strongest candidates of a frame that take part in suppression."""

ROUNDS = 16
"""Rounds of suppression; a chain of boxes that needs more is finished on the host."""


class DeviceDecoder:
    """The device's part (``select``) and the host's part (``finish``) of one head.

    Args:
        head: Bound to the network; ``supports`` must be true for it.
    """

    def __init__(self, head: Head) -> None:
        assert isinstance(head, YoloHead)
        self.head = head

    @staticmethod
    def supports(head: Head) -> bool:
        """Whether a head's decoding is known here."""
        return type(head) in (YoloHead, YoloE2eHead, YoloV5Head) and bool(head.layout)

    def select(self, outputs: Mapping[str, Any], iou: Any, agnostic: Any) -> Any:
        """Candidates ``[B,K,7]`` float32: x1, y1, x2, y2 in input pixels, score, class, state.

        The state is 1 for a kept candidate, 0 for a suppressed one and -1 where the rounds did not suffice.

        Args:
            outputs: Tensors by name, batch first.
            iou: Overlap above which the weaker box falls; a tensor of one number, so that it may change.
            agnostic: Whether boxes of different classes suppress each other; a tensor of one bool.
        """
        import torch

        tensor = outputs[self.head.output].float()
        if self.head.end2end:
            return torch.cat([tensor[..., :6], torch.ones_like(tensor[..., :1])], -1)
        if self.head.layout == "channels-last":
            tensor = tensor.transpose(1, 2)
        score, class_id = tensor[:, self.head.first_class :].max(1)
        if isinstance(self.head, YoloV5Head):
            score = score * tensor[:, 4]
        best, index = score.topk(min(CANDIDATES, score.shape[1]), 1)
        box = torch.gather(tensor[:, :4], 2, index[:, None].expand(-1, 4, -1)).transpose(1, 2)
        half = box[..., 2:] / 2
        box = torch.cat([box[..., :2] - half, box[..., :2] + half], -1)
        classes = torch.gather(class_id, 1, index)
        state = suppress(box, best, classes, iou, agnostic)
        return torch.cat([box, best[..., None], classes[..., None].float(), state[..., None]], -1)

    def decode(
        self, outputs: Mapping[str, Any], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Detections]:
        """``select`` and ``finish`` in one, of the first rows where there are more than transforms; waits for the device.

        Args:
            outputs: As for ``select``.
            transforms: One per frame.
            thresholds: What to keep.
        """
        import torch

        place = outputs[self.head.output].device
        with torch.inference_mode():
            iou = torch.full((), thresholds.iou, device=place)
            agnostic = torch.full((), thresholds.class_agnostic, dtype=torch.bool, device=place)
            rows = self.select(outputs, iou, agnostic)[: len(transforms)]
        return self.finish(rows.cpu().numpy(), transforms, thresholds)

    def finish(
        self, rows: NDArray[np.float32], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Detections]:
        """One result per frame, in frame pixels, not yet clipped.

        Args:
            rows: What ``select`` gave, in host memory; nothing of it is kept.
            transforms: One per frame.
            thresholds: What to keep.
        """
        # A score that is no number passes: sanitising counts it.
        wanted = ~(rows[..., 4] < thresholds.confidence) & (rows[..., 6] != 0)
        found = rows[wanted]
        if not len(found):
            return [Detections.empty() for _ in transforms]
        counts = wanted.sum(1)
        ends = np.cumsum(counts).tolist()
        moved = _to_frames(found[:, :4], counts, transforms)
        if moved is not None and counts.max() <= thresholds.limit and self._plain(found, ends):
            class_id = np.rint(found[:, 5]).astype(np.int32)
            return _split(Detections(moved, found[:, 4].copy(), class_id), ends)
        class_id = np.rint(np.nan_to_num(found[:, 5], nan=-1, posinf=-1, neginf=-1)).clip(-1, 2**31 - 256)
        class_id = class_id.astype(np.int32)
        results, start = [], 0
        for end, transform in zip(ends, transforms):
            part = slice(start, end)
            order = start + self._order(found[part], class_id[part], thresholds)
            boxes = transform.boxes_to_frame(found[order, :4]) if moved is None else moved[order]
            results.append(Detections(boxes, found[order, 4], class_id[order]))
            start = end
        return results

    @staticmethod
    def _plain(found: NDArray[np.float32], ends: Sequence[int]) -> bool:
        """Whether nothing is left to decide: clean rows, suppression settled, in each frame strongest first."""
        low, high = found.min(0).tolist(), found.max(0).tolist()
        # Whatever is not a number compares as false.
        if not (low[6] > 0 and high[4] <= 1.001 and low[5] >= -1 and high[5] < 2**31 - 256):
            return False
        score = found[:, 4]
        rises = score[1:] > score[:-1]
        if len(ends) > 1:
            rises[[end - 1 for end in ends if 0 < end < len(score)]] = False
        return not rises.any() and all(map(math.isfinite, low + high)) and bool((found[:, 2:4] > found[:, :2]).all())

    def _order(
        self, found: NDArray[np.float32], class_id: NDArray[np.int32], thresholds: Thresholds
    ) -> NDArray[np.int64]:
        """Rows of one frame to keep."""
        if len(found) and found[0, 6] < 0:
            return nms(found[:, :4], found[:, 4], class_id, thresholds)
        if self.head.end2end:
            return np.argsort(-found[:, 4], kind="stable")[: thresholds.limit]
        dirty = ~np.isfinite(found[:, :5]).all(1) | (found[:, 4] > 1.001)
        dirty |= (found[:, 2:4] <= found[:, :2]).any(1)
        # As nms does: dirty rows come last and do not count, sanitising drops them by reason.
        return np.concatenate([np.flatnonzero(~dirty)[: thresholds.limit], np.flatnonzero(dirty)])


def _split(found: Detections, ends: Sequence[int]) -> list[Detections]:
    """The plain detections of a batch by frame."""
    if len(ends) == 1:
        return [found]
    results, start = [], 0
    for end in ends:
        results.append(
            found.with_columns(
                xyxy=found.xyxy[start:end],
                confidence=found.confidence[start:end],
                class_id=found.class_id[start:end],
                component_id=found.component_id[start:end],
                data={},
            )
        )
        start = end
    return results


def _to_frames(
    box: NDArray[np.float32], counts: NDArray[np.int64], transforms: Sequence[ImageTransform]
) -> NDArray[np.float32] | None:
    """Boxes of all frames in frame pixels at once; None where a transform rotates."""
    if any(transform.angle for transform in transforms):
        return None
    maps = np.array([(*t.pad, *t.scale, *t.origin) for t in transforms], np.float64)
    each = np.repeat(maps, counts, 0)
    points = (box.reshape(-1, 2, 2) - each[:, None, :2]) / each[:, None, 2:4] + each[:, None, 4:]
    return points.reshape(-1, 4).astype(np.float32)


def suppress(box: Any, score: Any, class_id: Any, iou: Any, agnostic: Any, rounds: int = ROUNDS) -> Any:
    """Greedy suppression of a batch, as rounds of "kept unless a kept stronger one overlaps".

    Each round settles at least one more link of every chain of overlapping boxes; once a round changes nothing, the
    result is that of going through the boxes one by one.

    Args:
        box: ``[B,K,4]`` (x1, y1, x2, y2).
        score: ``[B,K]``, strongest first.
        class_id: ``[B,K]``.
        iou: Overlap above which the weaker box falls, a tensor of one number.
        agnostic: Whether classes do not matter, a tensor of one bool.
        rounds: How many.

    Returns:
        ``[B,K]`` float32: 1 kept, 0 suppressed; all -1 in a frame that is not settled.
    """
    import torch

    clean = torch.isfinite(box).all(-1) & torch.isfinite(score) & (score <= 1.001)
    clean = clean & (box[..., 2] > box[..., 0]) & (box[..., 3] > box[..., 1])
    # One axis after the other: matrices of all pairs are what takes memory here.
    low, high = box[..., :2].unbind(-1), box[..., 2:].unbind(-1)
    width, height = (
        torch.minimum(b[:, :, None], b[:, None]).sub_(torch.maximum(a[:, :, None], a[:, None])).clamp_(min=0)
        for a, b in zip(low, high)
    )
    shared = width.mul_(height)
    area = (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    over = shared > iou * (area[:, :, None] + area[:, None] - shared)
    over &= (class_id[:, :, None] == class_id[:, None]) | agnostic
    # Row i, column j: j is stronger than i. Dirty boxes neither fall nor make others fall.
    over = (over & clean[:, :, None] & clean[:, None]).tril(-1).to(torch.float16 if box.is_cuda else torch.float32)
    kept = torch.ones_like(score, dtype=over.dtype)
    before = kept
    for _ in range(rounds):
        before, kept = kept, (torch.bmm(over, kept[..., None])[..., 0] == 0).to(over.dtype)
    settled = (before == kept).all(1, keepdim=True)
    return torch.where(settled, kept.float(), torch.full_like(kept, -1, dtype=torch.float32))
