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

__all__ = ["nowhere", "output_paths", "video_file"]

NO_PREROLL = {"async": False}
"""The muxer keeps everything until EOS, to write its index in front: a sink that waited for data would hold all of PLAYING."""


def output_paths(output: str | None, sources: Sequence[Source]) -> list[Path | None]:
    """One file per source: ``output`` itself, or ``STREAM.mp4`` in it where it is a folder or there are several sources.

    A folder is made when its parent exists and it is named as one: with a slash at the end, or for several sources.

    Raises:
        ConfigError: No MP4, a folder that is not there, a file for several sources, or an input's own name.
    """
    if not output:
        return [None] * len(sources)
    folder = Path(output)
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
            if source.kind == "file" and path.exists() and os.path.exists(source.target) and path.samefile(source.target):
                raise ConfigError(f"{str(path)!r} is an input and the output", hint="choose another name")
    return list(paths)


def nowhere(pipeline: Any) -> list[Any]:
    """A sink that takes frames as fast as they come."""
    return [make(pipeline, "fakesink", sync=False, **NO_PREROLL)]


def video_file(pipeline: Any, path: Path, overlay: Mapping[str, Any]) -> list[Any]:
    """Elements that draw the results and write H.264, 8-bit 4:2:0, into an MP4 file with its index in front.

    Odd sizes get one black column or row, for the encoder only: it takes even sizes alone.
    """
    chain = [
        make(pipeline, "queue", max_size_buffers=4, max_size_bytes=0, max_size_time=0),
        make(pipeline, "pyoverlay", **overlay),
        make(pipeline, "videoconvert"),
        make(pipeline, "capsfilter", caps="video/x-raw,format=I420"),
        make(pipeline, "videobox"),
        make(pipeline, "x264enc", speed_preset="veryfast", **{"pass": "qual"}, quantizer=21),
        make(pipeline, "capsfilter", caps="video/x-h264,profile=high"),
        make(pipeline, "h264parse"),
        make(pipeline, "mp4mux", faststart=True),
        make(pipeline, "filesink", location=str(path), sync=False, **NO_PREROLL),
    ]
    box = chain[4]
    box.get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, _make_even, box)
    link(*chain)
    return chain


def _make_even(pad: Any, info: Any, box: Any) -> Any:
    event = info.get_event()
    if event.type == Gst.EventType.CAPS:
        caps = event.parse_caps()
        structure = structure_of(caps, 0)
        box.set_property("right", -(structure.get_int("width")[1] & 1))
        box.set_property("bottom", -(structure.get_int("height")[1] & 1))
    return Gst.PadProbeReturn.OK
