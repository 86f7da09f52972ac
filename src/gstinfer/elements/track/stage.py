"""Gives the objects on frames an identity."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from gstinfer import registry
from gstinfer.errors import ConfigError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.results import Detections, FrameResults
from gstinfer.settings import Settings, option
from gstinfer.trackers import Tracker

__all__ = ["TrackSettings", "TrackStage"]


class TrackSettings(Settings):
    """What a user may set on pytrack."""

    tracker = option(str, "bytetrack", "Name of the tracker, as registered under gstinfer.trackers")
    tracker_args = option(str, "", "Settings of the tracker: key=value,key=value")
    write_meta = option(
        str,
        "auto",
        "Metadata for other elements beside our own: auto, none (carrier), GstAnalytics or regions of interest",
        choices=("auto", "carrier", "analytics", "roi"),
    )


class TrackStage:
    """Puts ``tracker_id`` on the detections of each frame; on frames without inference it puts predicted objects.

    Frames that no inference element saw stay as they are.
    """

    def __init__(self, settings: TrackSettings) -> None:
        self.settings = settings
        self._tracker: Tracker | None = None
        self._lock = Lock()
        self._frames = self._objects = 0

    def start(self) -> None:
        """Makes the tracker.

        Raises:
            UnknownNameError: No such tracker, or it has no such setting.
            ConfigError: Settings that cannot be read.
        """
        factory = registry.find("tracker", self.settings.tracker)
        arguments = _arguments(self.settings.tracker_args)
        try:
            self._tracker = factory(**arguments)
        except TypeError as error:
            raise ConfigError(
                f"tracker {self.settings.tracker!r} cannot be made with {arguments}: {error}", hint="see tracker-args"
            ) from error

    def process(self, batch: FrameBatch) -> None:
        frames = [f for f in batch if f.results.detections is not None or f.results.inferred is not None]
        if self._tracker is None or not frames:
            return
        tracked = self.track([_seen(f.results) for f in frames], frames)
        for frame, detections in zip(frames, tracked):
            if len(detections) or frame.results.detections is not None:
                frame.results.detections = detections

    def track(self, detections: Sequence[Detections | None], frames: Sequence[Frame]) -> list[Detections]:
        """Objects with ids, see ``Tracker.update``. Any thread; frames of one stream in order."""
        assert self._tracker is not None
        with self._lock:
            tracked = self._tracker.update(detections, frames)
            self._frames += len(frames)
            self._objects += sum(map(len, tracked))
        return tracked

    def reset(self, stream_id: str) -> None:
        if self._tracker is not None:
            with self._lock:
                self._tracker.reset(stream_id)

    def stats(self) -> dict[str, int]:
        """Frames looked at and objects on them so far."""
        return {"frames": self._frames, "objects": self._objects}

    def interrupt(self) -> None:
        """Nothing waits here."""

    def stop(self) -> None:
        self._tracker = None


def _seen(results: FrameResults) -> Detections | None:
    """What a tracker is told: None only where inference was skipped and no earlier element left objects."""
    if results.detections is None and results.inferred is not False:
        return Detections.empty()
    return results.detections


def _arguments(text: str) -> dict[str, Any]:
    """Reads ``key=value,key=value``; hyphens in keys are underscores.

    Raises:
        ConfigError: A part without ``=`` or without a key, or a key given twice.
    """
    found: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        name = key.replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"tracker-args: {part!r} is not key=value", hint="write key=value,key=value")
        if name in found:
            raise ConfigError(f"tracker-args: {key!r} is given twice")
        found[name] = value
    return found
