"""What a user names as input, looked at before anything runs, and the elements that decode it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gstinfer.app.live import RTSP_SCHEMES, check_url, entry_queue, without_password
from gstinfer.app.pipeline import apt_hint, link, make
from gstinfer.elements.compat import GLib, Gst, structure_of
from gstinfer.errors import ConfigError, HostError, UnknownNameError

__all__ = ["Facts", "Source", "build", "parse", "parse_all", "patterns", "probe"]

TEST_OPTIONS = ("width", "height", "fps", "frames", "live")

PROBE_SECONDS = 4
"""Patience with a file that says nothing about itself."""


@dataclass(frozen=True)
class Source:
    """An input.

    Attributes:
        text: As the user wrote it, but for a password.
        kind: ``"file"``, ``"rtsp"`` or ``"test"``.
        target: Path, address or pattern.
        stream_id: Its name, unique within a job.
        options: Of a test picture: width, height, fps, frames, live.
    """

    text: str
    kind: str
    target: str
    stream_id: str
    options: tuple[tuple[str, int], ...] = ()

    @property
    def live(self) -> bool:
        """Whether frames come at their own pace and cannot be held back."""
        return self.kind == "rtsp" or bool(dict(self.options).get("live"))


@dataclass(frozen=True)
class Facts:
    """What is known about a source before it runs.

    Attributes:
        duration: ns, or None.
        fps: Frames per second, or None.
        frames: How many to expect, or None.
        cut_off: Whether the file ends before its own tables say.
    """

    duration: int | None = None
    fps: float | None = None
    frames: int | None = None
    cut_off: bool = False


def parse(text: str) -> Source:
    """Reads an input: a file's path, ``file://PATH``, ``rtsp://...`` or ``test:PATTERN?width=64&height=64``.

    Raises:
        ConfigError: Empty, or a test picture with options that do not fit.
        UnknownNameError: A kind of address or a pattern that is not known.
    """
    if not text:
        raise ConfigError("an input is empty", hint="name a file, or test:smpte")
    if text.startswith("test:"):
        return _test(text)
    if text.startswith("file://"):
        path = unquote(text[len("file://") :].removeprefix("localhost"))
        return Source(text, "file", path, _name(path))
    scheme = re.match(r"([a-z][a-z0-9+.-]*)://", text, re.IGNORECASE)
    if scheme and scheme[1].lower() in RTSP_SCHEMES:
        check_url(text)
        parts = urlsplit(text)
        return Source(without_password(text), "rtsp", text, _name(parts.path.strip("/") or str(parts.hostname)))
    if scheme:
        known = ["file", *RTSP_SCHEMES, "test"]
        raise UnknownNameError("kind of input", scheme[1], known, hint="name a file, or test:PATTERN")
    return Source(text, "file", text, _name(text))


def parse_all(texts: Sequence[str]) -> list[Source]:
    """Several inputs; two of one name get ``-2``, ``-3`` ... behind it."""
    taken: set[str] = set()
    sources = []
    for source in map(parse, texts):
        name, number = source.stream_id, 1
        while name in taken:
            number += 1
            name = f"{source.stream_id}-{number}"
        taken.add(name)
        sources.append(replace(source, stream_id=name))
    return sources


def patterns() -> list[str]:
    """The names of videotestsrc's pictures."""
    element = Gst.ElementFactory.make("videotestsrc")
    if element is None:
        raise ConfigError("GStreamer has no element 'videotestsrc'", hint=apt_hint("gstreamer1.0-plugins-base"))
    values = type(element.get_property("pattern")).__enum_values__.values()
    return [value.value_nick for value in values]


def _test(text: str) -> Source:
    pattern, _, query = text.removeprefix("test:").partition("?")
    known = patterns()
    if pattern not in known:
        raise UnknownNameError("test pattern", pattern, known)
    options = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in TEST_OPTIONS:
            raise UnknownNameError("option of a test input", key, TEST_OPTIONS)
        if not value.isdecimal() or not 0 < int(value) < 2**31:
            raise ConfigError(f"{key}={value!r} in {text!r} is not a positive number")
        options.append((key, int(value)))
    return Source(text, "test", pattern, pattern, tuple(options))


def _name(path: str) -> str:
    return Path(path).stem or "stream"


def probe(source: Source) -> Facts:
    """Looks at a source without running it, in milliseconds.

    Raises:
        HostError: It is missing, empty, has no video, or cannot be decoded.
    """
    if source.kind == "test":
        options = dict(source.options)
        return Facts(fps=float(options.get("fps", 30)), frames=options.get("frames"))
    if source.kind == "rtsp":
        return Facts()
    path = source.target
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except IsADirectoryError:
        raise HostError("it is a folder, not a file", hint="name a video file") from None
    except OSError as error:
        reason = {"ENOENT": "no such file", "EACCES": "no permission to read it"}
        raise HostError(reason.get(_errno_name(error), error.strerror or str(error))) from error
    if size == 0 and os.path.isfile(path):
        raise HostError("the file is empty (0 bytes)")
    return _discover(path)


