"""pypublish: sends one message per frame and passes every buffer through.

Example::

    gst-launch-1.0 -q videotestsrc num-buffers=30 ! pyinfer model=nanodet-coco ! pypublish url=stdout: ! fakesink
"""

from __future__ import annotations

from typing import Any, ClassVar

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst
from gstinfer.elements.guard import report
from gstinfer.elements.publish.stage import PublishSettings, PublishStage
from gstinfer.errors import GstInferError

__all__ = ["PyPublish"]


class PyPublish(BatchElement):
    __gtype_name__ = "GstPyPublish"
    settings_class = PublishSettings
    options = PublishSettings.options()
    writes_results = False
    metadata = (
        "Result publisher",
        "Filter/Analyzer/Video",
        "Publishes the results of every frame as a JSON message",
        "gstinfer",
    )
    __gproperties__: ClassVar[dict[str, Any]] = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters", GObject.ParamFlags.READABLE),
    }

    def make_stage(self, settings: Any) -> PublishStage:
        return PublishStage(
            settings, on_error=self.target_failed, on_warning=lambda error: report(self, error, "warning")
        )

    def target_failed(self, error: GstInferError) -> None:
        """The writer's thread could not write: said at once, not with the next frame."""
        if not self.failed:
            report(self, error)
            # Only now: a streaming thread that sees it ends the stream, and the source's word must not be the first.
            self.failed = True


PyPublish.declare()
