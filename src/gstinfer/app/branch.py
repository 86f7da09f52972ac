"""One input of a running job: its pipeline, its counts, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gstinfer
from gstinfer.app import decoding, sinks, sources, window
from gstinfer.app.counts import Clockwork, Counts
from gstinfer.app.devices import Seat
from gstinfer.app.entry import Entry
from gstinfer.app.live import STALL_SECONDS, Connection, most_waiting
from gstinfer.app.mosaic import Tile
from gstinfer.app.pipeline import dismantle, link, make
from gstinfer.app.placement import TURN
from gstinfer.elements.base import BatchElement
from gstinfer.elements.compat import Gst, structure_of
from gstinfer.errors import GstInferError
from gstinfer.frames import Frame
from gstinfer.image import Device

__all__ = ["Branch"]

RUNNING = ("connecting", "playing", "stalled")

FIRST_FRAME_SECONDS = 10.0
"""Patience with a file whose decoder gives nothing, counted from the moment everything else is ready."""

FRAMES_IN_FLIGHT = 8
"""Of a file on a GPU, unless the user says otherwise."""

FINISH_SECONDS = 3.0
"""Patience with the encoder after an error elsewhere."""

STOP_SECONDS = 10.0
"""Patience with a stream that was asked to end."""

COUNTED = ("pyinfer", "pytrack")
"""Elements whose last one tells of its frames."""


class Branch:
    """The pipeline of one input.

    Args:
        source: What runs.
        output: MP4 file to write, or None.
        publish: URLs that messages go to.
        max_frames: Frames after which the stream ends, or None.
        attempts: Failures in a row after which a camera counts as failed; see ``live.Connection``.
        tile: Its place in a picture of many, or None.
        show: Element that opens a window for its pictures, or empty; see ``window.find_sink``.
        updated: Told (branch, spec, error or empty) after each attempt to exchange the model, on the polling thread.

    Attributes:
        seat: The device it runs on and its elements' properties, from ``start`` on; ``then`` among them is a second pyinfer,
            behind the tracker.
        state: ``"ready"``, ``"connecting"``, ``"playing"``, ``"stalled"``, ``"ended"`` or ``"failed"``.
        error: Why it failed, or empty.
        warnings: What elements warned of, once each.
        written: Whether ``output`` was written.
        dropped: Frames of a live source that went because newer ones came before there was room.
    """

    def __init__(
        self,
        source: sources.Source,
        output: Path | None,
        publish: Sequence[str],
        max_frames: int | None,
        *,
        attempts: int | None = None,
        tile: Tile | None = None,
        show: str = "",
        updated: Callable[[Branch, str, str], None] = lambda branch, spec, error: None,
    ) -> None:
        self.source, self.output, self.max_frames = source, output, max_frames
        self.attempts, self.tile, self.show, self.updated = attempts, tile, show, updated
        self.publish = publish
        self.seat: Seat | None = None
        self.counts, self.facts = Counts(), sources.Facts()
        self.state, self.error = "ready", ""
        self.warnings: list[str] = []
        self._broken: list[str] = []
        self.written = False
        self.dropped = 0
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
        self._way: Entry
        self._connection: Connection | None = None
        self._queue: Any = None
        self._arrived = 0
        self._last_arrival = 0.0
        self._seen = 0
        self._clockwork = Clockwork()
        self._polling = threading.Lock()

    @property
    def running(self) -> bool:
        return self.state in RUNNING

    @property
    def entered(self) -> int:
        """Frames that came to the first element so far."""
        return max(self._seen, self._passed, *(element.sequence for element in self._elements[:1]))

    @property
    def element(self) -> Any:
        """The pyinfer of a running branch, or None."""
        return next(iter(self._elements), None) if self.running else None

    @property
    def expected(self) -> int | None:
        """Frames to come in all, as far as known."""
        known = [n for n in (self.facts.frames, self.max_frames) if n is not None]
        return min(known) if known else None

    def probe(self, device: Device) -> None:
        """Looks at the source before anything is opened for writing; a failure is kept in ``error``.

        Args:
            device: Where it may run.
        """
        try:
            self.facts = sources.probe(self.source, device)
        except GstInferError as error:
            self._end(str(error))

    def start(self, seat: Seat) -> None:
        """Builds the pipeline and plays it; a failure is kept in ``error``."""
        with self._polling:
            self.seat = seat
            try:
                properties = self._properties(seat)
                models = filter(None, (properties["pyinfer"], properties.get("then")))
                held = most_waiting(self.source.live) + sum(m.get("frames_in_flight", 1) for m in models)
                self._way = Entry(seat.device, self._warn, self.facts.orientation, held)
                self._play(seat)
            except GstInferError as error:
                self._end(str(error))

    def _properties(self, seat: Seat) -> Mapping[str, Mapping[str, Any] | None]:
        """Of the stream's elements. A file keeps frames in flight on a GPU, so that its batches follow one another."""
        infer = seat.properties["pyinfer"]
        if infer is None or self.source.live or not seat.device.is_cuda:
            return seat.properties
        return {**seat.properties, "pyinfer": {"frames_in_flight": FRAMES_IN_FLIGHT, **infer}}

    def _play(self, seat: Seat) -> None:
        self._build(self._properties(seat), self._way)
        self.state, pipeline = "connecting", self.pipeline
        if pipeline.set_state(Gst.State.PLAYING) == Gst.StateChangeReturn.FAILURE:
            self._look()
            # Another one plays where NVDEC refused the stream.
            if self.pipeline is pipeline:
                self._end("the pipeline cannot start")
            return
        # The model is loaded by now, however long that took.
        self._since = self._last_arrival = time.monotonic()

    def _build(self, properties: Mapping[str, Mapping[str, Any] | None], entry: Entry) -> None:
        pipeline = self.pipeline = Gst.Pipeline.new(None)
        self._elements = []
        if self.source.kind == "rtsp":
            self._connection = Connection(pipeline, self.source.target, entry, self.attempts)
            self._queue = self._connection.queue
        else:
            self._queue = decoding.build(
                pipeline, self.source, self._nothing_found, self._broken.append, self.facts, entry
            )
        # Frames in CUDA memory were brought upright where that was needed: it is done in system memory alone.
        turn = () if entry.on_gpu else TURN
        chain = [self._queue, *(make(pipeline, factory, **values) for factory, values in turn)]
        plan = [(name, properties.get(name, {})) for name in ("pyinfer", "pytrack")]
        plan.append(("pyinfer", properties.get("then")))
        vlm = properties.get("pyvlm")
        if vlm is not None:
            # Of a file every segment is answered, however long that takes.
            patient = {} if self.source.live else {"on_full": "wait", "timeout": 600.0, "drain_timeout": 600.0}
            plan.append(("pyvlm", {"stream_id": self.source.stream_id, **patient, **vlm}))
        full = {"on_full": "drop" if self.source.live else "wait", **(properties.get("pypublish") or {})}
        plan += [("pypublish", {"url": url, **full}) for url in self.publish]
        kept = [(factory, values) for factory, values in plan if values is not None]
        for factory, values in kept:
            element = make(pipeline, factory, **values)
            decoding.name_frames(element, self.source)
            self._elements.append(element)
        self._elements[0].set_property("stream-id", self.source.stream_id)
        chain += self._elements
        self._listen(chain[-1].get_static_pad("src"), [e for e, (name, _) in zip(self._elements, kept) if name in COUNTED])
        overlay = properties.get("pyoverlay") or {}
        if self.tile is not None:
            self._sinks = self.tile.build(pipeline, overlay, entry.on_gpu)
        elif self.show:
            self._sinks = window.show(pipeline, self.show, self._part, overlay, entry.on_gpu)
        elif self._part is None:
            self._sinks = sinks.nowhere(pipeline)
        else:
            self._sinks = sinks.video_file(pipeline, self._part, overlay, entry.on_gpu)
        self._elements += [element for element in self._sinks if isinstance(element, BatchElement)]
        link(*chain, self._sinks[0])

    def _listen(self, end: Any, writers: Sequence[Any]) -> None:
        """Has frames counted, at the queue and behind the last element.

        A probe is Python that runs for each frame in the streaming thread, which with many fast streams costs more than the
        analysis: where nothing else needs one, the last element that writes results tells of its frames.
        """
        kinds, live = Gst.PadProbeType, self.source.live
        entry, exit = (self._queue.get_static_pad(name) for name in ("sink", "src"))
        entry.add_probe(kinds.BUFFER, self._arrive)
        end.add_probe(kinds.EVENT_DOWNSTREAM, self._event)
        if live:
            self._queue.connect("overrun", self._leaked)
        if live or self.max_frames is not None or self._stopping.is_set():
            exit.add_probe(kinds.BUFFER, self._limit)
        if live or not writers:
            end.add_probe(kinds.BUFFER, self._count)
        else:
            writers[-1].tally = self._tally

    def _arrive(self, pad: Any, info: Any) -> Any:
        self._arrived += 1
        self._last_arrival = time.monotonic()
        return Gst.PadProbeReturn.OK if self.source.live else Gst.PadProbeReturn.REMOVE

    def _leaked(self, queue: Any) -> None:
        self.dropped += 1

    def _event(self, pad: Any, info: Any) -> Any:
        self._clockwork.event(info.get_event())
        return Gst.PadProbeReturn.OK

    def _limit(self, pad: Any, info: Any) -> Any:
        """Ends the stream behind the last frame that is wanted: EOS in the frame's own thread, so in its place."""
        if self._stopping.is_set() or self._passed == self.max_frames:
            pad.push_event(Gst.Event.new_eos())
            return Gst.PadProbeReturn.DROP
        self._passed += 1
        return Gst.PadProbeReturn.OK

    def _count(self, pad: Any, info: Any) -> Any:
        try:
            buffer = info.get_buffer()
            self.counts.add(gstinfer.read(buffer))
            self._order(buffer.pts)
            if self.source.live:
                self._clockwork.age(self.pipeline, buffer.pts)
        except GstInferError as error:
            # An exception out of a probe would drop the frame.
            self._warn(str(error))
        return Gst.PadProbeReturn.OK

    def _tally(self, frame: Frame) -> None:
        """A frame was analysed. The thread that writes its results."""
        self.counts.add(frame.results)
        self._order(Gst.CLOCK_TIME_NONE if frame.pts is None else frame.pts)

    def _order(self, pts: int) -> None:
        if not self._clockwork.order(pts):
            self._warn("its timestamps run backwards now and then; such frames are inferred, and left out of video files")

    def _nothing_found(self, reason: str) -> None:
        self._missing = reason

    def stop(self) -> None:
        """Asks the stream to end with its files finished; any thread."""
        if self._deadline is None:
            self._deadline = time.monotonic() + STOP_SECONDS
        self._stopping.set()
        if (queue := self._queue) is not None:
            # Where one is there already, it drops the frames before this one sees them.
            queue.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, self._limit)
        for element in list(self._elements):
            if element.get_factory().get_name() == "pyvlm":
                element.set_property("on-full", "drop-oldest")
                element.set_property("drain-timeout", STOP_SECONDS / 4)
        pipeline = self.pipeline
        if self._connection is None and pipeline is not None:
            pipeline.send_event(Gst.Event.new_eos())

    def poll(self) -> None:
        """Takes what the pipeline said meanwhile; never waits. Any thread; where another one is at it, nothing happens."""
        if not self._polling.acquire(blocking=False):
            return
        try:
            self._look()
        finally:
            self._polling.release()

    def _look(self) -> None:
        bus = self.pipeline.get_bus() if self.pipeline is not None else None
        while bus is not None and self.running and (message := bus.pop()) is not None:
            self._take(message)
        if self.running:
            self._watch()

    def _take(self, message: Any) -> None:
        types = Gst.MessageType
        if message.type == types.ERROR:
            if self._refused_by_nvdec(message):
                return
            if self._connection is not None and self._connection.owns(message.src):
                self._connection.error(*message.parse_error())
            elif self.show and window.closed(message, self._sinks):
                self.stop()
            elif message.src is self.pipeline or message.src.has_as_ancestor(self.pipeline):
                self._fail(self._reason(message), message.src in self._sinks)
            # else it is a word of a connection that is gone
        elif message.type == types.WARNING and isinstance(message.src, BatchElement):
            self._warn(message.parse_warning()[0].message)
        elif message.type == types.EOS:
            self._finished()
        elif message.type == types.LATENCY:
            self.pipeline.recalculate_latency()
        elif message.type == types.ELEMENT:
            structure = structure_of(message)
            if structure.get_name() == "gstinfer-model-updated":
                failed = structure.get_value("status")
                self.updated(self, structure.get_value("model"), structure.get_value("reason") or "it failed" if failed else "")

    def _refused_by_nvdec(self, message: Any) -> bool:
        """Whether the stream begins anew, decoded on the CPU, since NVDEC failed before its first frame."""
        src, entry = message.src, self._way
        if self._arrived or self._stopping.is_set() or isinstance(src, BatchElement) or src in self._sinks:
            return False
        if not entry.refused(str(message.parse_error()[0].message).rstrip(".")):
            return False
        # A camera connects again by itself; from a pipe nothing can be read twice.
        if self._connection is not None or self.source.kind == "stdin" or self.seat is None:
            return False
        dismantle(self.pipeline)
        self._missing = ""
        try:
            self._play(self.seat)
        except GstInferError as error:
            self._end(str(error))
        return True

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _watch(self) -> None:
        now = time.monotonic()
        self.counts.mark(now)
        connection = self._connection
        if connection is not None:
            if self._stopping.is_set() and not self._missing:
                if not connection.ending:
                    connection.end()
            else:
                try:
                    connection.poll(now)
                except GstInferError as error:
                    self._missing = str(error)
                if connection.trouble and not connection.failed:
                    self._warn(f"{connection.trouble}; trying again in {connection.wait:g} s")
                self._missing = self._missing or connection.failed
        if self._missing:
            self._fail(self._missing)
        elif self._deadline is not None and now > self._deadline:
            self._end(self.error or f"it did not end within {STOP_SECONDS:g} s; its files may be incomplete")
        elif not self.entered and not self.source.live and now > self._since + FIRST_FRAME_SECONDS:
            self._fail(f"it cannot be decoded: no frame came within {FIRST_FRAME_SECONDS:g} s")
        if self.running:
            if not self.source.live and self.entered != self._seen:
                self._seen, self._last_arrival = self.entered, now
            self.state = self._present(now)

    def _present(self, now: float) -> str:
        if not self._arrived or (self._connection is not None and not self._connection.connected):
            return "connecting"
        silent = now > self._last_arrival + STALL_SECONDS
        # With frames waiting it is the model that is slow, not the source.
        return "stalled" if silent and not self._queue.get_property("current-level-buffers") else "playing"

    def _reason(self, message: Any) -> str:
        text = str(message.parse_error()[0].message)
        if isinstance(message.src, BatchElement):
            return text
        text = text.rstrip(".")
        if message.src in self._sinks:
            return f"{str(self.output)!r} cannot be written: {text}"
        if "contain enough data" in text:
            text = "it is empty, or ends before its format shows"
        return f"it cannot be decoded: {text}" if not self.counts.frames else f"decoding stopped: {text}"

    def _finished(self) -> None:
        counts, self._complete = self.counts, True
        if self.error:
            self._end(self.error)
        elif self._broken:
            self._end(f"{len(self._broken)} of {self.facts.frames} pictures could not be read; first {self._broken[0]}")
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
        if self._connection is not None:
            self._connection.end()
        pad = self._sinks[0].get_static_pad("sink")
        # The pad may be busy with a frame: not in this thread, which watches the others too.
        threading.Thread(target=pad.send_event, args=(Gst.Event.new_eos(),), daemon=True).start()

    def _end(self, error: str) -> None:
        if self.state in ("ended", "failed"):
            return
        self.error = error
        if self.tile is not None:
            # Before the pipeline stops: its thread may wait for room in the mosaic.
            self.tile.end()
        if self.pipeline is not None:
            self.stats = self._stats()
            dismantle(self.pipeline)
            self._seen = self.entered
            if self._connection is not None:
                self._connection.close()
            self.pipeline = self._queue = None
            if self._part is not None and self.output is not None and self._part.exists():
                if self._complete and self.counts.frames:
                    self._part.replace(self.output)
                    self.written = True
                else:
                    self._part.unlink()
        # Last: whoever waits for the end finds everything done.
        self.state = "failed" if error else "ended"
        self._elements, self._sinks = [], []

    def _stats(self) -> dict[str, dict[str, Any]]:
        """What the elements counted, by the name of their kind; ``then`` is the second pyinfer."""
        found: dict[str, dict[str, Any]] = {}
        for element in list(self._elements):
            name = element.get_factory().get_name()
            found["then" if name == "pyinfer" and name in found else name] = element.stats()
        return found

    def abandon(self) -> None:
        """Stops at once."""
        with self._polling:
            if self.running:
                self._end(self.error or "interrupted")

    def report(self) -> dict[str, Any]:
        """The stream as plain values: its state, rates, lag in seconds, losses, and its elements' ``stats``."""
        elements = self._stats() if self.running else self.stats
        own = elements.get("pyinfer", {})
        lag, late = self._clockwork.lag(), self._clockwork.lag(0.95)
        return {
            "name": self.source.stream_id,
            "source": self.source.text,
            "device": "" if self.seat is None else str(self.seat.device),
            "state": self.state,
            "error": self.error or (self._connection.trouble if self._connection is not None else "") or None,
            "frames": self.counts.frames,
            "inferred": self.counts.inferred,
            "expected": self.expected,
            "objects": sum(self.counts.objects.values()),
            "labels": dict(self.counts.objects),
            "tracks": len(self.counts.tracks),
            "fps": round(self.counts.recent_fps if self.running else self.counts.fps, 2),
            "lag": None if lag is None else round(lag, 4),
            "lag_p95": None if late is None else round(late, 4),
            "skipped": own.get("late-skipped", 0),
            "dropped": self.dropped + own.get("late-dropped", 0) + own.get("dropped", 0),
            "errors": own.get("errors", 0),
            "backward_pts": self._clockwork.backward,
            "reconnects": 0 if self._connection is None else max(0, self._connection.connects - 1),
            "warnings": list(self.warnings),
            "output": None if self.output is None else str(self.output),
            "written": self.written,
            "elements": elements,
        }
