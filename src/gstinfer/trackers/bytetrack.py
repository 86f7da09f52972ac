"""ByteTrack (Zhang et al., ECCV 2022): objects with a low score are matched too, after those with a high one.

All tracks of all streams lie in one structured array, and every step works on all frames of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.frames import Frame
from gstinfer.geometry import clip_boxes
from gstinfer.results import Detections, Mask
from gstinfer.settings import Settings, option
from gstinfer.trackers import kalman
from gstinfer.trackers.association import assign, overlaps

__all__ = ["ByteTrack"]

TRACK = np.dtype(
    [
        ("slot", "i8"),
        ("id", "i8"),
        ("hits", "i8"),
        ("missed", "i8"),
        ("row", "i8"),
        ("class_id", "i8"),
        ("component_id", "i8"),
        ("age", "f8"),
        *kalman.STATE,
    ]
)
"""A track: its stream's slot, its id (0 until it is confirmed), how often it was seen, frames it was missed since, its
row in the last detections of its stream, what was seen, and the seconds since."""

STEP = 1 / 30
"""Seconds of a frame without timestamps, and the unit of time that the noise of the motion is given for."""

LONGEST = 30.0
"""Most steps that a motion is carried on over a gap."""

NEW_MATCH_IOU = 0.3
"""Gate of a track that is not confirmed yet."""


@dataclass
class _Stream:
    slot: int
    pts: int | None = None
    fresh: bool = True
    last: Detections | None = None

    def advance(self, pts: int | None) -> float:
        """Seconds since the stream's last frame; 0 on its first one."""
        before, self.pts = self.pts, pts if pts is not None else self.pts
        if pts is None or before is None:
            return 0.0 if self.fresh else STEP
        return (pts - before) / 1e9 if pts >= before else STEP


