"""The elements, one folder each: a thin GObject shell over a pure stage."""

from __future__ import annotations

from typing import Any

__all__ = ["factories", "register"]

_registered: set[str] = set()


def factories() -> list[tuple[str, int, Any]]:
    """(name, rank, class) of every element."""
    from gstinfer.elements.infer.element import PyInfer
    from gstinfer.elements.overlay.element import PyOverlay
    from gstinfer.elements.publish.element import PyPublish
    from gstinfer.elements.track.element import PyTrack
    from gstinfer.elements.vlm.element import PyVlm

    return [
        ("pyinfer", 0, PyInfer),
        ("pytrack", 0, PyTrack),
        ("pyoverlay", 0, PyOverlay),
        ("pypublish", 0, PyPublish),
        ("pyvlm", 0, PyVlm),
    ]


def register() -> None:
    """Registers the elements with this process's GStreamer; repeated calls do nothing.

    Raises:
        HostError: GStreamer refused an element.
    """
    from gstinfer.elements.compat import register_factory
    from gstinfer.errors import HostError

    for name, rank, cls in factories():
        if name in _registered:
            continue
        if not register_factory(name, rank, cls):
            raise HostError(f"GStreamer refused to register the element {name}")
        _registered.add(name)
