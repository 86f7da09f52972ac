"""A camera's way into a running pipeline, made anew whenever it is lost."""

from __future__ import annotations

import re
import time
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from gstinfer.app.entry import Entry
from gstinfer.app.pipeline import dismantle, make
from gstinfer.elements.compat import Gst
from gstinfer.errors import ConfigError, GstInferError

__all__ = ["RTSP_SCHEMES", "Connection", "check_url", "entry_queue", "most_waiting", "without_password"]

RTSP_SCHEMES = ("rtsp", "rtsps", "rtspt", "rtspu")
"""Kinds of address: plain (over TCP), encrypted, TCP, UDP."""

STALL_SECONDS = 3.0
"""Without a frame for so long a source counts as stalled."""

SILENCE_SECONDS = 10.0
"""A connection without a frame for so long is given up, and made anew."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
"""Seconds before the first new attempt, doubled with each, and at most."""

FIRST_ATTEMPTS = 5
"""Attempts at a camera that answers and never gave a frame, unless the user says otherwise."""

FIRST_SECONDS = 6.0
"""Patience with an address that nobody ever answered, unless the user says otherwise."""

BACKLOG = 30
"""Frames of a live source that wait at most; the oldest goes when another comes."""

AHEAD = 4
"""Frames of a file that wait at most."""

_numbers = count(1)


def without_password(text: str) -> str:
    """An address as it may be shown: who logs in, but not with what."""
    try:
        password = urlsplit(text).password
    except ValueError:
        # No address at all: nothing of what stands before the host is safe to show.
        return re.sub(r"//.*@", "//***@", text)
    return text if password is None else text.replace(f":{password}@", ":***@", 1)


def most_waiting(live: bool) -> int:
    """Frames that wait at most behind a source."""
    return BACKLOG if live else AHEAD


def entry_queue(pipeline: Any, live: bool) -> Any:
    """The queue behind a source: a file waits for room in it, a camera never does."""
    leaky = {"leaky": "downstream"} if live else {}
    return make(pipeline, "queue", max_size_buffers=most_waiting(live), max_size_bytes=0, max_size_time=0, **leaky)


class Connection:
    """Connects to an RTSP server, again after every loss, with waits that grow from one second to thirty.

    What is behind the queue never notices but for a new STREAM_START: an EOS of the server ends there. All methods but
    ``owns`` belong to the thread that polls the branch.

    Args:
        pipeline: Where the elements go.
        url: Address, with name and password.
        entry: Chooses its decoder.
        attempts: Failures in a row that end it, 0 for no end. None: six seconds where nobody ever answered, five failures
            before the first frame, no end after it.

    Attributes:
        queue: What frames come out of.
        failed: Why no further attempt is made, or empty.
        trouble: Why the last connection was lost, until a frame comes; else empty.
        connects: Connections that gave frames.
        ending: Whether ``end`` was called.
    """

    def __init__(self, pipeline: Any, url: str, entry: Entry, attempts: int | None = None) -> None:
        self.pipeline, self.url, self.entry, self.attempts = pipeline, url, entry, attempts
        self.failed = self.trouble = ""
        self.connects = self.losses = 0
        self.queue = entry_queue(pipeline, live=True)
        self._sink = self.queue.get_static_pad("sink")
        self._sink.add_probe(Gst.PadProbeType.BUFFER | Gst.PadProbeType.EVENT_DOWNSTREAM, self._seen)
        self._bin: Any = None
        self.ending = False
        self._ended: str | None = None
        self._in_a_row = 0
        self._again = self._first = 0.0
        self._answered = False
        self._last = 0.0
        self._frames = 0
        self._counted = False

    @property
    def connected(self) -> bool:
        """Whether the connection that is open has given a frame."""
        return self._bin is not None and self._frames > 0

    def open(self) -> None:
        """Makes the elements and begins to connect.

        Raises:
            ConfigError: An element is missing.
        """
        box = Gst.Bin.new(f"camera-{next(_numbers)}")
        # What starts inside must not pull the whole pipeline out of PLAYING.
        box.set_property("async-handling", True)
        scheme = urlsplit(self.url).scheme.lower()
        source = make(
            box, "rtspsrc", location=self.url, latency=200, drop_on_latency=True, tcp_timeout=5_000_000, timeout=5_000_000
        )
        if scheme == "rtsp":
            # A lost packet of UDP is a broken picture; a firewall in between lets TCP pass.
            Gst.util_set_object_arg(source, "protocols", "tcp")
        decoder = make(box, "decodebin")
        source.connect("on-sdp", self._described)
        source.connect("select-stream", lambda _, number, caps: "media=(string)video" in caps.to_string())
        source.connect("pad-added", self._stream_found, decoder)
        source.connect("no-more-pads", self._all_found, decoder)
        decoder.connect("pad-added", self._decoded, box)
        self.entry.watch(decoder)
        self._bin, self._ended, self._frames, self._counted = box, None, 0, False
        self._last = time.monotonic()
        self._first = self._first or self._last
        self.pipeline.add(box)
        box.sync_state_with_parent()

    def _described(self, source: Any, description: Any) -> None:
        self._answered = True

    def _stream_found(self, source: Any, pad: Any, decoder: Any) -> None:
        sink = decoder.get_static_pad("sink")
        if not sink.is_linked():
            pad.link(sink)

    def _all_found(self, source: Any, decoder: Any) -> None:
        if not decoder.get_static_pad("sink").is_linked():
            self._ended = "it has no video stream"

    def _decoded(self, decoder: Any, pad: Any, box: Any) -> None:
        caps = pad.get_current_caps() or pad.query_caps(None)
        if caps.to_string().startswith("video/x-raw") and not self._sink.is_linked():
            try:
                out = self.entry.bring(box, pad, caps)
            except GstInferError as error:
                self._ended = str(error)
                return
            ghost = Gst.GhostPad.new("src", out)
            ghost.set_active(True)
            box.add_pad(ghost)
            ghost.link(self._sink)

    def _seen(self, pad: Any, info: Any) -> Any:
        if info.type & Gst.PadProbeType.BUFFER:
            self._last = time.monotonic()
            self._frames += 1
        elif info.get_event().type == Gst.EventType.EOS and not self.ending:
            self._ended = "the server ended the stream"
            return Gst.PadProbeReturn.DROP
        return Gst.PadProbeReturn.OK

    def owns(self, element: Any) -> bool:
        """Whether an element is part of the connection that is open."""
        return self._bin is not None and element is not None and element.has_as_ancestor(self._bin)

    def error(self, error: Any, debug: str) -> None:
        """An element of the connection posted an error."""
        text, final = _reason(error, debug)
        self._lose(text, final and not self.connects)

    def poll(self, now: float) -> None:
        """Notices silence, and connects again when it is time."""
        if self.failed or self.ending:
            return
        if self._bin is None:
            if now >= self._again:
                self.open()
            return
        if self._frames and not self._counted:
            self._counted = True
            self.connects += 1
            self.trouble, self._in_a_row = "", 0
        if self._ended is not None:
            self._lose(self._ended, self._ended == "it has no video stream")
        elif now > self._last + SILENCE_SECONDS:
            self._lose(f"no frame came within {SILENCE_SECONDS:g} s")
        elif self._forlorn(now):
            self._lose(f"no server answers there within {FIRST_SECONDS:g} s", final=True)

    def _forlorn(self, now: float) -> bool:
        """Whether nobody ever answered, and that for long enough."""
        return self.attempts is None and not self._answered and now >= self._first + FIRST_SECONDS

    def _lose(self, reason: str, final: bool = False) -> None:
        if self._bin is None:
            return
        if self._frames:
            self._in_a_row = 0
        self._drop()
        self.trouble = reason
        self.losses += 1
        self._in_a_row += 1
        limit = self.attempts
        if limit is None:
            limit = 0 if self.connects else FIRST_ATTEMPTS
        if final or (limit and self._in_a_row >= limit):
            self.failed = reason if final or limit == 1 else f"{reason} (after {self._in_a_row} attempts)"
            return
        self._again = time.monotonic() + self.wait
        if self._forlorn(self._again):
            times = f"{self._in_a_row} attempt{'s' * (self._in_a_row > 1)}"
            self.failed = f"{reason} (after {times} in {time.monotonic() - self._first:.0f} s)"

    @property
    def wait(self) -> float:
        """Seconds between the last loss and the next attempt."""
        return float(min(LONGEST_WAIT, FIRST_WAIT * 2 ** max(0, self._in_a_row - 1)))

    def stalled(self, now: float) -> bool:
        """Whether it once gave frames, and has none for some seconds."""
        return self.connected and now > self._last + STALL_SECONDS

    def _drop(self) -> None:
        box, self._bin = self._bin, None
        if box is None:
            return
        # The queue leaks, so no thread inside can be stuck in it.
        dismantle(box)
        if box.get_parent() is not None:
            self.pipeline.remove(box)

    def end(self) -> None:
        """Ends the stream: what is in the queue still passes, then EOS."""
        self.ending = True
        self._drop()
        if not self._sink.get_sticky_event(Gst.EventType.STREAM_START, 0):
            self._sink.send_event(Gst.Event.new_stream_start("none"))
        self._sink.send_event(Gst.Event.new_eos())

    def close(self) -> None:
        """Lets go of the pipeline, once it has stopped: its probe holds this object, which would hold it for good."""
        self._drop()
        self.pipeline = self.queue = self._sink = None


def _reason(error: Any, debug: str) -> tuple[str, bool]:
    """An error of the connection for people, and whether another attempt would be in vain."""
    text = str(error.message).rstrip(".")
    codes = Gst.ResourceError
    if error.matches(Gst.ResourceError.quark(), codes.NOT_FOUND) and "404" in debug:
        return "the server has no such stream (404)", True
    if error.matches(Gst.ResourceError.quark(), codes.NOT_AUTHORIZED):
        return "the server refuses name and password (401); write them as rtsp://NAME:PASSWORD@HOST/PATH", True
    if "Could not resolve" in debug or "resolving" in debug:
        return "its host is not known", False
    if error.matches(Gst.ResourceError.quark(), codes.OPEN_READ_WRITE):
        return "no server answers there", False
    return f"the connection failed: {text}", False


def check_url(url: str) -> None:
    """Refuses an address without a host.

    Raises:
        ConfigError: It has none, or its port is no number.
    """
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{without_password(url)!r} is no address of a camera", hint="write rtsp://HOST[:PORT]/PATH")
