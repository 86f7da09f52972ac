"""One input of a running job: its pipeline, its counts, its end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gstinfer
from gstinfer.app import sinks, sources
from gstinfer.app.pipeline import link, make
from gstinfer.elements.base import BatchElement
from gstinfer.elements.compat import Gst
from gstinfer.errors import GstInferError

__all__ = ["Branch", "Counts"]

FIRST_FRAME_SECONDS = 10.0
"""Patience with a file whose decoder gives nothing, counted from the moment everything else is ready."""

FINISH_SECONDS = 3.0
"""Patience with the encoder after an error elsewhere."""

STOP_SECONDS = 10.0
"""Patience with a stream that was asked to end."""


class Counts:
    """What came out of a stream.

    Attributes:
        frames: Frames behind the last analysing element.
        objects: Objects by label, over all frames.
        tracks: Ids seen.
        first: Monotonic time of the first frame, or None.
        last: Monotonic time of the last one, or None.
    """

    def __init__(self) -> None:
        self.frames = 0
        self.objects: Counter[str] = Counter()
        self.tracks: set[int] = set()
        self.first: float | None = None
        self.last: float | None = None

    def add(self, buffer: Any) -> None:
        """Counts one buffer."""
        self.last = time.monotonic()
        if self.first is None:
            self.first = self.last
        self.frames += 1
        results = gstinfer.read(buffer)
        found = results.detections if results is not None else None
        if results is None or found is None or results.inferred is False:
            return
        self.objects.update(found.named(None).label or [])
        if found.tracker_id is not None:
            self.tracks.update(i for i in found.tracker_id.tolist() if i >= 0)

    @property
    def fps(self) -> float:
        """Frames per second between the first and the last frame."""
        if self.first is None or self.last is None or self.last <= self.first:
            return 0.0
        return (self.frames - 1) / (self.last - self.first)


class Branch:
    """The pipeline of one input.

    Args:
        source: What runs.
        output: MP4 file to write, or None.
        properties: Values by element factory and property name; ``None`` for a factory leaves that element out.
        publish: URLs that messages go to.
        max_frames: Frames after which the stream ends, or None.

    Attributes:
        state: ``"ready"``, ``"playing"``, ``"ended"`` or ``"failed"``.
        error: Why it failed, or None.
        warnings: What elements warned of, once each.
        written: Whether ``output`` was written.
    """

    def __init__(
        self,
        source: sources.Source,
        output: Path | None,
        properties: Mapping[str, Mapping[str, Any] | None],
        publish: Sequence[str],
        max_frames: int | None,
    ) -> None:
        self.source, self.output, self.max_frames = source, output, max_frames
        self.properties, self.publish = properties, publish
        self.counts, self.facts = Counts(), sources.Facts()
        self.state, self.error = "ready", ""
        self.warnings: list[str] = []
        self.written = False
        self.stats: dict[str, dict[str, Any]] = {}
        # A file of that name is replaced only by one that is complete.
        self._part = None if output is None else output.with_name(f".{output.name}.part")
        self._complete = False
        self.pipeline: Any = None
        self._elements: list[Any] = []
        self._sinks: list[Any] = []
        self._stopping = threading.Event()
        self._passed = 0
        self._since = float("inf")
        self._deadline: float | None = None
        self._missing = ""

    @property
    def running(self) -> bool:
        return self.state == "playing"

    @property
    def expected(self) -> int | None:
        """Frames to come in all, as far as known."""
        known = [n for n in (self.facts.frames, self.max_frames) if n is not None]
        return min(known) if known else None

    def probe(self) -> None:
        """Looks at the source before anything is opened for writing; a failure is kept in ``error``."""
        try:
            self.facts = sources.probe(self.source)
        except GstInferError as error:
            self._end(str(error))

    def start(self) -> None:
        """Builds the pipeline and plays it; a failure is kept in ``error``."""
        try:
            self._build()
        except GstInferError as error:
            self._end(str(error))
            return
        self.state = "playing"
        if self.pipeline.set_state(Gst.State.PLAYING) == Gst.StateChangeReturn.FAILURE:
            self.poll()
            if self.running:
                self._end("the pipeline cannot start")
        self._since = time.monotonic()

    def _build(self) -> None:
        pipeline = self.pipeline = Gst.Pipeline.new(None)
        chain = [
            sources.build(pipeline, self.source, self._nothing_found),
            make(pipeline, "videoconvert"),
            make(pipeline, "videoflip", video_direction="auto"),
        ]
        plan = [(name, self.properties.get(name, {})) for name in ("pyinfer", "pytrack")]
        full = {"on_full": "drop" if self.source.live else "wait", **(self.properties.get("pypublish") or {})}
        plan += [("pypublish", {"url": url, **full}) for url in self.publish]
        for factory, values in plan:
            if values is None:
                continue
            element = make(pipeline, factory, **values)
            element.source = self.source.text
            self._elements.append(element)
        self._elements[0].set_property("stream-id", self.source.stream_id)
        chain += self._elements
        entry = chain[0].get_static_pad("src")
        entry.add_probe(Gst.PadProbeType.BUFFER, self._limit)
        chain[-1].get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, self._count)
        if self._part is None:
            self._sinks = sinks.nowhere(pipeline)
        else:
            self._sinks = sinks.video_file(pipeline, self._part, self.properties.get("pyoverlay") or {})
            self._elements.append(self._sinks[1])
        link(*chain, self._sinks[0])

    def _limit(self, pad: Any, info: Any) -> Any:
        """Ends the stream behind the last frame that is wanted: EOS in the frame's own thread, so in its place."""
        if self._stopping.is_set() or self._passed == self.max_frames:
            pad.push_event(Gst.Event.new_eos())
            return Gst.PadProbeReturn.DROP
        self._passed += 1
        return Gst.PadProbeReturn.OK

    def _count(self, pad: Any, info: Any) -> Any:
        try:
            self.counts.add(info.get_buffer())
        except GstInferError as error:
            # An exception out of a probe would drop the frame.
            self._warn(str(error))
        return Gst.PadProbeReturn.OK

    def _nothing_found(self, reason: str) -> None:
        self._missing = reason

    def stop(self) -> None:
        """Asks the stream to end with its files finished; any thread."""
        if self._deadline is None:
            self._deadline = time.monotonic() + STOP_SECONDS
        self._stopping.set()
        if self.pipeline is not None:
            self.pipeline.send_event(Gst.Event.new_eos())

    def poll(self) -> None:
        """Takes what the pipeline said meanwhile; never waits."""
        bus = self.pipeline.get_bus() if self.pipeline is not None else None
        while bus is not None and self.running and (message := bus.pop()) is not None:
            if message.type == Gst.MessageType.ERROR:
                self._fail(self._reason(message), message.src in self._sinks)
            elif message.type == Gst.MessageType.WARNING and isinstance(message.src, BatchElement):
                self._warn(message.parse_warning()[0].message)
            elif message.type == Gst.MessageType.EOS:
                self._finished()
        if self.running:
            self._watch()

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _watch(self) -> None:
        now = time.monotonic()
        if self._missing:
            self._fail(self._missing)
        elif self._deadline is not None and now > self._deadline:
            self._end(self.error or f"it did not end within {STOP_SECONDS:g} s; its files may be incomplete")
        elif not self._passed and not self.source.live and now > self._since + FIRST_FRAME_SECONDS:
            self._fail(f"it cannot be decoded: no frame came within {FIRST_FRAME_SECONDS:g} s")

    def _reason(self, message: Any) -> str:
        text = str(message.parse_error()[0].message)
        if isinstance(message.src, BatchElement):
            return text
        text = text.rstrip(".")
        if message.src in self._sinks:
            return f"{str(self.output)!r} cannot be written: {text}"
        return f"it cannot be decoded: {text}" if not self.counts.frames else f"decoding stopped: {text}"

    def _finished(self) -> None:
        counts, self._complete = self.counts, True
        if self.error:
            self._end(self.error)
        elif not counts.frames and not self._stopping.is_set():
            self._end("it cannot be decoded: no frame came out of it")
        elif self.facts.cut_off and not self._stopping.is_set() and self._passed != self.max_frames:
            about = f" of about {self.facts.frames}" if self.facts.frames else ""
            self._end(f"the file is cut off; {counts.frames}{about} frames could be read")
        else:
            self._end("")

    def _fail(self, reason: str, in_sink: bool = False) -> None:
        """The first error counts. What was drawn so far is still finished as a playable file."""
        if self.error:
            return
        self.error = reason
        if in_sink or self.output is None or not self.counts.frames:
            self._end(reason)
            return
        self._deadline = min(self._deadline or 1e12, time.monotonic() + FINISH_SECONDS)
        pad = self._sinks[0].get_static_pad("sink")
        # The pad may be busy with a frame: not in this thread, which watches the others too.
        threading.Thread(target=pad.send_event, args=(Gst.Event.new_eos(),), daemon=True).start()

    def _end(self, error: str) -> None:
        if self.state in ("ended", "failed"):
            return
        self.error, self.state = error, "failed" if error else "ended"
        if self.pipeline is not None:
            self.stats = {element.get_factory().get_name(): element.stats() for element in self._elements}
            self.pipeline.set_state(Gst.State.NULL)
            self.pipeline = None
            if self._part is not None and self.output is not None and self._part.exists():
                if self._complete and self.counts.frames:
                    self._part.replace(self.output)
                    self.written = True
                else:
                    self._part.unlink()

    def abandon(self) -> None:
        """Stops at once."""
        if self.running:
            self._end(self.error or "interrupted")
