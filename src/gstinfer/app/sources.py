"""What a user names as input, looked at before anything runs."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import stat
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from gstinfer.app import colors, pictures
from gstinfer.app.entry import ORIENTATION, prefer_cpu
from gstinfer.app.live import RTSP_SCHEMES, check_url, without_password
from gstinfer.app.pipeline import apt_hint
from gstinfer.app.placement import UPRIGHT
from gstinfer.elements.compat import GLib, Gst, structure_of
from gstinfer.errors import ConfigError, HostError, UnknownNameError
from gstinfer.image import Device

__all__ = ["STDIN", "Facts", "Source", "parse", "parse_all", "patterns", "probe", "stdin_is_file"]

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
        orientation: The tag ``image-orientation``.
    """

    duration: int | None = None
    fps: float | None = None
    frames: int | None = None
    cut_off: bool = False
    colorimetry: str = ""
    orientation: str = UPRIGHT


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


def probe(source: Source, device: Device | None = None) -> Facts:
    """Looks at a source without running it, in milliseconds.

    Args:
        source: What to look at.
        device: Where it will run, which decides on the decoders that may be used; None for any.

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
        if not stdin_is_file():
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
    return _discover(source.target, device)


def stdin_is_file() -> bool:
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


def _discover(path: str, device: Device | None) -> Facts:
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
        discoverer = GstPbutils.Discoverer.new(PROBE_SECONDS * Gst.SECOND)
        if device is not None:
            # The source's parent decides on decoders; it is found by its children only.
            discoverer.connect("source-setup", lambda _, element: prefer_cpu(element.get_parent(), device))
        info = discoverer.discover_uri(Gst.filename_to_uri(path))
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
    colorimetry = "" if complete is None else colors.full_range(path, video.get_caps(), device)
    tags = video.get_tags() or info.get_tags()
    turned, orientation = tags.get_string(ORIENTATION) if tags is not None else (False, "")
    return Facts(
        duration if known else None, fps, frames, complete is False, colorimetry, orientation if turned else UPRIGHT
    )


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
