"""pyoverlay: draws results on the picture.

Example::

    gst-launch-1.0 videotestsrc num-buffers=30 ! pyinfer model=nanodet-coco ! pyoverlay ! videoconvert ! autovideosink
"""

from __future__ import annotations

from typing import Any, ClassVar

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst
from gstinfer.elements.overlay.stage import OverlaySettings, OverlayStage

__all__ = ["PyOverlay"]


class PyOverlay(BatchElement):
    __gtype_name__ = "GstPyOverlay"
    settings_class = OverlaySettings
    options = OverlaySettings.options()
    writes_pixels = True
    writes_results = False
    metadata = (
        "Result overlay",
        "Filter/Effect/Video",
        "Draws boxes, labels, ids, masks and texts on video, in place and in any format",
        "gstinfer",
    )
    __gproperties__: ClassVar[dict[str, Any]] = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters", GObject.ParamFlags.READABLE),
    }

    def make_stage(self, settings: Any) -> OverlayStage:
        return OverlayStage(settings)


PyOverlay.declare()
