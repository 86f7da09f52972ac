"""Where two answers part: the steps of the pipeline put into the reference one after the other, from its end to its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.geometry import ImageTransform
from gstinfer.image import Image
from gstinfer.models.network import NetworkModel
from gstinfer.parity.fitting import Pixels
from gstinfer.parity.matching import Agreement
from gstinfer.parity.pipeline import bgr_of
from gstinfer.parity.references import Loop
from gstinfer.preprocess import Preprocessing, prepare, reference, to_array
from gstinfer.results import Result
from gstinfer.sanitize import Dropped, sanitize

__all__ = ["MEANING", "Step", "Steps"]

MEANING = {
    "candidates": "the head alone, without suppression, on the reference's outputs",
    "head": "+ suppression",
    "network": "+ the network run by the model's runtime, on the reference's input",
    "resize": "+ the input made from the reference's pixels",
    "decode": "+ the frame as GStreamer decoded it, converted by OpenCV",
    "colour": "+ converted by the package",
    "fast": "+ resized before its colour is converted",
    "element": "+ as it comes out of the pipeline",
}
"""Step -> what of the pipeline's has taken its place there, on top of the steps before."""

NOTICEABLE = 0.001
"""Fall of matched share or mean overlap, or rise of the score difference, from which a step is named."""


@dataclass
class Step:
    """One step's sums.

    Attributes:
        name: A key of ``MEANING``.
        agreement: With the reference, with this step and those before exchanged.
        unit: What ``mean`` and ``most`` are in, or empty where nothing is measured.
        mean: Mean differences of frames.
        most: Greatest difference.
    """

    name: str
    agreement: Agreement = field(default_factory=Agreement)
    unit: str = ""
    mean: list[float] = field(default_factory=list)
    most: float = 0.0

    def differs(self, first: NDArray[Any], second: NDArray[Any], unit: str) -> None:
        """Adds the difference of two arrays of one frame."""
        away = np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64))
        self.unit = unit
        self.mean.append(float(away.mean()))
        self.most = max(self.most, float(away.max(initial=0)))

    def as_dict(self) -> dict[str, Any]:
        """For a report."""
        found: dict[str, Any] = {"step": self.name, "meaning": MEANING[self.name], **self.agreement.as_dict()}
        if self.unit:
            found["difference"] = {"unit": self.unit, "mean": float(np.mean(self.mean)), "greatest": self.most}
        return found


class Steps:
    """Sums over some frames.

    Args:
        model: The network, loaded as the pipeline runs it.
        loop: The reference.
        decoder: Where the reference's pixels come from: ``"opencv"``, ``"same"`` for a conversion of its own alone, or empty
            where they are the pipeline's.
        least: The confidence threshold, see ``Agreement``.
    """

    def __init__(self, model: NetworkModel, loop: Loop, decoder: str, least: float) -> None:
        self._model, self._loop = model, loop
        self._spec = model.preprocessing
        self._exact = replace(self._spec, quality="exact")
        self._factor = float(np.mean(reference.affine(self._spec)[0]))
        names = ["candidates", "head", "network", "resize"]
        if decoder:
            names += ["decode"] * (decoder == "opencv") + ["colour"] + ["fast"] * (self._spec.quality == "fast")
        self.steps = {name: Step(name, Agreement(least)) for name in [*names, "element"]}

    def add(self, image: Image, picture: Pixels, ours: Sequence[Result], theirs: Sequence[Result]) -> None:
        """One frame.

        Args:
            image: As it was in the pipeline.
            picture: The reference's BGR pixels of it.
            ours: What came out of the pipeline.
            theirs: What the reference says.
        """
        loop, frame, steps = self._loop, (picture.shape[1], picture.shape[0]), self.steps
        tensor, fitted = loop.prepare(picture)
        outputs = loop.run(tensor)
        transform = ImageTransform.plan(frame, self._spec.size, self._spec.resize)
        all_of_them = replace(self._model.thresholds, iou=1.0, limit=1_000_000)
        every = loop.decode(outputs, fitted, frame, all_of_them)
        steps["candidates"].agreement.add(self._decoded(outputs, transform, all_of_them), every, frame)
        steps["head"].agreement.add(self._decoded(outputs, transform, self._model.thresholds), theirs, frame)
        own = self._run(tensor)
        for name, value in own.items():
            steps["network"].differs(value, outputs[name][: len(value)], "in the outputs")
        steps["network"].agreement.add(self._decoded(own, transform, self._model.thresholds), theirs, transform.frame_size)
        self._put_in("resize", Image.from_array(picture, "bgr"), self._exact, tensor, theirs)
        if "decode" in steps:
            converted = bgr_of(image)
            self._put_in("decode", Image.from_array(converted, "bgr"), self._exact, converted, theirs, picture)
        if "colour" in steps:
            self._put_in("colour", image, self._exact, to_array(image, "bgr"), theirs, picture)
        if "fast" in steps:
            self._put_in("fast", image, self._spec, tensor, theirs)
        steps["element"].agreement.add(ours, theirs, frame)

    def _put_in(
        self,
        name: str,
        image: Image,
        spec: Preprocessing,
        measured: NDArray[Any],
        theirs: Sequence[Result],
        against: NDArray[Any] | None = None,
    ) -> None:
        """A step's answer, and how far its pixels, or else its input from ``measured``, are from the reference's."""
        tensor, (transform,) = prepare([image], spec)
        step = self.steps[name]
        if against is None:
            step.differs(tensor / self._factor, measured / self._factor, "grey levels in the input")
        else:
            step.differs(measured, against, "grey levels in the frame")
        outputs = self._run(tensor)
        step.agreement.add(self._decoded(outputs, transform, self._model.thresholds), theirs, transform.frame_size)

    def _run(self, tensor: NDArray[Any]) -> dict[str, NDArray[Any]]:
        info, head, runtime = self._model.parts
        rows = info.inputs[0].shape[0] or 1
        size = [ImageTransform.plan(self._spec.size, self._spec.size)] * rows
        feeds: dict[str, Any] = {info.inputs[0].name: np.repeat(tensor, rows, 0) if rows > 1 else tensor}
        outputs = runtime.run({**feeds, **head.feeds(size)})
        return {name: np.array(value, np.float32 if value.dtype.kind == "f" else None) for name, value in outputs.items()}

    def _decoded(self, outputs: Mapping[str, NDArray[Any]], transform: ImageTransform, thresholds: Any) -> list[Result]:
        _, head, _ = self._model.parts
        outputs = {name: np.asarray(v, np.float32) if v.dtype.kind == "f" else v for name, v in outputs.items()}
        (found,) = head.decode(outputs, [transform], thresholds)
        width, height = transform.frame_size
        parts = found if isinstance(found, tuple) else (found,)
        return [sanitize(part, width, height, Dropped()) for part in parts]

    def part_at(self) -> list[str]:
        """Names of the steps at which the answers part."""
        named, before = [], Agreement()
        for step in self.steps.values():
            now = step.agreement
            falls = before.matched - now.matched, before.mean_iou - now.mean_iou, now.mean_score - before.mean_score
            if max(falls) >= NOTICEABLE:
                named.append(step.name)
            before = now
        return named
