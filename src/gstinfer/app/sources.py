"""What a user names as input, looked at before anything runs, and the elements that decode it."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gstinfer.app import colors, pictures
from gstinfer.app.live import RTSP_SCHEMES, check_url, entry_queue, without_password
from gstinfer.app.pipeline import apt_hint, link, make
from gstinfer.elements.compat import GLib, Gst, structure_of
from gstinfer.errors import ConfigError, HostError, UnknownNameError

__all__ = ["Facts", "Source", "build", "name_frames", "parse", "parse_all", "patterns", "probe"]

TEST_OPTIONS = ("width", "height", "fps", "frames", "live")
CAMERA_OPTIONS = ("width", "height", "fps")

STDIN = "/dev/stdin"

PROBE_SECONDS = 4
"""Patience with a file that says nothing about itself."""


@dataclass(frozen=True)
class Source:
    """An input.

    Attributes:
        text: As the user wrote it, but for a password.
        kind: ``"file"``, ``"pictures"``, ``"stdin"``, ``"camera"``, ``"rtsp"`` or ``"test"``.
        target: Path, address or pattern.
        stream_id: Its name, unique within a job.
        options: Of a test picture: width, height, fps, frames, live; of a camera: width, height, fps; of pictures: fps.
        files: Of pictures, in order.
    """

    text: str
    kind: str
    target: str
    stream_id: str
    options: tuple[tuple[str, int], ...] = ()
    files: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether frames come at their own pace and cannot be held back."""
        return self.kind in ("rtsp", "camera") or bool(dict(self.options).get("live"))


@dataclass(frozen=True)
class Facts:
    """What is known about a source before it runs.

    Attributes:
        duration: ns, or None.
        fps: Frames per second, or None.
        frames: How many to expect, or None.
        cut_off: Whether the file ends before its own tables say.
        colorimetry: Of the pixels, where the decoder would say it wrongly; else empty.
    """

    duration: int | None = None
    fps: float | None = None
    frames: int | None = None
    cut_off: bool = False
    colorimetry: str = ""


def parse(text: str) -> Source:
    """Reads one input.

    A path of a video, a picture or a folder of pictures, ``file://PATH``, ``images:PATH?fps=5`` for pictures at another rate,
    ``-`` for standard input, ``v4l2:/dev/video0``, ``rtsp://...`` or ``test:PATTERN?width=64&height=64``.

    Raises:
        ConfigError: Empty, or options that do not fit.
        UnknownNameError: A kind of address or a pattern that is not known.
    """
    if not text:
        raise ConfigError("an input is empty", hint="name a file, or test:smpte")
    if text == "-":
        return Source("standard input", "stdin", text, "stdin")
    kind, colon, rest = text.partition(":")
    if colon and kind == "test":
        return _test(text)
    if colon and kind == "images":
        path, options = _options(text, rest, "pictures", ("fps",))
        if _is_pattern(path):
            found = [p for p in _matches(path) if pictures.is_picture(p)]
            return _pictures(text, os.path.dirname(path), found, options)
        return _pictures(text, path, pictures.in_folder(path) if os.path.isdir(path) else [path], options)
    if (colon and kind == "v4l2") or re.fullmatch(r"/dev/video\d+", text):
        path, options = _options(text, rest if colon else text, "a camera", CAMERA_OPTIONS)
        return Source(text, "camera", path or "/dev/video0", _name(path or "video0"), options)
    if text.startswith("file://"):
        return _file(text, unquote(text[len("file://") :].removeprefix("localhost")))
    scheme = re.match(r"([a-z][a-z0-9+.-]*)://", text, re.IGNORECASE)
    if scheme and scheme[1].lower() in RTSP_SCHEMES:
        check_url(text)
        parts = urlsplit(text)
        return Source(without_password(text), "rtsp", text, _name(parts.path.strip("/") or str(parts.hostname)))
    if scheme:
        known = ["file", *RTSP_SCHEMES, "images", "test", "v4l2"]
        raise UnknownNameError("kind of input", scheme[1], known, hint="name a file, or test:PATTERN")
    return _file(text, text)


def _file(text: str, path: str) -> Source:
    if os.path.isdir(path):
        return _pictures(text, path, pictures.in_folder(path))
    if pictures.is_picture(path):
        return _pictures(text, path, [path])
    return Source(text, "file", path, _name(path))


def _pictures(text: str, path: str, files: Sequence[str], options: tuple[tuple[str, int], ...] = ()) -> Source:
    name = Path(os.path.abspath(path)).name if os.path.isdir(path) or not path else _name(path)
    return Source(text, "pictures", path or ".", name or "pictures", options, tuple(files))


