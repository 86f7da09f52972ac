"""Making and linking elements, with errors that say which package is missing, and taking a pipeline apart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gstinfer
from gstinfer import captures
from gstinfer.elements.compat import GObject, Gst
from gstinfer.errors import ConfigError, HostError

__all__ = ["apt_hint", "dismantle", "link", "make"]

_PACKAGES = {
    "appsrc": "gstreamer1.0-plugins-base",
    "capssetter": "gstreamer1.0-plugins-good",
    "compositor": "gstreamer1.0-plugins-base",
    "decodebin": "gstreamer1.0-plugins-base",
    "errorignore": "gstreamer1.0-plugins-bad",
    "h264parse": "gstreamer1.0-plugins-bad",
    "mp4mux": "gstreamer1.0-plugins-good",
    "rtspsrc": "gstreamer1.0-plugins-good",
    "v4l2src": "gstreamer1.0-plugins-good",
    "videobox": "gstreamer1.0-plugins-good",
    "videoconvert": "gstreamer1.0-plugins-base",
    "videoflip": "gstreamer1.0-plugins-good",
    "videotestsrc": "gstreamer1.0-plugins-base",
    "x264enc": "gstreamer1.0-plugins-ugly",
}
"""Debian and Ubuntu package that brings an element."""


def apt_hint(package: str) -> str:
    """The command that installs a package."""
    return f"sudo apt-get install --no-install-recommends {package}"


def make(bin: Any, factory: str, **properties: Any) -> Any:
    """A new element inside a bin; property names are written with underscores, enums and caps as text.

    Raises:
        ConfigError: No plugin brings the element.
    """
    gstinfer.register()
    element = Gst.ElementFactory.make(factory)
    if element is None:
        package = _PACKAGES.get(factory)
        raise ConfigError(
            f"GStreamer has no element {factory!r}", hint=apt_hint(package) if package else "gstinfer doctor"
        )
    for name, value in properties.items():
        key = name.replace("_", "-")
        if element.find_property(key).value_type.is_a(GObject.TYPE_ENUM):
            Gst.util_set_object_arg(element, key, value)
        else:
            element.set_property(key, Gst.Caps.from_string(value) if name == "caps" else value)
    bin.add(element)
    return element


def link(*elements: Any) -> None:
    """Links elements in a row.

    Raises:
        HostError: Two that do not fit.
    """
    for left, right in pairwise(elements):
        if not left.link(right):
            raise HostError(f"{left.get_name()} and {right.get_name()} do not fit together")


def dismantle(bin: Any) -> None:
    """Stops a bin or pipeline and empties it: a Python handler of an element may hold the bin that holds the element."""
    with captures.change():
        bin.set_state(Gst.State.NULL)
    for element in bin.children:
        bin.remove(element)
