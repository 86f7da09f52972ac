"""Inference as a stage: frames go to the runner, results come back onto the frames."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gstinfer.cores import parse_cores
from gstinfer.elements.infer.building import agreement, as_agreed, build_model
from gstinfer.elements.infer.callback import Callback
from gstinfer.elements.infer.settings import OBJECT_SETTINGS, InferSettings, class_ids, class_thresholds
from gstinfer.elements.infer.tracking import BatchTracking
from gstinfer.elements.infer.watching import Watching
from gstinfer.errors import ConfigError, ModelError
from gstinfer.frames import DropFrame, Frame, FrameBatch
from gstinfer.image import Device
from gstinfer.labels import parse_labels
from gstinfer.lane import Lane
from gstinfer.model import LoadedModel, ModelSpec
from gstinfer.results import Classifications, Detections, FrameResults, Result, SegmentationMap, Tensors, Text
from gstinfer.runner import ModelRunner, RunnerConfig
from gstinfer.sanitize import Complaints
from gstinfer.shadow import Shadow, release_shadow, share_shadow
from gstinfer.shared import release, share
from gstinfer.swap import ModelSwap
from gstinfer.ticket import Awaited, Ticket
from gstinfer.watchdog import Watchdog

__all__ = ["InferStage", "Pending"]

log = logging.getLogger(__name__)

STAGE_COUNTS = ("inferred", "skipped", "late-skipped", "late-dropped", "errors", "dropped", "swaps", "reloads")
"""Fates of a frame, and models exchanged, in the order that ``stats`` shows them."""


class Pending(Awaited):
    """A batch on its way; ``ticket`` is None where nothing is awaited."""

    __slots__ = ("batch", "stage")

    def __init__(self, stage: InferStage, batch: FrameBatch, ticket: Ticket | None) -> None:
        self.stage, self.batch, self.ticket = stage, batch, ticket

    def finish(self) -> None:
        """Waits for the results and puts them onto the frames.

        Raises:
            Flushed, ModelError, DropFrame: As the settings say.
        """
        self.stage._finish(self)


class InferStage:
    """Runs a model on whole frames; ``ObjectStage`` beside it on objects.

    Args:
        settings: Checked properties.
        arguments: ``model-args`` as keyword arguments.
        notify: Called with an error that the stage survived, from the streaming thread or the swap's worker.
        late: Whether the turn of a frame with this PTS has passed.
        updated: Called on the swap's worker with a spec and None, or the error that kept the old model.
    """

    default_batch = 0
    """What ``batch-size`` 0 means to the runner."""

    def __init__(
        self,
        settings: InferSettings,
        arguments: Mapping[str, Any] | None = None,
        notify: Callable[[BaseException], None] | None = None,
        late: Callable[[int | None], bool] = lambda pts: False,
        updated: Callable[[str, BaseException | None], None] = lambda spec, error: None,
    ) -> None:
        self.late, self.updated = late, updated
        self.settings, self.arguments = settings, dict(arguments or {})
        self.notify = notify or (lambda error: log.warning("%s", error))
        self.complaints = Complaints(self.notify)
        self.runner: ModelRunner | None = None
        self.lane: Lane | None = None
        self.counts: Counter[str] = Counter()
        self._batches = 0
        self._swap: ModelSwap | None = None
        self._watching = Watching()
        self._watchdog: Watchdog | None = None
        self.shadow: Shadow | None = None
        self.shadow_report: Callable[[dict[str, float]], None] = lambda stats: None
        # Waits for the stream's earlier frames, where several are in flight: the tracker must see them in order.
        self.catch_up: Callable[[], None] = lambda: None
        self.write_seconds, self._left = 0.0, 0.0
        self.callback = Callback(settings.callback) if settings.callback else None
        self._thresholds = class_thresholds(settings.class_thresholds)
        self._excluded = class_ids(settings.filter_out_class_ids)
        self._refuse()

    def _refuse(self) -> None:
        for name in OBJECT_SETTINGS:
            if getattr(self.settings, name) != InferSettings.options()[name].default:
                raise ConfigError(f"{name.replace('_', '-')} speaks of objects, which needs process-mode=2")

    def start(self) -> None:
        """Loads the model, unless the device waits for the caps (``device=auto`` where a GPU may be)."""
        ModelSpec.parse(self.settings.model)
        if self.settings.shadow_model:
            self._check_shadow(self.settings.shadow_model)
        if self.callback is not None:
            self.callback.load()
        if self.settings.device != "auto":
            self.open(Device.parse(self.settings.device))

    def open(self, device: Device) -> None:
        """Loads the model on a device, once."""
        if self.runner is not None:
            return
        settings = self.settings
        config = RunnerConfig(
            settings.model,
            device,
            settings.batch_size or self.default_batch,
            settings.batch_timeout / 1e6,
            settings.scheduling,
            cores=parse_cores(settings.cpu_cores),
            arguments=agreement(settings, self.arguments),
        )

        def load() -> LoadedModel:
            loaded = build_model(settings, self.arguments)
            loaded.load(device)
            return loaded

        after = BatchTracking(settings.tracker, settings.tracker_args) if settings.tracker else None
        self.runner = share(settings.model_instance_id, config, load, after)
        self.lane = self.runner.attach(settings.frames_in_flight)
        self._swap = ModelSwap(self.runner, self._swapped)
        if settings.watchdog:
            self._watchdog = Watchdog(self.runner, settings.watchdog, self.notify)
        self._cast_shadow(settings.shadow_model)
        self._watch()

    def _check_shadow(self, spec: str) -> None:
        ModelSpec.parse(spec)
        if self.settings.process_mode == 2:
            raise ConfigError("shadow-model compares results of whole frames; it does not apply to process-mode=2")

    def _cast_shadow(self, spec: str) -> None:
        """Puts another second model, or none, in the place of the one before."""
        before, self.shadow = self.shadow, None
        key = self.settings.model_instance_id
        if before is not None:
            release_shadow(key, before)
        if not spec or self.runner is None:
            return
        values = {"model": spec, "confidence_threshold": self.settings.confidence_threshold}
        device = self.runner.config.device

        def load() -> LoadedModel:
            loaded = build_model(InferSettings(**values), {})
            loaded.load(device)
            return loaded

        self.shadow = share_shadow(key, spec, lambda: Shadow(spec, load, self.notify, lambda s: self.shadow_report(s)))

    def process(self, batch: FrameBatch) -> None:
        self.submit(batch).finish()

    def submit(self, batch: FrameBatch) -> Pending:
        """Starts a batch; its frames get their results when the pending is finished.

        Raises:
            Flushed: The lane was flushed.
            DropFrame: A late frame is to be dropped.
        """
        if self.lane is None:
            self.open(batch.device)
        if self.skips(batch[0].pts if len(batch) else None, len(batch)):
            self.pass_on(batch.frames)
            return Pending(self, batch, None)
        assert self.lane is not None
        return Pending(self, batch, self.lane.submit(batch.frames))

    def skips(self, pts: int | None, count: int) -> bool:
        """Whether nothing is inferred on a batch of so many frames, the first at ``pts``; counted.

        Raises:
            DropFrame: A late frame is to be dropped.
        """
        self._batches += 1
        reason = ""
        if self.settings.interval and (self._batches - 1) % (self.settings.interval + 1):
            reason = "skipped"
        elif count and self.late(pts) and self.settings.on_late != "wait":
            if self.settings.on_late == "drop":
                self.counts["late-dropped"] += count
                raise DropFrame
            reason = "late-skipped"
        if reason:
            self.counts[reason] += count
            if self.tracking is not None:
                self.catch_up()
        return bool(reason)

    def _finish(self, pending: Pending) -> None:
        batch, ticket = pending.batch, pending.ticket
        before = [frame.results for frame in batch] if self.callback is not None else None
        try:
            if ticket is not None:
                self._deliver(pending, ticket.result(), ticket.model)
            self._complete(pending)
            if self.callback is not None:
                for frame in batch:
                    self.callback(frame)
        except ModelError as error:
            if before is not None:
                for frame, results in zip(batch, before):
                    frame.results = results
            self._abandon(pending)
            self.failed(batch, error)
        self._left = time.monotonic()

    def wrote(self) -> None:
        """The results of the batch that was finished last are on its buffer now."""
        self.write_seconds += time.monotonic() - self._left

    @property
    def plain(self) -> bool:
        """Whether a frame is finished once its results are on it."""
        return self.callback is None

    def pass_on(self, frames: Sequence[Frame]) -> None:
        """Marks frames that are skipped; a tracker inside predicts them."""
        self._pass(frames)
        if self.tracking is not None:
            self.tracking.skipped(frames, self.lane)

    def _deliver(self, pending: Pending, results: Sequence[tuple[Result, ...]], model: str) -> None:
        """Takes what the model said about what was submitted."""
        self.annotate(pending.batch, results, model)

    def annotate(self, batch: FrameBatch, results: Sequence[tuple[Result, ...]], model: str) -> None:
        """Puts a model's results onto their frames. Any thread."""
        shadow = self.shadow
        for frame, result in zip(batch, results):
            frame.results = self._annotated(frame.results, frame.stream_id, result, model)
            if shadow is not None:
                shadow.offer(frame, result, self.settings.shadow_share)
        self.counts["inferred"] += len(batch)
        self._complain(model)

    def _complain(self, model: str) -> None:
        loaded = self.runner.model if self.runner is not None else None
        if loaded is not None:
            self.complaints.look(model, loaded.dropped)

    def _complete(self, pending: Pending) -> None:
        """Frames get what is theirs, also where nothing was submitted."""

    def _abandon(self, pending: Pending) -> None:
        """A batch failed."""

    def failed(self, batch: FrameBatch, error: ModelError) -> None:
        """What becomes of frames on which the model failed, by ``on-error``.

        Raises:
            ModelError, DropFrame: As it says.
        """
        policy = self.settings.on_error
        if policy == "stop":
            raise error
        self.counts["errors"] += 1
        self.notify(error)
        if policy == "drop":
            self.counts["dropped"] += len(batch)
            raise DropFrame
        self.pass_on(batch.frames)

    def _pass(self, batch: Iterable[Frame]) -> None:
        for frame in batch:
            frame.results = replace(frame.results, inferred=False, model=self.running, stream_id=frame.stream_id)

    def _annotated(self, before: FrameResults, stream_id: str, results: tuple[Result, ...], model: str) -> FrameResults:
        now = FrameResults(
            model,
            True,
            before.detections,
            list(before.classifications),
            before.segmentation,
            list(before.texts),
            list(before.tensors),
            stream_id,
        )
        for result in results or (Detections.empty(),):
            now.add(self._signed(result))
        return now

    def _signed(self, result: Result) -> Result:
        own = self.settings.unique_id
        if isinstance(result, Detections):
            if self._excluded.size:
                result = result[~np.isin(result.class_id, self._excluded)]
            if self._thresholds or self.settings.topk:
                result = result[self._surest(result)]
            return result.with_columns(component_id=np.full(len(result), own, np.int32))
        if isinstance(result, (Classifications, SegmentationMap, Text, Tensors)):
            return replace(result, component_id=own)
        return result

    def _surest(self, found: Detections) -> np.ndarray[Any, Any]:
        """Rows that reach the confidence of their class, at most ``topk`` of each class; in their order."""
        rest = self._thresholds.get(-1, 0.0)
        least = np.array([self._thresholds.get(c, rest) for c in found.class_id.tolist()], np.float32)
        rows: np.ndarray[Any, Any] = np.flatnonzero(found.confidence >= least)
        if self.settings.topk:
            order = rows[np.argsort(-found.confidence[rows], kind="stable")]
            seen: Counter[int] = Counter()
            kept = []
            for row, class_id in zip(order.tolist(), found.class_id[order].tolist()):
                seen[class_id] += 1
                if seen[class_id] <= self.settings.topk:
                    kept.append(row)
            rows = np.sort(np.array(kept, np.int64))
        return rows

    def change(self, name: str, value: Any) -> None:
        """A threshold or the labels changed while frames pass; takes effect from the next batch on.

        Raises:
            ConfigError: The model cannot take it.
        """
        if name == "shadow_share":
            return
        if name == "shadow_model":
            if value:
                self._check_shadow(value)
            self._cast_shadow(value)
            return
        loaded = self.runner.model if self.runner is not None else None
        if loaded is None:
            return
        known = loaded.model.options()
        if name in known:
            setattr(loaded.model, name, value)
            if name == "labels":
                loaded.labels = loaded.model.labels
        elif name == "labels":
            loaded.labels = parse_labels(value)
        elif name == "confidence_threshold":
            loaded.confidence = value
        else:
            raise ConfigError(f"{name.replace('_', '-')} does not apply to {loaded.text}")
        if self.runner is not None:
            self.runner.adapt(name, as_agreed(value))

    @property
    def running(self) -> str:
        """Spec of the model that is running, or that will."""
        return self.runner.config.spec if self.runner is not None else self.settings.model

    def swap(self, spec: str) -> None:
        """Loads another model on a worker and exchanges it between two batches; ``updated`` tells how it went.

        Other settings stay as they are and apply to the new model. Returns at once.

        Raises:
            ConfigError: The spec names nothing.
        """
        ModelSpec.parse(spec)
        if self.runner is None or self._swap is None:
            self.settings.model = spec
            return
        settings, arguments = InferSettings(**{**self.settings.values(), "model": spec}), dict(self.arguments)
        device = self.runner.config.device

        def load() -> LoadedModel:
            loaded = build_model(settings, arguments)
            loaded.load(device)
            return loaded

        self._swap.request(spec, load, agreement(settings, arguments))

    def _swapped(self, spec: str, error: BaseException | None) -> None:
        if error is None:
            self.settings.model = spec
            self.counts["swaps"] += 1
            self._watch()
        else:
            self.notify(error)
        self.updated(spec, error)

    def _watch(self) -> None:
        """Follows the files of the running model and of the user's functions, if that is asked for and they have one."""
        self._watching.close()
        if self.settings.model_watch:
            spec = ModelSpec.parse(self.settings.model)
            path = Path(spec.target if spec.kind == "runtime" else spec.name)
            self._watching.model(path, lambda: self.swap(self.settings.model))
        if self.settings.reload:
            loaded = self.runner.model if self.runner is not None else None
            own = (self.callback.function,) if self.callback is not None else ()
            theirs = getattr(loaded.model, "functions", ()) if loaded is not None else ()
            self._watching.functions((*own, *theirs), lambda: self.counts.update(reloads=1), self.notify)

    @property
    def tracking(self) -> BatchTracking | None:
        """The runner's tracker, where there is one."""
        after = self.runner.after if self.runner is not None else None
        return after if isinstance(after, BatchTracking) else None

    def reset(self, stream_id: str) -> None:
        if self.lane is not None:
            self.lane.idle()
        if self.tracking is not None:
            self.tracking.reset(stream_id, self.lane)

    def idle(self) -> None:
        """The stream has nothing for now; other streams do not wait for it."""
        if self.lane is not None:
            self.lane.idle()

    def interrupt(self) -> None:
        if self.lane is not None:
            self.lane.flush()

    def stop(self) -> None:
        self._watching.close()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._swap is not None:
            self._swap.close()
        self._cast_shadow("")
        tracking, lane, self.lane = self.tracking, self.lane, None
        runner, self.runner = self.runner, None
        if lane is not None:
            lane.close()
            if tracking is not None:
                tracking.forget(lane)
        if runner is not None:
            release(self.settings.model_instance_id, runner)

    def stats(self) -> dict[str, Any]:
        """Counts of frames by fate, of dropped objects by reason, and seconds by step."""
        found: dict[str, Any] = {key: self.counts[key] for key in STAGE_COUNTS}
        if self.runner is not None:
            found.update(self.runner.stats())
            if self.runner.model is not None:
                found.update({f"objects-{k}": v for k, v in self.runner.model.dropped.items()})
            found["write-seconds"] = self.write_seconds
        if (shadow := self.shadow) is not None:
            found.update({f"shadow-{k}": v for k, v in shadow.stats().items()})
        return found
