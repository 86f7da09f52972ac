"""The comparison itself: each frame through the pipeline and through the reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gstinfer.app import sources
from gstinfer.app.settings import parse_settings
from gstinfer.app.sources import Source
from gstinfer.elements.infer.building import build_model
from gstinfer.elements.infer.element import parse_arguments
from gstinfer.elements.infer.settings import InferSettings
from gstinfer.errors import ConfigError, HostError
from gstinfer.image import Device
from gstinfer.models.network import NetworkModel
from gstinfer.parity.fitting import Pixels
from gstinfer.parity.matching import Agreement, Limits
from gstinfer.parity.pipeline import Seen, bgr_of, frames, opencv_frames
from gstinfer.parity.references import Loop, open_reference
from gstinfer.parity.steps import Step, Steps
from gstinfer.results import FrameResults, Result

__all__ = ["EXACT", "FAST", "Comparison", "Report", "compare"]

MARGIN = 0.05
"""How far below the confidence threshold the other side's objects are looked for."""

EXACT = Limits(1.0, 0.999, 0.001)
"""What the same pixels must reach."""

FAST = Limits(0.97, 0.98, 0.01)
"""What decoded YUV frames, resized before their colour is converted, must reach against the usual order."""


@dataclass
class Comparison:
    """What is asked for.

    Attributes:
        model: Spec of the model.
        video: File, or ``test:PATTERN``.
        kind: One of ``references.KINDS``.
        target: The reference library's own name for the model, or empty.
        exact: Whether both sides get the same pixels: RGB frames.
        decoder: Where the reference's frames come from otherwise: ``"same"`` is GStreamer's decoder and OpenCV's
            ``cvtColor``, ``"opencv"`` is ``cv2.VideoCapture``, whose conversion is FFmpeg's.
        device: ``"cpu"`` or ``"cuda:N"``.
        settings: ``NAME=VALUE`` for pyinfer.
        max_frames: Frames, or None for all.
        limits: What to reach; ``EXACT`` or ``FAST`` when None.
        sampled: Frames on which the steps are looked at; 0 for none.
    """

    model: str
    video: str
    kind: str = "auto"
    target: str = ""
    exact: bool = False
    decoder: str = "same"
    device: str = "cpu"
    settings: Sequence[str] = ()
    max_frames: int | None = None
    limits: Limits | None = None
    sampled: int = 25


@dataclass
class Report:
    """What came out.

    Attributes:
        asked: What was asked for.
        limits: What was to be reached.
        reference: What the pipeline was held against.
        comparison: Which of the two comparisons it is, in words.
        agreement: Over all frames.
        steps: Over some frames; empty for references that are one piece.
        part_at: Names of steps at which the answers part.
        missing: Frames that one side gave and the other did not.
        seconds: What it took.
    """

    asked: Comparison
    limits: Limits
    reference: str = ""
    comparison: str = ""
    agreement: Agreement = field(default_factory=Agreement)
    steps: list[Step] = field(default_factory=list)
    part_at: list[str] = field(default_factory=list)
    missing: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.agreement.within(self.limits) and self.agreement.frames > 0 and not self.missing

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "model": self.asked.model,
            "video": self.asked.video,
            "reference": self.reference,
            "comparison": self.comparison,
            **self.agreement.as_dict(),
            "missing_frames": self.missing,
            "threshold": vars(self.limits),
            "passed": self.passed,
            "steps": [step.as_dict() for step in self.steps],
            "part_at": self.part_at,
            "seconds": round(self.seconds, 2),
        }


