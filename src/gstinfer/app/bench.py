"""How fast a model is on this machine, alone and inside a pipeline, and what holds it back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gstinfer
from gstinfer.elements.compat import Gst
from gstinfer.elements.infer.building import build_model
from gstinfer.elements.infer.settings import InferSettings
from gstinfer.errors import HostError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.hosts import select
from gstinfer.image import Device
from gstinfer.model import LoadedModel

__all__ = ["Bench", "Report", "clip"]

BATCHES = (1, 2, 4, 8, 16)
NEAR = 0.97
"""A batch size that is this close to the best is as good: smaller ones wait less."""

ROUNDS = 3
"""What is compared is measured in turn, and the best of each counts: what else runs on a machine only slows."""

CLIP_FRAMES = 60


@dataclass
class Report:
    """What was measured; rates are frames per second, times milliseconds a frame.

    Attributes:
        batches: Rate of the model alone, with its preprocessing and decoding, by batch size.
        best_batch: The smallest batch size that is nearly as fast as the fastest.
        steps: Time of the model's own steps, where it tells them: ``prepare``, ``run`` and ``decode``.
        decode: Rate at which the video decoder alone gives frames.
        bare: Rate of decoder and model in a bare loop.
        pipeline: Rate of the same with pyinfer.
        streams: How many streams ``many`` has.
        many: Rate of all streams together, or None.
        fill: Mean frames a batch with those, or None.
        latency: Median and 99th percentile of the time that a frame of those spends in pyinfer.
    """

    batches: dict[int, float] = field(default_factory=dict)
    best_batch: int = 1
    steps: dict[str, float] = field(default_factory=dict)
    decode: float = 0.0
    bare: float = 0.0
    pipeline: float = 0.0
    streams: int = 1
    many: float | None = None
    fill: float | None = None
    latency: tuple[float, float] | None = None

    @property
    def overhead(self) -> float:
        """Milliseconds a frame that pyinfer adds to a bare loop; negative where decoding overlaps with it."""
        return 1e3 / self.pipeline - 1e3 / self.bare

    @property
    def costs(self) -> dict[str, float]:
        """Milliseconds a frame of what could be the bound: decode, preprocess, model, Python."""
        run = self.steps.get("run", 1e3 / self.batches[self.best_batch])
        found = {"decode": 1e3 / self.decode, "preprocess": self.steps.get("prepare", 0.0), "model": run}
        return {**found, "Python": max(0.0, self.overhead) + self.steps.get("decode", 0.0)}

    @property
    def bound(self) -> str:
        """What takes most of the time."""
        return max(self.costs, key=lambda name: self.costs[name])


@contextmanager
def clip(size: tuple[int, int]) -> Iterator[str]:
    """A short H.264 video in a temporary folder.

    Raises:
        HostError: It cannot be encoded.
    """
    with tempfile.TemporaryDirectory(prefix="gstinfer-") as folder:
        path = str(Path(folder) / "clip.mp4")
        _run(
            f"videotestsrc num-buffers={CLIP_FRAMES} pattern=ball ! video/x-raw,format=I420,width={size[0]},height={size[1]} ! "
            f"x264enc speed-preset=ultrafast ! h264parse ! mp4mux ! filesink location={path}"
        )
        yield path


def _run(description: str, prepare: Callable[[Any], None] = lambda pipeline: None, seconds: float = 0.0) -> None:
    """Runs a pipeline to its end, or for some seconds.

    Raises:
        HostError: It fails, or does not end.
    """
    pipeline = Gst.parse_launch(description)
    prepare(pipeline)
    pipeline.set_state(Gst.State.PLAYING)
    wanted = Gst.MessageType.EOS | Gst.MessageType.ERROR
    message = pipeline.get_bus().timed_pop_filtered(int((seconds or 300) * Gst.SECOND), wanted)
    pipeline.set_state(Gst.State.NULL)
    if message is not None and message.type == Gst.MessageType.ERROR:
        raise HostError(str(message.parse_error()[0].message))
    if message is None and not seconds:
        raise HostError("the measurement did not end within 300 s")


class _Rate:
    """Counts buffers on a pad; the first few belong to the start."""

    SKIPPED = 5

    def __init__(self) -> None:
        self.times: list[float] = []

    def watch(self, pad: Any) -> None:
        pad.add_probe(Gst.PadProbeType.BUFFER, self._tick)

    def _tick(self, pad: Any, info: Any) -> Any:
        self.times.append(time.perf_counter())
        return Gst.PadProbeReturn.OK

    @property
    def fps(self) -> float:
        times = self.times[self.SKIPPED :]
        if len(times) < 2:
            raise HostError(f"the video has {len(self.times)} frames", hint=f"take one of at least {self.SKIPPED + 2}")
        return (len(times) - 1) / max(1e-9, times[-1] - times[0])


class _Stream:
    stream_id, source, component_id, sequence = "bench", "", 15, 0


class Bench:
    """Measures one model.

    Args:
        settings: Checked properties of pyinfer.
        video: File that is decoded for it.
        seconds: For each measurement that has no end of its own.
    """

    def __init__(self, settings: InferSettings, video: str, seconds: float = 2.0) -> None:
        gstinfer.register()
        self.settings, self.video, self.seconds = settings, video, seconds
        self.device = Device.parse("cpu" if settings.device == "auto" else settings.device)

    def run(self, streams: int = 1, tell: Callable[[str], None] = lambda text: None) -> Report:
        """All measurements, one after another; ``tell`` hears what is going on.

        Raises:
            GstInferError: The model cannot be loaded or fails, or the video cannot be decoded.
        """
        report = Report(streams=streams)
        tell("loading the model")
        model = build_model(self.settings, {})
        model.load(self.device)
        try:
            frames = self._frames()
            for number in range(ROUNDS):
                for size in BATCHES:
                    tell(f"the model alone, round {number + 1} of {ROUNDS}, batches of {size}")
                    report.batches[size] = max(report.batches.get(size, 0.0), self._alone(model, frames, size))
            fastest = max(report.batches.values())
            report.best_batch = min(size for size, fps in report.batches.items() if fps >= NEAR * fastest)
            report.steps = self._steps(model, frames, report.best_batch)
            for number in range(ROUNDS):
                tell(f"the decoder alone, a bare loop and pyinfer, round {number + 1} of {ROUNDS}")
                report.decode = max(report.decode, self._decoder())
                report.bare = max(report.bare, self._bare(model))
                report.pipeline = max(report.pipeline, self._elements(1)[0])
        finally:
            model.close()
        if streams > 1:
            tell(f"pyinfer with {streams} streams")
            report.many, report.fill, report.latency = self._elements(streams)
        return report

    def _source(self) -> str:
        return f'filesrc location="{self.video}" ! decodebin ! videoconvert ! video/x-raw,format=I420'

    def _pull(self) -> Iterator[tuple[Any, Any]]:
        pipeline = Gst.parse_launch(f"{self._source()} ! appsink name=sink sync=false max-buffers=2")
        sink = pipeline.get_by_name("sink")
        pipeline.set_state(Gst.State.PLAYING)
        host = None
        try:
            while (sample := sink.emit("pull-sample")) is not None:
                host = host or select(sample.get_caps(), _Stream())
                yield host, sample.get_buffer()
        finally:
            pipeline.set_state(Gst.State.NULL)

    def _frames(self) -> list[Frame]:
        """Copies of the first frames."""
        from gstinfer.shadow import copy_frame

        found: list[Frame] = []
        for host, buffer in self._pull():
            with host.open(buffer) as batch:
                found.append(copy_frame(batch[0]))
            if len(found) == max(BATCHES):
                break
        if not found:
            raise HostError(f"{self.video!r} gives no frame")
        return (found * max(BATCHES))[: max(BATCHES)]

    def _alone(self, model: LoadedModel, frames: list[Frame], size: int) -> float:
        batch = FrameBatch(tuple(frames[:size]))
        model.predict(batch)
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + self.seconds / ROUNDS or count < 2:
            model.predict(batch)
            count += 1
        return count * size / (time.perf_counter() - began)

    def _steps(self, model: LoadedModel, frames: list[Frame], size: int) -> dict[str, float]:
        """Milliseconds a frame by step, where the model tells them."""

        def told() -> dict[str, float]:
            return dict(getattr(model.model, "stage_seconds", None) or {})

        before, count = told(), 0
        began = time.perf_counter()
        while time.perf_counter() < began + self.seconds / ROUNDS or not count:
            model.predict(FrameBatch(tuple(frames[:size])))
            count += size
        return {name: 1e3 * (value - before.get(name, 0.0)) / count for name, value in told().items()}

    def _decoder(self) -> float:
        rate = _Rate()

        def prepare(pipeline: Any) -> None:
            rate.watch(pipeline.get_by_name("sink").get_static_pad("sink"))

        _run(f"{self._source()} ! fakesink name=sink sync=false", prepare)
        return rate.fps

    def _bare(self, model: LoadedModel) -> float:
        rate = _Rate()
        for host, buffer in self._pull():
            with host.open(buffer) as batch:
                model.predict(batch)
            rate.times.append(time.perf_counter())
        return rate.fps

    def _elements(self, streams: int) -> tuple[float, float | None, tuple[float, float] | None]:
        """(frames a second of all streams, batch fill, latency) of pyinfer elements that share the model."""
        rate, waits = _Rate(), [list[float]() for _ in range(streams)]
        found: dict[str, float] = {}
        chain = f"{self._source()} ! queue max-size-buffers=2 ! pyinfer name=infer{{n}} ! fakesink sync=false async=false"

        def prepare(pipeline: Any) -> None:
            for number in range(streams):
                element = pipeline.get_by_name(f"infer{number}")
                for name, value in self._properties().items():
                    element.set_property(name, value)
                element.set_property("model-instance-id", "bench")
                self._time(element, waits[number])
                rate.watch(element.get_static_pad("src"))
            element.get_static_pad("src").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, self._last, (element, found))

        _run(" ".join(chain.replace("{n}", str(n)) for n in range(streams)), prepare)
        all_waits = sorted(w for part in waits for w in part[_Rate.SKIPPED :])
        latency = (all_waits[len(all_waits) // 2], all_waits[int(0.99 * len(all_waits))]) if all_waits else None
        rate.times.sort()
        return rate.fps, found.get("batch-fill"), latency

    def _properties(self) -> Mapping[str, Any]:
        options = InferSettings.options()
        values = {options[n].key: v for n, v in self.settings.values().items() if v is not None and v != options[n].default}
        return {**values, "device": str(self.device), "model": self.settings.model}

    @staticmethod
    def _last(pad: Any, info: Any, data: tuple[Any, dict[str, float]]) -> Any:
        if info.get_event().type == Gst.EventType.EOS:
            data[1].update(data[0].stats())
        return Gst.PadProbeReturn.OK

    @staticmethod
    def _time(element: Any, waits: list[float]) -> None:
        entered = [0.0]

        def enter(pad: Any, info: Any) -> Any:
            entered[0] = time.perf_counter()
            return Gst.PadProbeReturn.OK

        def leave(pad: Any, info: Any) -> Any:
            waits.append(1e3 * (time.perf_counter() - entered[0]))
            return Gst.PadProbeReturn.OK

        element.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, enter)
        element.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, leave)
