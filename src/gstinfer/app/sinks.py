"""Where pictures go: an MP4 file that any browser plays, or nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gstinfer.app.pipeline import link, make
from gstinfer.app.sources import Source
from gstinfer.elements.compat import Gst, structure_of
from gstinfer.errors import ConfigError

__all__ = ["NO_PREROLL", "drawing", "encoder", "nowhere", "output_paths", "same_file", "video_file"]

NO_PREROLL = {"async": False}
"""The muxer keeps everything until EOS, to write its index in front: a sink that waited for data would hold all of PLAYING."""

DRAWS_ON_GPU = False
"""Whether pyoverlay draws in CUDA memory, before frames are copied to the encoder."""


def output_paths(output: str | None, sources: Sequence[Source]) -> list[Path | None]:
    """One file per source: ``output`` itself, or ``STREAM.mp4`` in it where it is a folder or there are several sources.

    A folder is made when its parent exists and it is named as one: with a slash at the end, or for several sources.

    Raises:
        ConfigError: No MP4, a folder that is not there, a file for several sources, or an input's own name.
    """
    if not output:
        return [None] * len(sources)
    folder = Path(output)
    try:
        os.stat(folder)
    except PermissionError as error:
        raise ConfigError(f"{output!r} cannot be written: no permission to look into its folder") from error
    except OSError:
        pass
    if output.endswith("/") or folder.is_dir() or (len(sources) > 1 and not folder.suffix):
        if not folder.is_dir():
            try:
                folder.mkdir()
            except OSError as error:
                raise ConfigError(f"the folder {output!r} cannot be made: {error.strerror}") from error
        paths = [folder / f"{source.stream_id.replace('/', '_')}.mp4" for source in sources]
    elif len(sources) > 1:
        raise ConfigError(f"{output!r} is one file for {len(sources)} inputs", hint="name a folder: --output DIR/")
    else:
        paths = [folder]
    for path in paths:
        if path.suffix.lower() not in (".mp4", ".m4v"):
            raise ConfigError(f"{str(path)!r} does not end in .mp4", hint="only MP4 is written; --output FILE.mp4")
        if not path.parent.is_dir():
            raise ConfigError(f"the folder of {str(path)!r} does not exist", hint="make it first")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            reason = "it is a folder" if path.is_dir() else f"no permission to write into {str(path.parent)!r}"
            raise ConfigError(f"{str(path)!r} cannot be written: {reason}", hint="choose another place")
        for source in sources:
            if source.kind == "file" and same_file(path, source.target):
                raise ConfigError(f"{str(path)!r} is an input and the output", hint="choose another name")
    return list(paths)


def same_file(path: Path, other: str) -> bool:
    """Whether both are there and one."""
    return path.exists() and os.path.exists(other) and path.samefile(other)


def nowhere(pipeline: Any) -> list[Any]:
    """A sink that takes frames as fast as they come."""
    return [make(pipeline, "fakesink", sync=False, **NO_PREROLL)]


def drawing(pipeline: Any, overlay: Mapping[str, Any], on_gpu: bool) -> list[Any]:
    """Elements that draw the results; pictures in system memory come out.

    Args:
        pipeline: Where they go.
        overlay: Properties of pyoverlay.
        on_gpu: Whether frames come in CUDA memory.
    """
    queue = make(pipeline, "queue", max_size_buffers=4, max_size_bytes=0, max_size_time=0)
    overlay_element = make(pipeline, "pyoverlay", **overlay)
    download = [make(pipeline, "cudadownload"), make(pipeline, "capsfilter", caps="video/x-raw")] if on_gpu else []
    chain = [queue, overlay_element, *download] if DRAWS_ON_GPU else [queue, *download, overlay_element]
    link(*chain)
    return chain


def video_file(pipeline: Any, path: Path, overlay: Mapping[str, Any], on_gpu: bool = False) -> list[Any]:
    """Elements that draw the results and write an MP4 file; see ``drawing`` and ``encoder``."""
    start, end = drawing(pipeline, overlay, on_gpu), encoder(pipeline, path)
    link(start[-1], end[0])
    return [*start, *end]


def encoder(pipeline: Any, path: Path) -> list[Any]:
    """Elements that write H.264, 8-bit 4:2:0, into an MP4 file with its index in front.

    Odd sizes get one black column or row, for the encoder only: it takes even sizes alone. When the size changes in mid-stream,
    later frames are scaled to the first one's, and frames whose time runs backwards are left out: MP4 can hold neither.
    """
    chain = [
        make(pipeline, "videoconvert"),
        make(pipeline, "capsfilter", caps="video/x-raw,format=I420"),
        make(pipeline, "videoscale", add_borders=True),
        make(pipeline, "capsfilter", caps="video/x-raw"),
        make(pipeline, "videobox"),
        make(pipeline, "x264enc", speed_preset="veryfast", **{"pass": "qual"}, quantizer=21),
        make(pipeline, "capsfilter", caps="video/x-h264,profile=high"),
        make(pipeline, "h264parse"),
        make(pipeline, "mp4mux", faststart=True),
        make(pipeline, "filesink", location=str(path), sync=False, **NO_PREROLL),
    ]
    both = Gst.PadProbeType.EVENT_DOWNSTREAM | Gst.PadProbeType.BUFFER
    chain[0].get_static_pad("sink").add_probe(both, _Fitting(chain[3]))
    chain[4].get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, _make_even, chain[4], [])
    link(*chain)
    return chain


class _Fitting:
    """Brings a stream into what one MP4 track can hold: one size, and time that goes forward.

    Args:
        filter: Behind the scaler; gets the first frame's size.
    """

    def __init__(self, filter: Any) -> None:
        self.filter: Any = filter
        self.segment: Any = None
        self.last = -1

    def __call__(self, pad: Any, info: Any) -> Any:
        if info.type & Gst.PadProbeType.BUFFER:
            return self._buffer(info.get_buffer().pts)
        event = info.get_event()
        if event.type == Gst.EventType.SEGMENT:
            self.segment = event.parse_segment().copy()
        elif event.type == Gst.EventType.CAPS and self.filter is not None:
            structure = structure_of(event.parse_caps(), 0)
            width, height = structure.get_int("width")[1], structure.get_int("height")[1]
            known, numerator, denominator = structure.get_fraction("pixel-aspect-ratio")
            shape = f"{numerator}/{denominator}" if known else "1/1"
            caps = f"video/x-raw,width={width},height={height},pixel-aspect-ratio={shape}"
            self.filter.set_property("caps", Gst.Caps.from_string(caps))
            self.filter = None
        return Gst.PadProbeReturn.OK

    def _buffer(self, pts: int) -> Any:
        if pts == Gst.CLOCK_TIME_NONE or self.segment is None:
            return Gst.PadProbeReturn.OK
        running = self.segment.to_running_time(Gst.Format.TIME, pts)
        if running == Gst.CLOCK_TIME_NONE or running <= self.last:
            return Gst.PadProbeReturn.DROP
        self.last = running
        return Gst.PadProbeReturn.OK


def _make_even(pad: Any, info: Any, box: Any, seen: list[Any]) -> Any:
    event = info.get_event()
    if event.type != Gst.EventType.CAPS:
        return Gst.PadProbeReturn.OK
    if seen:
        # Size and format are those of before; another rate alone would be a new track, which the muxer refuses.
        return Gst.PadProbeReturn.DROP
    caps = event.parse_caps()
    seen.append(caps)
    structure = structure_of(caps, 0)
    box.set_property("right", -(structure.get_int("width")[1] & 1))
    box.set_property("bottom", -(structure.get_int("height")[1] & 1))
    return Gst.PadProbeReturn.OK