def compare(asked: Comparison, tick: Callable[[int], None] = lambda frames: None) -> Report:
    """Runs both sides to the end.

    Args:
        asked: What to compare.
        tick: Called with the number of frames so far.

    Raises:
        GstInferError: The model, the video or the reference cannot be used.
    """
    began = time.monotonic()
    source = sources.parse(asked.video)
    if source.kind == "rtsp":
        raise ConfigError("parity needs a video that both sides can read from its start", hint="name a file")
    sources.probe(source)
    properties = {"model": asked.model, "device": asked.device, **parse_settings(asked.settings)["pyinfer"]}
    if properties.get("process_mode", 1) != 1:
        raise ConfigError("parity compares whole frames", hint="leave process-mode away")
    device = Device.parse(asked.device)
    loaded = build_model(InferSettings(**properties), parse_arguments(properties.get("model_args", "")))
    if asked.exact and isinstance(loaded.model, NetworkModel):
        properties["preprocess"] = "exact"
        loaded.model.preprocess = "exact"
    loaded.load(device)
    try:
        least = _lowered(loaded.model, properties)
        reference = open_reference(asked.kind, loaded, asked.target, device)
        report = Report(asked, asked.limits or (EXACT if asked.exact else FAST), reference.name)
        report.agreement.least = least
        steps: Steps | None = None
        count = 0
        with closing(_paired(source, properties, asked)) as paired:
            for seen, picture, how in paired:
                report.comparison = report.comparison or how
                if seen is None or picture is None:
                    report.missing += 1
                    continue
                if seen.image.size != picture.shape[1::-1]:
                    raise HostError(f"the pipeline's frame is {seen.image.size}, OpenCV's {picture.shape[1::-1]}")
                ours, theirs = _results(seen.results), list(reference.predict(picture))
                report.agreement.add(ours, theirs, seen.image.size)
                if isinstance(reference, Loop) and asked.sampled and _chosen(count, asked):
                    assert isinstance(loaded.model, NetworkModel)
                    steps = steps or Steps(loaded.model, reference, "" if asked.exact else asked.decoder, least)
                    steps.add(seen.image, picture, ours, theirs)
                count += 1
                tick(count)
    finally:
        loaded.close()
    if not count:
        raise HostError(f"{asked.video} gave no frame")
    if steps is not None:
        report.steps, report.part_at = list(steps.steps.values()), steps.part_at()
    report.seconds = time.monotonic() - began
    return report


def _lowered(model: Any, properties: dict[str, Any]) -> float:
    """The confidence threshold, which is lowered on both sides where the model can; 0 where it is its own business."""
    if isinstance(model, NetworkModel):
        least = model.thresholds.confidence
    elif "confidence_threshold" in model.options() and model.confidence_threshold is not None:
        least = float(model.confidence_threshold)
    else:
        return 0.0
    lower = max(least - MARGIN, least / 2)
    model.confidence_threshold = properties["confidence_threshold"] = lower
    return least


def _paired(
    source: Source, properties: dict[str, Any], asked: Comparison
) -> Generator[tuple[Seen | None, Pixels | None, str]]:
    """Frames of both sides, None where one has no more, and which comparison they make."""
    piped = islice(frames(source, properties, format="RGB" if asked.exact else ""), asked.max_frames)
    if asked.exact:
        for seen in piped:
            yield seen, bgr_of(seen.image), "the same pixels: RGB frames on both sides"
        return
    if asked.decoder == "same":
        for seen in piped:
            yield seen, bgr_of(seen.image), f"{seen.image.format} frames as decoded; the reference's are converted first"
        return
    if source.kind != "file":
        raise ConfigError(f"OpenCV cannot read {source.text}", hint="use --decoder same")
    others = islice(opencv_frames(source.target), asked.max_frames)
    for seen in piped:
        text = f"{seen.image.format} frames as GStreamer decodes them; the reference's come from OpenCV's decoder"
        yield seen, next(others, None), text
    for picture in others:
        yield None, picture, ""


def _chosen(number: int, asked: Comparison) -> bool:
    """Every tenth frame, up to as many as asked for; of short runs all."""
    every = 10 if asked.max_frames is None or asked.max_frames >= 10 * asked.sampled else 1
    return number % every == 0 and number // every < asked.sampled


def _results(found: FrameResults) -> list[Result]:
    parts = [found.detections, *found.classifications, found.segmentation]
    return [part for part in parts if part is not None]
