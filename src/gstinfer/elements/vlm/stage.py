"""The work of ``pyvlm``: segments go out, answers come back on later frames; frames never wait."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gstinfer.elements.vlm.settings import VlmSettings
from gstinfer.errors import ConfigError, GstInferError, PredictError
from gstinfer.frames import Flushed, Frame, FrameBatch
from gstinfer.image import Device
from gstinfer.results import Classifications, Text
from gstinfer.swap import Watch
from gstinfer.vlm import (
    AnswerSchema,
    BackendOptions,
    Call,
    Condition,
    Cut,
    Dispatcher,
    Prompt,
    Prompts,
    Segment,
    StreamSampler,
    as_backend,
)
from gstinfer.vlm.dispatcher import release, share
from gstinfer.vlm.objects import ObjectQuestions
from gstinfer.vlm.segments import shrink
from gstinfer.vlm.trigger import Seen, Tracks

__all__ = ["VlmStage"]

log = logging.getLogger(__name__)

ENDS = ("answered", "dropped", "failed")


@dataclass
class _Stream:
    """What is open for one stream.

    Attributes:
        name: Its id, for people.
        sampler: Its open segment.
        objects: Its objects, where they are asked about.
        tracks: Since when its objects have been seen.
        calls: Its questions that have not ended.
        arrived: Answers for its next frame.
        asked: PTS of the end of the last segment that the condition let through, or None.
    """

    name: str
    sampler: StreamSampler
    objects: ObjectQuestions
    tracks: Tracks = field(default_factory=Tracks)
    calls: set[Call] = field(default_factory=set)
    arrived: list[tuple[Text, list[Classifications]]] = field(default_factory=list)
    asked: int | None = None


class VlmStage:
    """Asks a vision-language model about segments of each stream, or about its objects.

    Args:
        settings: Checked properties.
        arguments: ``model-args`` as keyword arguments.
        notify: Told of failed questions and of a prompts file that cannot be used, once per reason; worker threads.
        answered: Called with (stream id, text) for every answer, on a worker's thread.
    """

    def __init__(
        self,
        settings: VlmSettings,
        arguments: Mapping[str, Any] | None = None,
        notify: Callable[[BaseException], None] | None = None,
        answered: Callable[[str, Text], None] = lambda stream_id, text: None,
    ) -> None:
        self.settings, self.arguments = settings, dict(arguments or {})
        self.notify = notify or (lambda error: log.warning("%s", error))
        self.answered = answered
        self.dispatcher: Dispatcher | None = None
        self.counts: Counter[str] = Counter()
        self._lock = threading.Condition()
        self._streams: dict[str, _Stream] = {}
        self._told: set[str] = set()
        self._watching: Watch | None = None
        self._interrupted = False
        self._ending: float | None = None
        self._schema: AnswerSchema | None = None
        self._latency = 0.0
        self._model = ""

    def start(self) -> None:
        """Reads prompts, schema and condition, and opens the model.

        Raises:
            GstInferError: Any of them cannot be used.
        """
        settings = self.settings
        self.plan = settings.plan()
        self.condition = Condition(settings.only_on) if settings.only_on.strip() else None
        self.prompts = self._prompts()
        if settings.cooldown and not any(prompt.condition for prompt in self.prompts.all()):
            raise ConfigError("cooldown needs a condition", hint="set only-on")
        self._schema = AnswerSchema.load(Path(settings.response_schema)) if settings.response_schema else None
        options = BackendOptions(
            self.arguments,
            Device.parse(settings.device),
            settings.key_env,
            settings.max_tokens,
            settings.temperature,
            settings.send,
            settings.jpeg_quality,
            settings.max_inflight,
        )

        def make() -> Dispatcher:
            backend = as_backend(settings.model, options)
            backend.open()
            return Dispatcher(
                backend,
                size=settings.queue_size,
                max_inflight=settings.max_inflight,
                retries=settings.retries,
                backoff=settings.backoff,
            )

        description = (settings.model, options, settings.queue_size, settings.retries, settings.backoff)
        self.dispatcher, agreed = share(settings.model_instance_id, description, make)
        if not agreed:
            self.dispatcher = None
            raise ConfigError(
                f"model-instance-id={settings.model_instance_id}: another element of this id has another model or other "
                "settings of it",
                hint="give both the same model, model-args, max-inflight, queue-size, retries and the like",
            )
        self._model = self.dispatcher.backend.name
        if settings.prompts:
            self._watching = Watch(Path(settings.prompts), self._reload)

    def _prompts(self) -> Prompts:
        settings = self.settings
        default = Prompt(settings.prompt, settings.system_prompt, "prompt", self.condition)
        prompts = Prompts.load(default, Path(settings.prompts) if settings.prompts else None)
        used = [prompt.placeholders | ({"condition"} if prompt.condition else set()) for prompt in prompts.all()]
        self._looks = settings.on == "objects" or any(names & {"objects", "labels", "condition"} for names in used)
        return prompts

    def _reload(self) -> None:
        """The prompts file changed; one that cannot be used leaves the old prompts. Watching thread."""
        try:
            self.prompts = self._prompts()
        except GstInferError as error:
            self.notify(error)
        else:
            self.counts["prompts-read"] += 1

    def change(self, name: str, value: Any) -> None:
        """A prompt changed while frames pass; the next segment is asked with it.

        Raises:
            ConfigError: It cannot be used; the old one stays.
        """
        before = getattr(self.settings, name)
        setattr(self.settings, name, value)
        try:
            self.prompts = self._prompts()
        except GstInferError:
            setattr(self.settings, name, before)
            raise

    def passes(self, stream_id: str, pts: int) -> bool:
        """Whether a frame needs not even be opened: nothing is due, nothing looked at and no answer there. It counts then."""
        stream = self._streams.get(stream_id)
        if stream is None or self._looks or self._interrupted or stream.arrived or not stream.sampler.idle(pts):
            return False
        self.counts["frames"] += 1
        return True

    def process(self, batch: FrameBatch) -> None:
        if self._interrupted:
            raise Flushed
        for frame in batch:
            stream = self._stream(frame)
            self.counts["frames"] += 1
            if frame.pts is None:
                self.counts["untimed"] += 1
                self._tell("untimed", ConfigError("a frame has no timestamp, so that no segment can hold it"))
            elif self.settings.on == "objects":
                self._objects(stream, frame, frame.pts)
            else:
                self._segments(stream, frame, frame.pts)
            self._deliver(stream, frame)

    def deliver(self, batch: FrameBatch) -> None:
        """Puts answers that have come since on frames that were processed before."""
        for frame in batch:
            self._deliver(self._stream(frame), frame)

    def _stream(self, frame: Frame) -> _Stream:
        stream = self._streams.get(frame.stream_id)
        if stream is None:
            name = self.settings.stream_id or frame.results.stream_id or frame.stream_id
            settings = self.settings
            questions = ObjectQuestions(settings.labels, settings.min_size, settings.ask_again)
            stream = _Stream(name, StreamSampler(self.plan), questions)
            with self._lock:
                self._streams[frame.stream_id] = stream
        return stream

    def _segments(self, stream: _Stream, frame: Frame, pts: int) -> None:
        sampler = stream.sampler
        for cut in sampler.advance(pts):
            self._cut(stream, cut)
        if self._looks:
            seen = Seen(frame.results.detections, pts, stream.tracks)
            condition = self.prompts.of(stream.name).condition
            sampler.note(pts, seen.counts, condition is None or condition(seen))
        if sampler.due(pts, frame.image):
            sampler.keep(pts, shrink(frame.image, self.settings.size))
            self.counts["sampled"] += 1

    def _cut(self, stream: _Stream, cut: Cut) -> None:
        """A segment is over: it is asked about, where its condition held."""
        prompt = self.prompts.of(stream.name)
        if prompt.condition is not None:
            if not cut.wanted:
                self.counts["not-asked"] += 1
                return
            if stream.asked is not None and cut.end - stream.asked < self.settings.cooldown * 1e9:
                self.counts["cooling-down"] += 1
                return
            stream.asked = cut.end
        self._ask(stream, cut, prompt)

    def _ask(self, stream: _Stream, cut: Cut, prompt: Prompt, tracker_id: int | None = None) -> None:
        """Hands a question over.

        Raises:
            Flushed: Waiting for room was interrupted.
        """
        assert self.dispatcher is not None
        question, system = prompt.fill(stream.name, cut)
        segment = Segment(
            stream.name,
            cut.start,
            cut.end,
            tuple(picture for _, picture in cut.samples),
            tuple(pts for pts, _ in cut.samples),
            question,
            system,
            prompt.prompt_id,
            self._schema.schema if self._schema is not None else None,
            cut.objects,
            tracker_id,
        )
        call = Call(segment, self.settings.timeout, self._ended, stream)
        with self._lock:
            stream.calls.add(call)
            self.counts["segments"] += 1
        if not self.dispatcher.put(call, self.settings.on_full, self._given_up):
            call.finish("dropped", "flushed" if self._interrupted else "full")
            if self._interrupted:
                raise Flushed

    def _given_up(self) -> bool:
        """Whether waiting for room has no point any more; settings may have changed meanwhile."""
        return self._interrupted or self.settings.on_full != "wait" or self._drained()

    def _drained(self) -> bool:
        """Whether the stream's end has waited for as long as it may."""
        return self._ending is not None and time.monotonic() - self._ending >= self.settings.drain_timeout

    def _objects(self, stream: _Stream, frame: Frame, pts: int) -> None:
        found = frame.results.detections
        seen = Seen(found, pts, stream.tracks)
        if found is None or not len(found):
            return
        questions, prompt = stream.objects, self.prompts.of(stream.name)
        with self._lock:
            rows = questions.choose(found, pts)
        for name, count in questions.take_counts().items():
            self.counts[name] += count
        if questions.untracked:
            self._tell("untracked", ConfigError("on=objects needs tracked objects", hint="put pytrack before pyvlm"))
        if rows and prompt.condition is not None and not prompt.condition(seen):
            self.counts["not-asked"] += len(rows)
            rows = []
        for row in rows:
            crop = questions.crop(frame.image, found, row)
            if crop is None:
                continue
            label = (found.named(None).label or [])[row]
            cut = Cut(pts, pts, ((pts, shrink(crop, self.settings.size)),), Counter({label: 1}), True)
            tracker_id = int(found.tracker_id[row])  # type: ignore[index]
            with self._lock:
                questions.asked(tracker_id, pts)
            self.counts["sampled"] += 1
            self._ask(stream, cut, prompt, tracker_id)

    def _deliver(self, stream: _Stream, frame: Frame) -> None:
        """Answers that came since the last frame go onto this one; words about objects stay with them."""
        with self._lock:
            # Several questions at once may be answered in any order.
            arrived = sorted(stream.arrived, key=lambda item: (item[0].start, item[0].end))
            stream.arrived = []
            known = stream.objects.known
            said = None
            if known and self.settings.on == "objects":
                said = stream.objects.attach(frame.results.detections, self.settings.unique_id)
        if said is not None:
            frame.results = replace(frame.results, detections=said)
        if arrived:
            results = frame.results
            frame.results = replace(
                results,
                texts=[*results.texts, *(text for text, _ in arrived)],
                classifications=[*results.classifications, *(c for _, classes in arrived for c in classes)],
                stream_id=results.stream_id or stream.name,
            )

    def _ended(self, call: Call) -> None:
        """A question has ended; any thread."""
        stream: _Stream = call.key
        text = None
        with self._lock:
            self.counts[call.state] += 1
            self.counts["retries"] += call.retries
            if call.state == "answered":
                text, classes = self._text(call)
                self._latency += (text.latency or 0) / 1e9
                stream.arrived.append((text, classes))
                if text.tracker_id is not None:
                    stream.objects.answered(text.tracker_id, text, classes, self.settings.unique_id)
            else:
                self.counts[f"{call.state}-{call.reason}"] += 1
                if call.segment.tracker_id is not None:
                    stream.objects.unanswered(call.segment.tracker_id)
        try:
            if text is not None:
                self.answered(stream.name, text)
            elif call.state == "failed":
                self._tell(call.reason, call.error or PredictError(call.reason))
        finally:
            # Last, so that the stream's end does not overtake what is told.
            with self._lock:
                stream.calls.discard(call)
                self._lock.notify_all()

    def _text(self, call: Call) -> tuple[Text, list[Classifications]]:
        """The answer with everything that is known about it."""
        assert call.answer is not None
        segment, own = call.segment, self.settings.unique_id
        answer = replace(
            call.answer,
            start=segment.start,
            end=segment.end,
            prompt_id=segment.prompt_id,
            model=call.answer.model or self._model,
            latency=round((time.monotonic() - call.began) * 1e9),
            component_id=own,
            tracker_id=segment.tracker_id,
        )
        self.counts["tokens"] += answer.tokens or 0
        if self._schema is None:
            return answer, []
        answer.data, answer.invalid = self._schema.read(answer.text)
        if answer.invalid:
            self.counts["invalid"] += 1
            return answer, []
        classes = self._schema.classifications(answer.data, own)
        return answer, classes

    def _tell(self, reason: str, error: BaseException) -> None:
        with self._lock:
            new = reason not in self._told
            self._told.add(reason)
        if new:
            self.notify(error)
        else:
            log.info("%s", error)

    def end(self, stream_id: str) -> None:
        """One of several streams ends: its open segment is asked about; its questions go on."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        cut = stream.sampler.finish()
        if cut is not None and not self._interrupted:
            self._cut(stream, cut)
        stream.tracks, stream.asked = Tracks(), None

    def finish(self) -> None:
        """All streams end: the open segments are asked about, and answers are awaited for ``drain-timeout``."""
        self._ending = time.monotonic()
        try:
            for stream_id in list(self._streams):
                self.end(stream_id)
            with self._lock:
                while any(s.calls for s in self._streams.values()) and not (self._interrupted or self._drained()):
                    self._lock.wait(0.05)
        finally:
            self._ending = None
        self._drop(list(self._streams.values()), "drained")

    def reset(self, stream_id: str) -> None:
        with self._lock:
            gone = self._streams.pop(stream_id, None)
        if gone is not None:
            self._drop([gone], "flushed")

    def clear(self) -> None:
        """Every stream begins anew."""
        for stream_id in list(self._streams):
            self.reset(stream_id)
        self._interrupted = False

    def _drop(self, streams: list[_Stream], reason: str) -> None:
        with self._lock:
            calls = [call for stream in streams for call in stream.calls]
        if self.dispatcher is not None:
            self.dispatcher.drop(calls, reason)

    def interrupt(self) -> None:
        self._interrupted = True
        self._drop(list(self._streams.values()), "flushed")
        if self.dispatcher is not None:
            self.dispatcher.wake()
        with self._lock:
            self._lock.notify_all()

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.close()
        self.interrupt()
        dispatcher, self.dispatcher = self.dispatcher, None
        if dispatcher is not None:
            release(self.settings.model_instance_id, dispatcher)
        self._streams.clear()
        self._interrupted = False

    def stats(self) -> dict[str, Any]:
        """Frames, questions by fate (``segments`` is what was answered, dropped, failed or still is on its way), answers
        that do not fit, mean seconds to an answer, and bytes of pictures kept, also by stream."""
        with self._lock:
            counts, streams = Counter(self.counts), list(self._streams.values())
            calls = [call for stream in streams for call in stream.calls]
        found: dict[str, Any] = {key: counts.pop(key, 0) for key in ("frames", "sampled", "segments", *ENDS)}
        found["waiting"] = sum(call.state == "waiting" for call in calls)
        found["in-flight"] = sum(call.state == "in-flight" for call in calls)
        found |= {key: counts.pop(key, 0) for key in ("retries", "invalid", "not-asked", "cooling-down", "tokens")}
        found["mean-latency"] = self._latency / found["answered"] if found["answered"] else 0.0
        found |= dict(sorted(counts.items()))
        held = {s.name: s.sampler.nbytes + sum(c.segment.nbytes for c in list(s.calls)) for s in streams}
        found["bytes"] = sum(held.values())
        found |= {f"bytes-{re.sub(r'[^A-Za-z0-9_.:+-]', '_', name)}": size for name, size in held.items()}
        return found
