"""One picture of many streams, side by side."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gstinfer.app import sinks
from gstinfer.app.pipeline import link, make
from gstinfer.app.sources import Source
from gstinfer.elements.compat import Gst

__all__ = ["Mosaic", "Tile", "grid"]

WIDTH, HEIGHT, FPS = 1280, 720, 25
"""Of the picture."""

FINISH_SECONDS = 10.0
"""Patience with the encoder at the end."""


def grid(count: int, width: int = WIDTH, height: int = HEIGHT) -> list[tuple[int, int, int, int]]:
    """Places (x, y, width, height) of so many equal tiles, row by row, in as square a grid as they fill.

    Sides are even; the last column and row may leave some black.
    """
    columns = math.ceil(math.sqrt(count)) or 1
    rows = math.ceil(count / columns) or 1
    w, h = width // columns // 2 * 2, height // rows // 2 * 2
    return [(i % columns * w, i // columns * h, w, h) for i in range(count)]


class Mosaic:
    """Writes an MP4 file of all streams that are added.

    Files go on together, by their timestamps. Once one source is live the picture keeps to the clock instead, and a stream
    without a frame shows its last one.

    Args:
        path: MP4 file.
        live: Whether any source is live.
    """

    def __init__(self, path: Path, live: bool) -> None:
        self.path, self.live = path, live
        self._part = path.with_name(f".{path.name}.part")
        self.pipeline = Gst.Pipeline.new(None)
        self.error = ""
        self.written = self.closed = self._finished = False
        self._lock = threading.Lock()
        self._tiles: list[Tile] = []
        self.frames = 0
        caps = f"video/x-raw,format=I420,width={WIDTH},height={HEIGHT},framerate={FPS}/1,pixel-aspect-ratio=1/1"
        extra = {"latency": Gst.SECOND // 5} if live else {}
        self.mixer = make(self.pipeline, "compositor", background="black", **extra)
        entry = sinks.encoder(self.pipeline, self._part)[0]
        link(self.mixer, make(self.pipeline, "capsfilter", caps=caps), entry)
        self._entry = entry.get_static_pad("sink")
        self._counting = self._entry.add_probe(Gst.PadProbeType.BUFFER, self._count)
        self._ground: Any = None
        if live:
            # Streams come and go: black is always there, so that the picture does not end with the last of them.
            self._ground = make(self.pipeline, "videotestsrc", pattern="black", is_live=True)
            link(self._ground, make(self.pipeline, "capsfilter", caps=caps), self.mixer)

    def _count(self, pad: Any, info: Any) -> Any:
        self.frames += 1
        return Gst.PadProbeReturn.OK

    def start(self) -> None:
        """Begins to write; for files, once all their tiles are there."""
        self.pipeline.set_state(Gst.State.PLAYING)

    def add(self, source: Source) -> Tile:
        """A place for a stream; in a live picture it takes it with its first frame. Any thread."""
        tile = Tile(self, source)
        if not self.live:
            self.place(tile)
        return tile

    def place(self, tile: Tile) -> None:
        """Links a tile; the others move up. Any thread."""
        with self._lock:
            tile.link()
            self._tiles.append(tile)
            self._arrange()

    def remove(self, tile: Tile) -> None:
        """Gives a place back. Any thread."""
        with self._lock:
            if tile in self._tiles:
                self._tiles.remove(tile)
                tile.unlink()
                self._arrange()

    def _arrange(self) -> None:
        for tile, (x, y, width, height) in zip(self._tiles, grid(len(self._tiles))):
            for name, value in (("xpos", x), ("ypos", y), ("width", width), ("height", height)):
                tile.pad.set_property(name, value)

    def poll(self, patience: float = 0.0) -> None:
        """Takes what the pipeline said meanwhile; with patience, waits so long for its end."""
        bus = self.pipeline.get_bus()
        deadline = time.monotonic() + patience
        while True:
            wait = 0.0 if self._finished or self.error else max(0.0, deadline - time.monotonic())
            message = bus.timed_pop(int(wait * Gst.SECOND))
            if message is None:
                return
            if message.type == Gst.MessageType.ERROR and not self.error:
                self.error = str(message.parse_error()[0].message)
            elif message.type == Gst.MessageType.EOS:
                self._finished = True
            elif message.type == Gst.MessageType.LATENCY:
                self.pipeline.recalculate_latency()

    def close(self) -> None:
        """Finishes the file."""
        if self.closed:
            return
        self.closed = True
        if self._ground is not None:
            self._ground.send_event(Gst.Event.new_eos())
        self.poll(FINISH_SECONDS)
        self.pipeline.set_state(Gst.State.NULL)
        # The probe holds this object, which would hold the pipeline and its bus for good.
        self._entry.remove_probe(self._counting)
        if not self._finished and not self.error:
            self.error = f"it did not end within {FINISH_SECONDS:g} s"
        if self._finished and not self.error and self.frames:
            self._part.replace(self.path)
            self.written = True
        else:
            self._part.unlink(missing_ok=True)


class Tile:
    """One stream's place in a mosaic."""

    def __init__(self, mosaic: Mosaic, source: Source) -> None:
        self.mosaic, self.source = mosaic, source
        self.pad: Any = None
        self._source: Any = None
        self._chain: list[Any] = []
        self._lock = threading.Lock()
        self._ended = False

    def link(self) -> None:
        """Makes the way into the mixer. A mixer waits for the first frame of everything that is linked to it."""
        mosaic, live = self.mosaic, self.mosaic.live
        source = make(
            mosaic.pipeline, "appsrc", format="time", is_live=live, do_timestamp=live, block=not live, max_buffers=4
        )
        source.set_property("max-bytes", 0)
        if live:
            Gst.util_set_object_arg(source, "leaky-type", "downstream")
        self._source, self._chain = source, [source, make(mosaic.pipeline, "videoconvert")]
        link(*self._chain)
        self.pad = mosaic.mixer.request_pad_simple("sink_%u")
        self.pad.set_property("zorder", 1)
        Gst.util_set_object_arg(self.pad, "sizing-policy", "keep-aspect-ratio")
        self._chain[-1].get_static_pad("src").link(self.pad)
        for element in reversed(self._chain):
            element.sync_state_with_parent()

    def unlink(self) -> None:
        """Takes the way into the mixer away."""
        # The pad first: it lets go of a thread that waits for room in it, which could not stop otherwise.
        self.mosaic.mixer.release_request_pad(self.pad)
        for element in self._chain:
            element.set_state(Gst.State.NULL)
            self.mosaic.pipeline.remove(element)

    def build(self, pipeline: Any, overlay: Mapping[str, Any], on_gpu: bool = False) -> list[Any]:
        """Elements of the stream's own pipeline that draw the results and hand the picture over; see ``sinks.drawing``."""
        paced = [make(pipeline, "clocksync")] if self.mosaic.live and not self.source.live else []
        start = sinks.drawing(pipeline, overlay, on_gpu)
        end = [*paced, make(pipeline, "appsink", sync=False, emit_signals=True, max_buffers=2, **sinks.NO_PREROLL)]
        chain = [*start, *end]
        chain[-1].connect("new-sample", self._hand_over)
        chain[-1].get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, self._ends)
        link(start[-1], *end)
        return chain

    def _hand_over(self, sink: Any) -> Any:
        sample = sink.emit("pull-sample")
        if sample is None:
            return Gst.FlowReturn.EOS
        with self._lock:
            if self._ended:
                return Gst.FlowReturn.EOS
            if self.pad is None:
                self.mosaic.place(self)
        return self._source.emit("push-sample", sample)

    def _ends(self, pad: Any, info: Any) -> Any:
        if info.get_event().type == Gst.EventType.EOS and self._source is not None:
            self._source.emit("end-of-stream")
        return Gst.PadProbeReturn.OK

    def end(self) -> None:
        """The stream is over, and no thread of it waits for room any more; in a live picture the place is given back."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        if self._source is not None:
            self._source.emit("end-of-stream")
        if self.mosaic.live:
            self.mosaic.remove(self)