def _is_pattern(path: str) -> bool:
    return glob.has_magic(path) and not os.path.exists(path)


def _matches(pattern: str) -> list[str]:
    """Files that a pattern names, in order.

    Raises:
        ConfigError: None.
    """
    found = pictures.in_order([p for p in glob.glob(pattern, recursive=True) if not os.path.isdir(p)])
    if not found:
        raise ConfigError(f"no file matches {pattern!r}")
    return found


def _expand(text: str) -> list[Source]:
    """An input; or those that a pattern such as ``clips/*.mp4`` names: each video, and all pictures as one stream."""
    if re.match(r"(test|images|v4l2):|[a-z][a-z0-9+.-]*://", text, re.IGNORECASE) or not _is_pattern(text):
        return [parse(text)]
    found = _matches(text)
    still = [path for path in found if pictures.is_picture(path)]
    sources = [Source(path, "file", path, _name(path)) for path in found if path not in set(still)]
    return ([_pictures(text, os.path.dirname(text), still)] if still else []) + sources


def parse_all(texts: Sequence[str]) -> list[Source]:
    """Several inputs, patterns expanded; two of one name get ``-2``, ``-3`` ... behind it."""
    taken: set[str] = set()
    sources = []
    for source in (source for text in texts for source in _expand(text)):
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
    pattern, options = _options(text, text.removeprefix("test:"), "a test input", TEST_OPTIONS)
    known = patterns()
    if pattern not in known:
        raise UnknownNameError("test pattern", pattern, known)
    return Source(text, "test", pattern, pattern, options)


def _options(text: str, rest: str, owner: str, known: Sequence[str]) -> tuple[str, tuple[tuple[str, int], ...]]:
    """``TARGET?name=number&...`` in two."""
    # A question mark may be part of a name or a pattern.
    match = None if os.path.exists(rest) else re.fullmatch(r"(.*?)\?(\w*=[^?*/]*)", rest)
    target, query = match.groups() if match else (rest, "")
    options = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise UnknownNameError(f"option of {owner}", key, known)
        if not value.isdecimal() or not 0 < int(value) < 2**31:
            raise ConfigError(f"{key}={value!r} in {text!r} is not a positive number")
        options.append((key, int(value)))
    return target, tuple(options)


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
    if source.kind == "stdin":
        if sys.stdin is None or sys.stdin.isatty():
            raise HostError("it is a terminal, not a video", hint="cat VIDEO | gstinfer run - ...")
        if not _stdin_is_file():
            return Facts()
        source = replace(source, target=STDIN)
    if source.kind == "camera":
        _check_camera(source.target)
        return Facts(fps=float(dict(source.options).get("fps", 0)) or None)
    if source.kind == "pictures":
        if not source.files:
            raise HostError("there is no picture in it", hint=f"for its videos name {os.path.join(source.target, '*.mp4')}")
        if len(source.files) == 1:
            _check_file(source.files[0])
            pictures.open_picture(source.files[0])
        return Facts(fps=float(dict(source.options).get("fps", pictures.FPS)), frames=len(source.files))
    _check_file(source.target)
    return _discover(source.target)


def _stdin_is_file() -> bool:
    """Whether standard input is a file, in which a demuxer can seek, and no pipe."""
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def _check_file(path: str) -> None:
    try:
        # Opening a pipe waits for its writer.
        size = os.stat(path).st_size if not os.path.isfile(path) else None
        if size is None:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
    except OSError as error:
        reason = {"ENOENT": "no such file", "EACCES": "no permission to read it"}
        raise HostError(reason.get(_errno_name(error), error.strerror or str(error))) from error
    if size == 0 and os.path.isfile(path):
        raise HostError("the file is empty (0 bytes)")


QUERY_CAPABILITIES = 0x80685600
"""VIDIOC_QUERYCAP of Linux's videodev2.h, which fills a struct of 104 bytes."""

CAPTURES = 0x1 | 0x1000
"""V4L2_CAP_VIDEO_CAPTURE and V4L2_CAP_VIDEO_CAPTURE_MPLANE."""