class ByteTrack(Settings):
    """Follows boxes by their overlap and a constant velocity, each stream for itself, with ids from 1.

    Boxes, masks, classes and all other columns stay as the detector gave them.
    """

    high_threshold = option(float, 0.4, "Confidence of objects that are matched first", minimum=0, maximum=1)
    low_threshold = option(
        float, 0.1, "Confidence from which an object may still continue a track in sight", minimum=0, maximum=1
    )
    new_track_threshold = option(float, 0.4, "Confidence from which an object starts a track", minimum=0, maximum=1)
    match_iou = option(float, 0.2, "Least overlap (IoU) times confidence in the first round", minimum=0, maximum=1)
    low_match_iou = option(float, 0.5, "Least overlap (IoU) in the second round", minimum=0, maximum=1)
    confirm_frames = option(
        int, 2, "Frames in a row that show an object before it gets an id; 1 in a stream's first frame", minimum=1
    )
    lost_time = option(float, 1.0, "Seconds that the id of an object out of sight is kept", minimum=0)
    class_factor = option(
        float,
        0.5,
        "Factor on the overlap of a track and an object of another class: 0 forbids the match, 1 ignores classes",
        minimum=0,
        maximum=1,
    )

    def __init__(self, **values: Any) -> None:
        # Half a second that the first crowded frame would wait for otherwise.
        import scipy.optimize  # noqa: F401

        Settings.update(self, values)
        self._tracks = np.zeros(0, TRACK)
        self._streams: dict[str, _Stream] = {}
        self._next_id = np.ones(0, np.int64)
        self._free: list[int] = []

    def reset(self, stream_id: str) -> None:
        """Forgets the tracks of one stream; its ids start again at 1."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._tracks = self._tracks[self._tracks["slot"] != stream.slot]
            self._free.append(stream.slot)

    def update(  # type: ignore[override]  # a tracker's update, not that of Settings
        self, detections: Sequence[Detections | None], frames: Sequence[Frame]
    ) -> list[Detections]:
        """Objects with ``tracker_id`` (-1 where untracked), one entry per frame, keyed by ``frame.stream_id``.

        Args:
            detections: One per frame, in frame pixels; None where inference was skipped. There the boxes of the tracks
                in sight are predicted, and the column ``data["predicted"]`` is True.
            frames: The frames they belong to; several of one stream in their order of time.
        """
        found: list[Detections] = [Detections.empty()] * len(frames)
        waiting = list(range(len(frames)))
        while waiting:
            seen: set[str] = set()
            now = []
            for k in waiting:
                if frames[k].stream_id not in seen:
                    seen.add(frames[k].stream_id)
                    now.append(k)
            for k, tracked in zip(now, self._step([detections[k] for k in now], [frames[k] for k in now])):
                found[k] = tracked
            taken = set(now)
            waiting = [k for k in waiting if k not in taken]
        return found

    def _step(self, detections: list[Detections | None], frames: list[Frame]) -> list[Detections]:
        """One frame of each of several streams."""
        streams = [self._stream(frame.stream_id) for frame in frames]
        seconds = np.array([stream.advance(frame.pts) for stream, frame in zip(streams, frames)])
        fresh = np.array([stream.fresh for stream in streams])
        observed = np.array([d is not None for d in detections])
        for stream, d in zip(streams, detections):
            if d is not None:
                stream.fresh, stream.last = False, d
        slots = np.array([stream.slot for stream in streams])
        tracks, frame, others = self._select(slots)
        tracks["velocity"][tracks["missed"] > 0, 2:] = 0
        kalman.predict(tracks, np.minimum(seconds / STEP, LONGEST)[frame])
        tracks["age"] += seconds[frame]

        objects = _Objects.of(detections)
        match = self._match(tracks, frame, objects)
        rows = np.flatnonzero(match >= 0)
        if len(rows):
            hit = match[rows]
            if len(rows) == len(tracks):
                kalman.correct(tracks, objects.xyxy[hit])
            else:
                tracks[rows] = kalman.correct(tracks[rows], objects.xyxy[hit])
            tracks["hits"][rows] += 1
            tracks["missed"][rows] = 0
            tracks["age"][rows] = 0
            tracks["class_id"][rows] = objects.class_id[hit]
        tracks["missed"] += observed[frame] & (match < 0)
        expired = self._expired(tracks)
        if expired.any():
            tracks, frame, match = tracks[~expired], frame[~expired], match[~expired]

        untaken = objects.usable & (objects.confidence >= self.new_track_threshold)
        untaken &= objects.confidence >= self.high_threshold
        untaken[match[match >= 0]] = False
        born = np.flatnonzero(untaken)
        if len(born):
            tracks = np.concatenate([tracks, self._births(objects, born, slots, fresh)])
            frame, match = np.concatenate([frame, objects.frame[born]]), np.concatenate([match, born])
        self._confirm(tracks)
        rows = np.flatnonzero(match >= 0)
        tracks["row"][rows] = match[rows] - objects.start[frame[rows]]
        ids = np.full(len(objects.xyxy), -1, np.int64)
        rows = rows[tracks["id"][rows] > 0]
        ids[match[rows]] = tracks["id"][rows]
        self._tracks = np.concatenate([others, tracks]) if len(others) else tracks
        ends = objects.start + objects.count
        return [
            self._predicted(tracks[frame == k], streams[k], frames[k])
            if d is None
            else _with_ids(d, ids[objects.start[k] : ends[k]])
            for k, d in enumerate(detections)
        ]

    def _stream(self, stream_id: str) -> _Stream:
        stream = self._streams.get(stream_id)
        if stream is None:
            if not self._free:
                self._free.append(len(self._next_id))
                self._next_id = np.append(self._next_id, 1)
            stream = self._streams[stream_id] = _Stream(self._free.pop())
            self._next_id[stream.slot] = 1
        return stream

    def _select(self, slots: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[Any]]:
        """Tracks of the streams at ``slots``, the position in the batch of each, and the tracks of other streams."""
        place = np.full(len(self._next_id), -1, np.intp)
        place[slots] = np.arange(len(slots))
        frame = place[self._tracks["slot"]]
        mine = frame >= 0
        if mine.all():
            return self._tracks, frame, self._tracks[:0]
        return self._tracks[mine], frame[mine], self._tracks[~mine]

    def _match(self, tracks: NDArray[Any], frame: NDArray[np.intp], objects: _Objects) -> NDArray[np.intp]:
        """The row of the object that each track continues with, or -1."""
        match = np.full(len(tracks), -1, np.intp)
        if not len(tracks) or not len(objects.xyxy):
            return match
        i, j, iou = overlaps(kalman.boxes(tracks), objects.xyxy, frame, objects.frame)
        iou = np.where(tracks["class_id"][i] == objects.class_id[j], iou, iou * self.class_factor)
        iou[(tracks["component_id"][i] != objects.component_id[j]) | ~objects.usable[j]] = 0
        confidence = objects.confidence[j]
        high = confidence >= self.high_threshold
        confirmed = tracks["id"][i] > 0
        low = ~high & (confidence >= self.low_threshold) & (tracks["missed"][i] == 0)
        rounds = (
            (high & confirmed, iou * confidence, self.match_iou),
            (low & confirmed, iou, self.low_match_iou),
            (high & ~confirmed, iou * confidence, NEW_MATCH_IOU),
        )
        taken = np.zeros(len(objects.xyxy), bool)
        for allowed, score, least in rounds:
            pairs = np.flatnonzero(allowed & (match[i] < 0) & ~taken[j])
            if len(pairs):
                rows, columns = assign(i[pairs], j[pairs], score[pairs], least, frame)
                match[rows] = columns
                taken[columns] = True
        return match

    def _expired(self, tracks: NDArray[Any]) -> NDArray[np.bool_]:
        """Tracks to forget: never confirmed and missed, or out of sight too long (and for more than a single frame)."""
        missed = tracks["missed"]
        long = (tracks["age"] > self.lost_time) & (missed >= (2 if self.lost_time else 1))
        expired: NDArray[np.bool_] = long | ((tracks["id"] == 0) & (missed > 0))
        return expired

    def _births(
        self, objects: _Objects, born: NDArray[np.intp], slots: NDArray[np.int64], fresh: NDArray[np.bool_]
    ) -> NDArray[Any]:
        tracks = np.zeros(len(born), TRACK)
        frame = objects.frame[born]
        tracks["slot"] = slots[frame]
        tracks["hits"] = np.where(fresh[frame], self.confirm_frames, 1)
        tracks["class_id"] = objects.class_id[born]
        tracks["component_id"] = objects.component_id[born]
        kalman.initiate(tracks, objects.xyxy[born])
        return tracks

    def _confirm(self, tracks: NDArray[Any]) -> None:
        """Gives the next ids of their streams to tracks that were seen often enough."""
        rows = np.flatnonzero((tracks["id"] == 0) & (tracks["hits"] >= self.confirm_frames))
        if not len(rows):
            return
        rows = rows[np.argsort(tracks["slot"][rows], kind="stable")]
        slot = tracks["slot"][rows]
        tracks["id"][rows] = self._next_id[slot] + np.arange(len(rows)) - np.searchsorted(slot, slot)
        self._next_id += np.bincount(slot, minlength=len(self._next_id))

    def _predicted(self, tracks: NDArray[Any], stream: _Stream, frame: Frame) -> Detections:
        """The objects in sight when the stream was last looked at, moved along with their tracks."""
        if stream.last is None:
            return _with_ids(Detections.empty(), np.zeros(0, np.int64))
        tracks = tracks[(tracks["id"] > 0) & (tracks["missed"] == 0) & (tracks["age"] <= self.lost_time)]
        xyxy = clip_boxes(kalman.boxes(tracks).astype(np.float32), frame.width, frame.height)
        inside = (xyxy[:, 2] > xyxy[:, 0]) & (xyxy[:, 3] > xyxy[:, 1])
        tracks, xyxy = tracks[inside], xyxy[inside]
        last = stream.last[tracks["row"]]
        centre = (last.xyxy[:, :2] + last.xyxy[:, 2:]) / 2
        return _moved(last, xyxy, (tracks["position"][:, :2] - centre).astype(np.float32), tracks["id"].copy())


@dataclass
class _Objects:
    """The objects of a batch, frame by frame."""

    xyxy: NDArray[np.float64]
    confidence: NDArray[np.float32]
    class_id: NDArray[np.int32]
    component_id: NDArray[np.int32]
    usable: NDArray[np.bool_]
    frame: NDArray[np.intp]
    start: NDArray[np.intp]
    count: NDArray[np.intp]

    @classmethod
    def of(cls, detections: list[Detections | None]) -> _Objects:
        count = np.array([0 if d is None else len(d) for d in detections])
        full = [d for d in detections if d is not None and len(d)] or [Detections.empty()]
        xyxy = np.concatenate([d.xyxy for d in full]).astype(np.float64)
        usable = np.isfinite(xyxy).all(1) & (xyxy[:, 2] > xyxy[:, 0]) & (xyxy[:, 3] > xyxy[:, 1])
        xyxy[~usable] = 0
        return cls(
            xyxy,
            np.concatenate([d.confidence for d in full]),
            np.concatenate([d.class_id for d in full]),
            np.concatenate([d.component_id for d in full]),
            usable,
            np.repeat(np.arange(len(count)), count),
            np.cumsum(count) - count,
            count,
        )


def _with_ids(detections: Detections, ids: NDArray[np.int64]) -> Detections:
    # A shallow copy by hand, since replace() would check every column again.
    tracked = object.__new__(Detections)
    tracked.__dict__.update(detections.__dict__, tracker_id=ids)
    return tracked


def _moved(last: Detections, xyxy: NDArray[np.float32], by: NDArray[np.float32], ids: NDArray[np.int64]) -> Detections:
    keypoints, obb, mask = last.keypoints, last.obb, last.mask
    if keypoints is not None:
        keypoints[..., :2] += by[:, None]
    if obb is not None:
        obb[:, :2] += by
    if mask is not None:
        steps = np.rint(by).astype(int).tolist()
        mask = [Mask(m.x + x, m.y + y, m.bitmap) for m, (x, y) in zip(mask, steps)]
    data = {**last.data, "predicted": np.ones(len(ids), bool)}
    return replace(last, xyxy=xyxy, tracker_id=ids, keypoints=keypoints, obb=obb, mask=mask, data=data)
