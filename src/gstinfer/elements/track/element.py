"""pytrack: gives objects an identity over time.

Example::

    gst-launch-1.0 videotestsrc num-buffers=30 ! pyinfer model=nanodet-coco ! pytrack ! pypublish url=stdout: ! fakesink
"""

from __future__ import annotations

from typing import Any, ClassVar

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst
from gstinfer.elements.track.stage import TrackSettings, TrackStage

__all__ = ["PyTrack"]


class PyTrack(BatchElement):
    __gtype_name__ = "GstPyTrack"
    settings_class = TrackSettings
    options = TrackSettings.options()
    metadata = (
        "Object tracker",
        "Filter/Analyzer/Video",
        "Gives detected objects an id that stays with them, per stream",
        "gstinfer",
    )
    __gproperties__: ClassVar[dict[str, Any]] = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters", GObject.ParamFlags.READABLE),
    }

    def make_stage(self, settings: Any) -> TrackStage:
        return TrackStage(settings)


PyTrack.declare()
