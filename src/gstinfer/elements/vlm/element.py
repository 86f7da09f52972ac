"""pyvlm: a vision-language model beside the stream.

Example::

    gst-launch-1.0 videotestsrc num-buffers=90 ! pyvlm model=openai:http://127.0.0.1:8000/v1#Qwen3-VL-8B
        prompt="What happens? Answer in one sentence." segment=1 fps=2 ! pyoverlay ! videoconvert ! autovideosink
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst
from gstinfer.elements.guard import report
from gstinfer.elements.infer.element import parse_arguments
from gstinfer.elements.vlm.settings import VlmSettings
from gstinfer.elements.vlm.stage import VlmStage
from gstinfer.results import Text

__all__ = ["PyVlm"]


class PyVlm(BatchElement):
    __gtype_name__ = "GstInferPyVlm"
    settings_class = VlmSettings
    options = VlmSettings.options()
    metadata = (
        "Vision-language model",
        "Filter/Analyzer/Video",
        "Asks a vision-language model about segments of video and writes its answers as metadata",
        "gstinfer",
    )
    __gproperties__: ClassVar[dict[str, Any]] = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters and bytes", GObject.ParamFlags.READABLE),
    }
    # (stream id, start, end, text) of each answer, on a worker's thread; times are PTS in ns.
    __gsignals__: ClassVar[dict[str, Any]] = {
        "result": (GObject.SignalFlags.RUN_LAST, None, (str, GObject.TYPE_UINT64, GObject.TYPE_UINT64, str)),
    }

    stage: Any

    def make_stage(self, settings: Any) -> VlmStage:
        return VlmStage(
            settings,
            parse_arguments(settings.model_args),
            lambda error: report(self, error, "warning"),
            self.text_arrived,
        )

    def apply(self, name: str, value: Any) -> None:
        super().apply(name, value)
        self.stage.change(name, value)

    def text_arrived(self, stream_id: str, text: Text) -> None:
        """Tells applications of an answer: signal and element message. Worker thread."""
        structure = Gst.Structure.new_empty("gstinfer-text")
        structure.set_value("stream-id", stream_id)
        for name in ("start", "end", "latency"):
            structure.set_value(name, GObject.Value(GObject.TYPE_UINT64, getattr(text, name) or 0))
        for name in ("text", "prompt_id", "model", "finish_reason", "invalid"):
            structure.set_value(name.replace("_", "-"), getattr(text, name))
        structure.set_value("data", "" if text.data is None else json.dumps(text.data, ensure_ascii=False))
        if text.tracker_id is not None:
            structure.set_value("tracker-id", GObject.Value(GObject.TYPE_UINT64, text.tracker_id))
        self.post_message(Gst.Message.new_element(self, structure))
        self.emit("result", stream_id, text.start or 0, text.end or 0, text.text)

    def before_event(self, event: Any) -> None:
        if event.type == Gst.EventType.EOS and self.stage is not None:
            self.stage.finish()
        super().before_event(event)


PyVlm.declare()
