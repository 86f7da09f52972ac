"""How results travel on a buffer: our own record, and what other elements understand."""

from __future__ import annotations

from typing import Any

from gstinfer.errors import ConfigError
from gstinfer.hosts.metas import analytics, carrier, roi
from gstinfer.results import FrameResults

__all__ = ["WRITE_META", "MetaCodec"]

WRITE_META = ("auto", "carrier", "analytics", "roi")
"""Values of the property write-meta."""

_MODE, _ENTRIES = b"write-meta", b"analytics"


class MetaCodec:
    """Reads and writes the results of one pad's buffers, on system and CUDA memory.

    The carrier is always written, as our own elements read nothing else. What comes beside it for others: ``analytics``
    GstAnalytics (GStreamer 1.24), ``roi`` regions of interest, ``carrier`` nothing. ``auto`` does what an element before
    it was told, so that one metadata never lacks what another learned; else analytics where this GStreamer has it and
    regions elsewhere.

    Args:
        mode: One of ``WRITE_META``.

    Raises:
        ConfigError: Unknown mode, or GstAnalytics asked for where it is not.
    """

    def __init__(self, mode: str = "auto") -> None:
        if mode not in WRITE_META:
            raise ConfigError(f"write-meta={mode!r} is not known", hint=f"use one of {', '.join(WRITE_META)}")
        if mode == "analytics" and not analytics.available():
            raise ConfigError(
                "write-meta=analytics needs GstAnalytics, which this GStreamer does not have",
                hint="use GStreamer 1.24 or later with its bad plugins, or write-meta=roi",
            )
        self.auto = mode == "auto"
        if self.auto:
            mode = "analytics" if analytics.available() else "roi"
        self.mode = mode

    def read(self, buffer: Any, size: tuple[int, int], pixel_aspect: float = 1.0) -> FrameResults | None:
        """The results on a buffer in pixels of its frame, None where it carries none."""
        return carrier.read(buffer, size, pixel_aspect)

    def write(self, buffer: Any, results: FrameResults, size: tuple[int, int], pixel_aspect: float = 1.0) -> None:
        """Puts results on a buffer in place of those that are there.

        Raises:
            HostError: The buffer is not writable, or the results hold what cannot be written.
        """
        width, height = size
        carrier.write(buffer, results, width, height, pixel_aspect)
        mode = self.mode
        if not self.auto:
            carrier.set_note(buffer, _MODE, WRITE_META.index(mode))
        elif told := carrier.note(buffer, _MODE):
            mode = WRITE_META[told]
        if mode == "analytics":
            # Entries that are noted here are ours, and can be replaced.
            ours = carrier.note(buffer, _ENTRIES)
            carrier.set_note(buffer, _ENTRIES, analytics.write(buffer, results, width, height, ours))
        elif mode == "roi":
            roi.write(buffer, results.detections, width, height)
