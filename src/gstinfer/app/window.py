"""A window that shows a stream's pictures while they are made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gstinfer.app import sinks
from gstinfer.app.pipeline import apt_hint, link, make
from gstinfer.elements.compat import Gst
from gstinfer.errors import ConfigError

__all__ = ["closed", "find_sink", "show"]

_DISPLAYS = (("WAYLAND_DISPLAY", "waylandsink"), ("DISPLAY", "xvimagesink"), ("DISPLAY", "ximagesink"))
"""Environment variable that names a display, and an element that opens windows there."""


def find_sink() -> str:
    """The name of an element that can open a window here.

    Raises:
        ConfigError: There is no display, or none that lets us in.
    """
    if not any(os.environ.get(variable) for variable, _ in _DISPLAYS):
        raise ConfigError("there is no display for a window: neither DISPLAY nor WAYLAND_DISPLAY is set", hint="-o FILE.mp4")
    missing = True
    for variable, name in _DISPLAYS:
        sink = Gst.ElementFactory.make(name) if os.environ.get(variable) else None
        if sink is None:
            continue
        missing = False
        opened = sink.set_state(Gst.State.READY) != Gst.StateChangeReturn.FAILURE
        sink.set_state(Gst.State.NULL)
        if opened:
            return name
    if missing:
        raise ConfigError("GStreamer has no element that opens a window", hint=apt_hint("gstreamer1.0-x"))
    names = " and ".join(f"{v}={os.environ[v]}" for v in dict(_DISPLAYS) if os.environ.get(v))
    raise ConfigError(f"the display cannot be opened ({names})", hint="check that it runs and lets you in, or use -o FILE.mp4")


def show(pipeline: Any, factory: str, path: Path | None, overlay: Mapping[str, Any], on_gpu: bool = False) -> list[Any]:
    """Elements that draw the results and show them at the pace of their timestamps, and write an MP4 file too.

    Args:
        pipeline: Where they go.
        factory: From ``find_sink``.
        path: The file, or None.
        overlay: Properties of pyoverlay.
        on_gpu: See ``sinks.drawing``.

    Returns:
        The elements: the first is the entry, the last the window.
    """
    chain = sinks.drawing(pipeline, overlay, on_gpu)
    if path is not None:
        branch = [make(pipeline, "tee"), make(pipeline, "queue"), *sinks.encoder(pipeline, path)]
        link(chain[-1], *branch[:3])
        chain += branch[:1]
    window = [
        make(pipeline, "queue", max_size_buffers=4, max_size_bytes=0, max_size_time=0),
        make(pipeline, "videoconvert"),
        # Whoever closes the window ends the stream, and its file is still finished.
        make(pipeline, "errorignore", convert_to="ok"),
        # Late pictures are shown, not dropped: a slow model plays slowly.
        make(pipeline, factory, qos=False, max_lateness=-1, **sinks.NO_PREROLL),
    ]
    link(chain[-1], *window)
    return [*chain, *(branch[1:] if path is not None else []), *window]


def closed(message: Any, elements: list[Any]) -> bool:
    """Whether an error message says that somebody closed the window."""
    if not elements or message.src is not elements[-1]:
        return False
    return bool(message.parse_error()[0].matches(Gst.ResourceError.quark(), Gst.ResourceError.NOT_FOUND))