def _errno_name(error: OSError) -> str:
    import errno

    return errno.errorcode.get(error.errno or 0, "")


def _discover(path: str) -> Facts:
    try:
        import gi

        gi.require_version("GstPbutils", "1.0")
        from gi.repository import GstPbutils
    except (ImportError, ValueError) as error:
        raise ConfigError("GstPbutils is missing", hint=apt_hint("gir1.2-gst-plugins-base-1.0")) from error
    complete = _mp4_complete(path)
    try:
        info = GstPbutils.Discoverer.new(PROBE_SECONDS * Gst.SECOND).discover_uri(Gst.filename_to_uri(path))
    except GLib.Error as error:
        if complete is False:
            raise HostError("the file is cut off before its index (moov); it cannot be read") from error
        raise HostError(f"it cannot be decoded: {error.message.rstrip('.')}") from error
    if info.get_result() == GstPbutils.DiscovererResult.TIMEOUT:
        raise HostError(f"it cannot be decoded: nothing came out of it within {PROBE_SECONDS} s")
    audio = info.get_audio_streams()
    videos = [v for v in info.get_video_streams() if not (audio and v.is_image())]
    if not videos:
        raise HostError("it has no video stream" + (", only audio" if audio else ""))
    video = videos[0]
    if info.get_result() == GstPbutils.DiscovererResult.MISSING_PLUGINS:
        caps = video.get_caps()
        format = structure_of(caps, 0).get_name() if caps else "its format"
        raise HostError(f"no decoder for {format} is installed", hint=apt_hint("gstreamer1.0-libav"))
    duration = info.get_duration()
    known = 0 < duration < Gst.CLOCK_TIME_NONE
    numerator, denominator = video.get_framerate_num(), video.get_framerate_denom()
    fps = numerator / denominator if numerator > 0 and denominator > 0 else None
    frames = max(1, round(duration / Gst.SECOND * fps)) if known and fps else 1 if video.is_image() else None
    return Facts(duration if known else None, fps, frames, complete is False)


def _mp4_complete(path: str) -> bool | None:
    """Whether the boxes of an MP4 file all end within it; None where it is no MP4 file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            file.seek(position)
            head = file.read(16)
            if position == 0 and head[4:8] != b"ftyp":
                return None
            if len(head) < 8:
                return False
            length = struct.unpack(">I", head[:4])[0]
            if length == 1 and len(head) == 16:
                length = struct.unpack(">Q", head[8:])[0]
            if length == 0:
                return True
            if length < 8:
                return None
            position += length
        return position == size


def build(pipeline: Any, source: Source, nothing_found: Callable[[str], None]) -> Any:
    """Adds the elements that decode a source; for a camera there is ``live.Connection``.

    Args:
        pipeline: The ``Gst.Pipeline``.
        source: What to decode.
        nothing_found: Told the reason, on a streaming thread, when decoding finds no video.

    Returns:
        The last element; raw video of any format in system memory comes out of it.
    """
    queue = entry_queue(pipeline, source.live)
    if source.kind == "test":
        options = dict(source.options)
        test = make(
            pipeline, "videotestsrc",
            pattern=source.target, num_buffers=options.get("frames", -1), is_live=source.live,
        )  # fmt: skip
        size = f"width={options.get('width', 640)},height={options.get('height', 480)}"
        caps = make(pipeline, "capsfilter", caps=f"video/x-raw,{size},framerate={options.get('fps', 30)}/1")
        link(test, caps, queue)
        return queue
    file = make(pipeline, "filesrc", location=source.target)
    decoder = make(pipeline, "decodebin")
    sink = queue.get_static_pad("sink")

    def pad_added(_: Any, pad: Any) -> None:
        caps = pad.get_current_caps() or pad.query_caps(None)
        if caps.to_string().startswith("video/x-raw") and not sink.is_linked():
            pad.link(sink)

    def no_more_pads(_: Any) -> None:
        if not sink.is_linked():
            nothing_found("it has no video stream")

    # Sound is not decoded: its pad comes out encoded, and stays unlinked.
    decoder.connect("autoplug-continue", lambda _, pad, caps: not caps.to_string().startswith("audio/"))
    decoder.connect("pad-added", pad_added)
    decoder.connect("no-more-pads", no_more_pads)
    # decodebin passes a JPEG to its decoder as it is; only the parser reads how the camera was held.
    link(file, *([make(pipeline, "jpegparse")] if _is_jpeg(source.target) else []), decoder)
    return queue


def _is_jpeg(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(3) == b"\xff\xd8\xff"