def _check_camera(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        there = pictures.in_order(glob.glob("/dev/video*"))
        raise HostError("no such camera", hint=f"there is {', '.join(there)}" if there else "no camera is connected") from None
    except PermissionError:
        raise HostError("no permission to use it", hint="sudo usermod -aG video $USER, then log in again") from None
    except OSError as error:
        raise HostError(f"it cannot be opened: {error.strerror}") from error
    found = bytearray(104)
    try:
        fcntl.ioctl(descriptor, QUERY_CAPABILITIES, found)
    except OSError:
        raise HostError("it is no camera") from None
    finally:
        os.close(descriptor)
    # capabilities of the whole device; device_caps of this node, where the flag says that they are there
    whole, node = struct.unpack_from("<II", found, 84)
    if not (node if whole & 0x80000000 else whole) & CAPTURES:
        raise HostError("it is a video device that captures nothing", hint="cameras have several devices; try the others")


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
    complete, boxes = _mp4_boxes(path)
    if complete is False and b"moov" not in boxes and b"moof" not in boxes:
        raise HostError("the file is cut off before its index (moov); it cannot be read")
    try:
        info = GstPbutils.Discoverer.new(PROBE_SECONDS * Gst.SECOND).discover_uri(Gst.filename_to_uri(path))
    except GLib.Error as error:
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
    colorimetry = "" if complete is None else colors.full_range(path, video.get_caps())
    return Facts(duration if known else None, fps, frames, complete is False, colorimetry)


def _mp4_boxes(path: str) -> tuple[bool | None, set[bytes]]:
    """Whether the boxes of an MP4 file all end within it, None where it is no MP4 file; and the names of those that do."""
    names: set[bytes] = set()
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            file.seek(position)
            head = file.read(16)
            if position == 0 and head[4:8] != b"ftyp":
                return None, names
            if len(head) < 8:
                return False, names
            length = struct.unpack(">I", head[:4])[0]
            if length == 1 and len(head) == 16:
                length = struct.unpack(">Q", head[8:])[0]
            if length and length < 8:
                return None, names
            position = position + length if length else size
            if position <= size:
                names.add(head[4:8])
        return position == size, names


def build(
    pipeline: Any,
    source: Source,
    nothing_found: Callable[[str], None],
    broken: Callable[[str], None] = lambda text: None,
    colorimetry: str = "",
) -> Any:
    """Adds the elements that decode a source; for an RTSP camera there is ``live.Connection``.

    Args:
        pipeline: The ``Gst.Pipeline``.
        source: What to decode.
        nothing_found: Told the reason, on a streaming thread, when decoding finds no video.
        broken: Told ``FILE: REASON``, on a streaming thread, of each of several pictures that cannot be read.
        colorimetry: Of ``Facts``.

    Returns:
        The last element; raw video of any format in system memory comes out of it.
    """
    queue = entry_queue(pipeline, source.live)
    options = dict(source.options)
    if source.kind == "pictures":
        feeder = pictures.Feeder(pipeline, source.files, options.get("fps", pictures.FPS), broken)
        link(feeder.element, queue)
        return queue
    if source.kind == "test":
        test = make(
            pipeline, "videotestsrc",
            pattern=source.target, num_buffers=options.get("frames", -1), is_live=source.live,
        )  # fmt: skip
        size = f"width={options.get('width', 640)},height={options.get('height', 480)}"
        caps = make(pipeline, "capsfilter", caps=f"video/x-raw,{size},framerate={options.get('fps', 30)}/1")
        link(test, caps, queue)
        return queue
    if source.kind == "camera":
        wished = "".join(f",{key}={options[key]}" for key in ("width", "height") if key in options)
        wished += f",framerate={options['fps']}/1" if "fps" in options else ""
        kinds = "; ".join(f"{kind}{wished}" for kind in ("video/x-raw", "image/jpeg", "video/x-h264"))
        start = [make(pipeline, "v4l2src", device=source.target), make(pipeline, "capsfilter", caps=kinds)]
    elif source.kind == "stdin" and not _stdin_is_file():
        start = [make(pipeline, "fdsrc", fd=0)]
    else:
        start = [make(pipeline, "filesrc", location=STDIN if source.kind == "stdin" else source.target)]
    decoder = make(pipeline, "decodebin")
    entry = queue
    if colorimetry:
        entry = make(pipeline, "capssetter", caps=f"video/x-raw,colorimetry=(string){colorimetry}")
        link(entry, queue)
    sink = entry.get_static_pad("sink")

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
    link(*start, decoder)
    return queue


def name_frames(element: Any, source: Source) -> None:
    """Makes an element name each picture's own file as the frame's source."""
    element.source = source.text
    if source.kind != "pictures":
        return
    fps = dict(source.options).get("fps", pictures.FPS)

    def arrive(pad: Any, info: Any) -> Any:
        element.source = pictures.file_of(source.files, fps, info.get_buffer().pts)
        return Gst.PadProbeReturn.OK

    element.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, arrive)
