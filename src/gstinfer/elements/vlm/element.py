"""pyvlm: a vision-language model beside the stream.

Example::

    gst-launch-1.0 videotestsrc num-buffers=90 ! pyvlm model=openai:http://127.0.0.1:8000/v1#Qwen3-VL-8B
        prompt="What happens? Answer in one sentence." segment=1 fps=2 ! pyoverlay ! videoconvert ! autovideosink
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst, GstBase, event_number, structure_of
from gstinfer.elements.guard import guard, report
from gstinfer.elements.infer.element import parse_arguments
from gstinfer.elements.vlm.settings import VlmSettings
from gstinfer.elements.vlm.stage import VlmStage
from gstinfer.results import Text

__all__ = ["PyVlm"]

SOURCE_ENDS = frozenset((401, 402))
"""Numbers of nvstreammux's custom events that end a source: pad deleted, stream EOS."""

SERIALIZED = 1 << 2
"""GST_EVENT_TYPE_SERIALIZED, a flag in the number of an event type."""


class PyVlm(BatchElement):
    __gtype_name__ = "GstPyVlm"
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
    host: Any
    settings: Any

    def __init__(self) -> None:
        super().__init__()
        self.held: Any = None
        self.holding: bool | None = None

    def make_stage(self, settings: Any) -> VlmStage:
        return VlmStage(
            settings,
            parse_arguments(settings.model_args),
            lambda error: report(self, error, "warning"),
            self.text_arrived,
        )

    def apply(self, name: str, value: Any) -> None:
        super().apply(name, value)
        if name in ("prompt", "system_prompt"):
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

    @guard(Gst.FlowReturn.ERROR)
    def do_transform_ip(self, buffer: Any) -> Any:
        if not self.host.passthrough and self.stage.passes(self.stream_id, buffer.pts):
            self.sequence += 1
            return Gst.FlowReturn.OK
        return super().do_transform_ip(buffer)

    @guard((Gst.FlowReturn.ERROR, None), flow=lambda value: (value, None))
    def do_generate_output(self) -> tuple[Any, Any]:
        flow, buffer = GstBase.BaseTransform.do_generate_output(self)
        if buffer is None or flow != Gst.FlowReturn.OK or not self.holds():
            return flow, buffer
        before, self.held = self.held, buffer
        return flow, before

    def holds(self) -> bool:
        """Whether the newest frame is kept back; found out with the first frame."""
        if self.holding is None:
            pad, query = self.get_static_pad("sink"), Gst.Query.new_latency()
            live = pad.peer_query(query) and query.parse_latency()[0]
            # An application that pushes a frame and waits for it has no length to tell, and would wait for ever.
            finite = bool(pad.peer_query_duration(Gst.Format.TIME)[0])
            self.holding = self.settings.hold == "auto" and finite and not live and not self.host.passthrough
        return self.holding

    def before_event(self, event: Any) -> None:
        kind, types = event.type, Gst.EventType
        if self.stage is not None:
            # Decoders say that a group is done right before its end: what follows it must find the last frame gone.
            if kind in (types.EOS, types.STREAM_GROUP_DONE):
                self.stage.finish()
            if kind == types.FLUSH_STOP:
                self.held = None
            elif kind & SERIALIZED and kind != types.TAG:
                self.let_go()
            if kind in (types.EOS, types.FLUSH_STOP, types.STREAM_START):
                self.stage.clear()
            elif event_number(event) >> 8 in SOURCE_ENDS:
                known, source = structure_of(event).get_uint("source-id")
                if known:
                    # Its last answers are still wanted, which a reset would drop.
                    self.stage.end(str(source))
                return
        super().before_event(event)

    def let_go(self) -> None:
        """Pushes the frame that was kept back, with the answers that have come since."""
        held, self.held = self.held, None
        if held is None:
            return
        with self.host.open(held) as batch:
            self.stage.deliver(batch)
        self.get_static_pad("src").push(held)

    @guard(False)
    def do_start(self) -> bool:
        self.holding = None
        return bool(super().do_start())

    @guard(False)
    def do_stop(self) -> bool:
        self.held = None
        return bool(super().do_stop())


PyVlm.declare()
