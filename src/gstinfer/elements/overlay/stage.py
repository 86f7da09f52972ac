"""Draws results on frames."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gstinfer.frames import Frame, FrameBatch
from gstinfer.overlay import Overlay, Style
from gstinfer.results import FrameResults, Text
from gstinfer.settings import option

__all__ = ["OverlaySettings", "OverlayStage"]

BOXES_AGE, TEXTS_AGE = 1.0, 10.0


class OverlaySettings(Style):
    """What a user may set on pyoverlay."""

    max_age = option(
        float,
        None,
        "Seconds that results stay on frames without new ones; -1 for 1 (objects, classes, maps) and 10 (texts)",
        minimum=0,
        unset=-1,
        mutable=True,
    )


@dataclass
class _Held:
    """What a stream showed last, and the PTS in ns of the frame it came with."""

    results: FrameResults | None = None
    results_pts: int | None = None
    texts: list[Text] = field(default_factory=list)
    texts_pts: int | None = None


class OverlayStage:
    """Draws on ``frame.image`` in place; ``frame.results`` stays as it is.

    Frames whose inference was skipped show the results of the last frame that had some, up to ``max-age``.
    """

    def __init__(self, settings: OverlaySettings) -> None:
        self.settings = settings
        self._overlay: Overlay | None = None
        self._held: dict[str, _Held] = {}
        self._frames = self._objects = 0

    def start(self) -> None:
        """Finds the font.

        Raises:
            ConfigError: No such font.
        """
        self._overlay = Overlay(self.settings.font)

    def process(self, batch: FrameBatch) -> None:
        if self._overlay is None:
            return
        for frame in batch:
            self._objects += self._overlay.draw(frame.image, self._shown(frame), self.settings)
            self._frames += 1

    def _shown(self, frame: Frame) -> FrameResults:
        """The frame's own results, with those held from earlier frames where it has none."""
        results, settings = frame.results, self.settings
        held = self._held.setdefault(frame.stream_id, _Held())
        # What was said about one object stands at that object, as an attribute.
        texts = [text for text in results.texts if text.tracker_id is None]
        if texts and _newer(texts[-1], held.texts):
            held.texts, held.texts_pts = list(texts[-1:]), frame.pts
        elif held.texts:
            since = held.texts[-1].end if held.texts[-1].end is not None else held.texts_pts
            limit = TEXTS_AGE if settings.max_age is None else settings.max_age
            texts = held.texts = held.texts if _young(since, frame.pts, limit) else []
        empty = results.detections is None and results.segmentation is None and not results.classifications
        if not (empty and results.inferred is False):
            held.results, held.results_pts = results, frame.pts
        elif held.results is not None:
            limit = BOXES_AGE if settings.max_age is None else settings.max_age
            if _young(held.results_pts, frame.pts, limit):
                results = held.results
            else:
                held.results = None
        return results if texts == results.texts else replace(results, texts=texts)

    def reset(self, stream_id: str) -> None:
        self._held.pop(stream_id, None)

    def interrupt(self) -> None:
        """Nothing waits here."""

    def stop(self) -> None:
        self._overlay = None
        self._held.clear()

    def stats(self) -> dict[str, int]:
        """Frames and objects drawn so far."""
        return {"frames": self._frames, "objects": self._objects}


def _newer(text: Text, held: list[Text]) -> bool:
    """Whether a text does not speak of an earlier time than the one held: slow answers may overtake one another."""
    ends = text.end, held[-1].end if held else None
    return None in ends or ends[0] >= ends[1]  # type: ignore[operator]


def _young(since: int | None, now: int | None, limit: float) -> bool:
    """Whether a result of PTS ``since`` still counts at ``now``; without timestamps nothing is held."""
    return since is not None and now is not None and 0 <= now - since <= limit * 1e9
