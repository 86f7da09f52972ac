"""pyinfer: any Python model on video.

Example::

    gst-launch-1.0 videotestsrc num-buffers=30 ! pyinfer model=nanodet-coco ! pytrack ! pyoverlay ! videoconvert ! autovideosink
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, ClassVar

from gstinfer import gpu
from gstinfer.cores import Settled, parse_cores
from gstinfer.elements.base import BatchElement, gproperties, to_structure
from gstinfer.elements.compat import GObject, Gst, GstBase, event_number
from gstinfer.elements.guard import guard, report
from gstinfer.elements.infer.allocation import ask_for
from gstinfer.elements.infer.direct import can_hand_over, hand_over
from gstinfer.elements.infer.inflight import FramesInFlight
from gstinfer.elements.infer.lateness import Lateness
from gstinfer.elements.infer.nvinfer_config import read_config
from gstinfer.elements.infer.objects import ObjectStage
from gstinfer.elements.infer.settings import InferSettings
from gstinfer.elements.infer.stage import InferStage
from gstinfer.errors import ConfigError, GstInferError
from gstinfer.hosts import cuda_context, deepstream_installed
from gstinfer.hosts.gstbuffer import pts as pts_of
from gstinfer.image import Device
from gstinfer.model import ModelSpec
from gstinfer.periodic import Periodic
from gstinfer.settings import Option

__all__ = ["PyInfer"]

PREPARATION = ("head", "input_size", "resize", "pad_value", "color", "scale", "mean", "std", "iou_threshold")
"""What a configuration of nvinfer says about pictures and outputs of a network."""
SERIALIZED = 1 << 2
"""GST_EVENT_TYPE_SERIALIZED, a flag in the number of an event type."""

SPARE = 2
"""Frames beside those in flight: one that comes and one that has just left."""


class PyInfer(BatchElement):
    __gtype_name__ = "GstPyInfer"
    settings_class = InferSettings
    options = InferSettings.options()
    model_options: ClassVar[dict[str, Option]] = {}
    metadata = (
        "Python model inference",
        "Filter/Analyzer/Video",
        "Runs any Python, ONNX or other model on video and writes its results as metadata",
        "gstinfer",
    )
    __gproperties__: ClassVar[dict[str, Any]] = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters and seconds by step", GObject.ParamFlags.READABLE),
    }
    # nvinfer's signal: status 0 when the model of this spec runs now, 1 when the old one stays.
    __gsignals__: ClassVar[dict[str, Any]] = {
        "model-updated": (GObject.SignalFlags.RUN_LAST, None, (int, str)),
    }

    def __init__(self) -> None:
        super().__init__()
        self.lateness = Lateness(self)
        self.in_flight: FramesInFlight | None = None
        self.reporting: Periodic | None = None
        self.configured: dict[str, Any] = {}
        self.settled = Settled()

    def make_stage(self, settings: Any) -> InferStage:
        self.settled = Settled(parse_cores(settings.cpu_cores))
        self.in_flight = FramesInFlight(self, settings.frames_in_flight) if settings.frames_in_flight > 1 else None
        if settings.device != "auto":
            Device.parse(settings.device)
        elif not gpu.device_count():
            settings.device = "cpu"
        kind = ObjectStage if settings.process_mode == 2 else InferStage
        stage = kind(
            settings,
            {**self.chosen(n for n in self.model_options if n in self.wishes), **parse_arguments(settings.model_args)},
            lambda error: report(self, error, "warning"),
            self.late,
            self.model_updated,
        )
        stage.shadow_report = self.post_shadow
        if self.in_flight is not None:
            stage.catch_up = self.in_flight.catch_up
        return stage

    def late(self, pts: int | None) -> bool:
        """Whether the turn of a live source's frame has passed, or will have when two before it are through."""
        late, in_flight = self.lateness.late(pts), self.in_flight
        return late or (self.lateness.live and in_flight is not None and in_flight.unfinished > 1)

    def chosen(self, names: Any) -> dict[str, Any]:
        names = list(names)
        found = super().chosen(names)
        found.update({n: v for n, v in self.configured.items() if n in found and n not in self.wishes})
        if "model" in found and "model" not in self.wishes and self.wishes.get("model_engine_file"):
            found["model"] = self.wishes["model_engine_file"]
        return found

    def configure(self) -> None:
        """Reads nvinfer's configuration, and says what of it cannot be honoured."""
        path, self.configured = self.wishes.get("config_file_path"), {}
        if not path:
            return
        config = read_config(path)
        self.configured, ignored = config.settings, config.ignored
        if ModelSpec.parse(self.chosen(["model"])["model"]).kind == "python":
            own = [name for name in PREPARATION if self.configured.pop(name, None) is not None]
            ignored = [*ignored, f"{', '.join(own)} (a Python model prepares its pictures itself)"] if own else ignored
        if ignored:
            report(self, ConfigError(f"{path}: not honoured: {'; '.join(ignored)}"), "warning")

    def offered_hosts(self) -> tuple[str, ...]:
        device = self.settings.device if self.settings is not None else self.wishes.get("device", "auto")
        if device != "cpu":
            return ("system", "cuda", "deepstream")
        # Batches in host memory are read by the CPU too; without DeepStream nobody can hand them over.
        return ("system", "deepstream") if deepstream_installed() else ("system",)

    def host_options(self, caps: Any) -> dict[str, Any]:
        options, features = super().host_options(caps), caps.get_features(0)
        if features is None or not features.contains("memory:NVMM"):
            return options
        settings: Any = self.settings
        return {
            **options,
            "device": settings.device,
            "gpu_id": settings.gpu_id,
            "access": settings.frame_access,
            "tensor_metas": settings.output_tensor_meta,
        }

    def apply(self, name: str, value: Any) -> None:
        super().apply(name, value)
        if name in self.model_options:
            self.stage.change(name, value)
        elif name in ("model", "model_engine_file"):
            self.stage.swap(value)
        elif name == "model_args":
            self.stage.arguments = parse_arguments(value)
        else:
            self.stage.change(name, value)

    def stats(self) -> dict[str, Any]:
        found, lag = super().stats(), self.lateness.lag
        return found if lag is None else {**found, "lag": lag}

    def do_get_property(self, pspec: Any) -> Any:
        if pspec.name == "model" and self.stage is not None:
            return self.stage.running
        return super().do_get_property(pspec)

    def model_updated(self, spec: str, error: BaseException | None) -> None:
        """Tells applications how a change of the model went: signal and element message. Worker thread."""
        if error is not None:
            self.wishes["model"] = self.stage.running if self.stage is not None else self.wishes.get("model", "")
        structure = Gst.Structure.new_empty("gstinfer-model-updated")
        structure.set_value("model", spec)
        structure.set_value("status", 0 if error is None else 1)
        structure.set_value("reason", "" if error is None else str(error))
        self.post_message(Gst.Message.new_element(self, structure))
        self.emit("model-updated", 0 if error is None else 1, spec)

    @guard(Gst.FlowReturn.ERROR)
    def do_transform_ip(self, buffer: Any) -> Any:
        self.settled.here()
        if self.in_flight is not None:
            return self.in_flight.cycle(buffer)
        began = time.monotonic_ns() if self.lateness.live else 0
        if can_hand_over(self.stage, self.host):
            hand_over(self.stage, self.host, buffer, pts_of(buffer)).finish()
            flow = Gst.FlowReturn.OK
        else:
            flow = super().do_transform_ip(buffer)
            if flow == Gst.FlowReturn.OK:
                self.stage.wrote()
        if began:
            self.lateness.took(time.monotonic_ns() - began)
        return flow

    def do_gst_base_transform_query(self, direction: Any, query: Any) -> bool:
        answered = bool(GstBase.BaseTransform.do_query(self, direction, query))
        if answered and query.type == Gst.QueryType.LATENCY and direction == Gst.PadDirection.SRC:
            self.lateness.answer(query)
        elif query.type == Gst.QueryType.ALLOCATION and self.in_flight is not None:
            answered = ask_for(query, self.in_flight.depth + SPARE) or answered
        return answered

    def before_event(self, event: Any) -> None:
        if event.type == Gst.EventType.SEGMENT:
            self.lateness.segment_event(event)
        if self.in_flight is not None and self.stage is not None:
            if event.type == Gst.EventType.FLUSH_STOP:
                self.in_flight.clear()
            elif event_number(event) & SERIALIZED and event.type != Gst.EventType.TAG:
                self.in_flight.drain()
        super().before_event(event)

    def do_change_state(self, transition: Any) -> Any:
        if transition == Gst.StateChange.NULL_TO_READY:
            self.share_context()
        return super().do_change_state(transition)

    def share_context(self) -> None:
        """Lets decoders of the pipeline work in the context of the network, before they make one."""
        with suppress(GstInferError):  # start says what is wrong with a device
            device = Device.parse(self.wishes.get("device", "auto"))
            if device.is_cuda and device.index < gpu.device_count():
                cuda_context.announce(self, device.index)

    @guard(False)
    def do_start(self) -> bool:
        self.failed = False
        self.configure()
        started = bool(super().do_start())
        if started and self.settings.stats_interval:
            self.reporting = Periodic("gstinfer:stats", self.settings.stats_interval, self.post_stats)
        return started

    def post_stats(self) -> None:
        """Puts ``stats`` on the bus as an element message. Any thread."""
        self.post_message(Gst.Message.new_element(self, to_structure("gstinfer-stats", self.stats())))

    def post_shadow(self, stats: dict[str, float]) -> None:
        """Puts the comparison with ``shadow-model`` on the bus as an element message. Any thread."""
        self.post_message(Gst.Message.new_element(self, to_structure("gstinfer-shadow", stats)))

    @guard(False)
    def do_stop(self) -> bool:
        if self.reporting is not None:
            self.reporting.close()
            self.reporting = None
        if self.in_flight is not None:
            self.in_flight.clear()
        self.settled.release()
        return bool(super().do_stop())


def parse_arguments(text: str) -> dict[str, Any]:
    """``key=value, key=value`` as a GstStructure's fields.

    Raises:
        ConfigError: The text is no such list.
    """
    if not text.strip():
        return {}
    try:
        parsed = Gst.Structure.from_string(f"arguments, {text}")
    except TypeError:
        parsed = None
    structure = parsed[0] if isinstance(parsed, tuple) else parsed
    if structure is None:
        raise ConfigError(f"model-args={text!r} cannot be read", hint='write key=value, key2="text with spaces"')
    names = [structure.nth_field_name(i) for i in range(structure.n_fields())]
    return {name: structure.get_value(name) for name in names}


PyInfer.declare()
