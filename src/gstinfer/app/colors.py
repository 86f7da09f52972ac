"""Colour range of a video whose container and whose stream disagree about it."""

from __future__ import annotations

import re
from typing import Any

from gstinfer.app.entry import prefer_cpu
from gstinfer.elements.compat import Gst, structure_of
from gstinfer.image import Device

__all__ = ["full_range"]

_PARSERS = {"video/x-h264": "h264parse", "video/x-h265": "h265parse"}
_SECONDS = 2


def full_range(path: str, caps: Any, device: Device | None = None) -> str:
    """The colorimetry to read an MP4 file's pixels with, where its stream says full range and the container does not.

    GStreamer goes by the container's ``colr`` box. Some muxers, GStreamer's own mp4mux among them, write none of the range
    into it, and full-range pixels would be taken for limited ones: too much contrast, clipped darks and lights.

    Args:
        path: MP4 file.
        caps: Of its encoded video, as the demuxer and the parser gave them.
        device: Where the video will run, see ``sources.probe``.

    Returns:
        As in caps; empty where nothing is to be corrected.
    """
    structure = structure_of(caps, 0)
    parser, stated = _PARSERS.get(structure.get_name()), structure.get_string("colorimetry") or ""
    if parser is None or not stated or stated.startswith("1:") or Gst.ElementFactory.find("capssetter") is None:
        return ""
    bare = Gst.Caps.from_string(re.sub(r", colorimetry=\(string\)[^,;]+", "", caps.to_string()))
    pipeline = Gst.parse_launch(
        "filesrc name=file ! qtdemux ! capssetter name=bare replace=true "
        f"! {parser} ! decodebin name=decoder ! fakesink name=end"
    )
    pipeline.get_by_name("file").set_property("location", path)
    if device is not None:
        prefer_cpu(pipeline.get_by_name("decoder"), device)
    # Parser and decoder find out for themselves what is not in the caps.
    pipeline.get_by_name("bare").set_property("caps", bare)
    try:
        # Preroll is one decoded frame.
        pipeline.set_state(Gst.State.PAUSED)
        if pipeline.get_state(_SECONDS * Gst.SECOND)[0] != Gst.StateChangeReturn.SUCCESS:
            return ""
        decoded = pipeline.get_by_name("end").get_static_pad("sink").get_current_caps()
        found = structure_of(decoded, 0).get_string("colorimetry") or ""
        return found if found.startswith("1:") else ""
    finally:
        pipeline.set_state(Gst.State.NULL)
