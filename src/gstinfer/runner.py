"""One model, any number of streams: frames of all of them share batches.

A streaming thread submits its frames and waits for its ticket. One worker thread gives batches to the model; with a single
lane whose thread waits anyway, that thread does, which saves two wake-ups a frame. A batch closes when every
active lane has a frame waiting, at ``batch_size``, or ``batch_timeout`` after the model became free; a lane that had nothing
when a batch timed out stops counting as active until its next frame.

A model with ``submit`` has several batches in flight: the worker submits, a second thread waits for the results and hands
them out, in order.
"""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gstinfer.cores import settle
from gstinfer.errors import GstInferError, PredictError
from gstinfer.frames import Flushed, Frame, FrameBatch
from gstinfer.image import Device
from gstinfer.lane import Lane
from gstinfer.model import LoadedModel
from gstinfer.pace import Pace
from gstinfer.results import Result
from gstinfer.ticket import BufferJob, Ticket, release_in_turn

__all__ = ["UNSET", "After", "ModelRunner", "RunnerConfig"]

log = logging.getLogger(__name__)

After = Callable[[Sequence[Frame], list[tuple[Result, ...]], Sequence[Lane]], list[tuple[Result, ...]]]
"""Frames of a batch, their results and their lanes; gives the results as they are to be."""

UNSET = "unset"
"""Stands for a setting that is not among ``RunnerConfig.arguments``."""
PATIENCE = 30.0
"""Seconds that a stop waits for a model that hangs."""


@dataclass(frozen=True)
class RunnerConfig:
    """What makes two users of one runner agree.

    Attributes:
        spec: The model's spec, for messages.
        device: Where it runs.
        batch_size: Most frames a batch; 0 for as many as there are lanes, or half of the frames that those have in
            flight, within the model's own limit.
        batch_timeout: Seconds that an open batch waits after the model became free.
        scheduling: ``"fair"`` (one frame of each lane in turn), ``"latency"`` (never waits) or ``"throughput"`` (waits
            for full batches up to the timeout, also with few active lanes).
        batches_in_flight: Most batches that a model with ``submit`` works on at a time.
        cores: Cores that the runner's threads run on; empty for any.
        arguments: The model's settings by name, as text, so that two users of one key can be compared.
    """

    spec: str
    device: Device = field(default_factory=Device)
    batch_size: int = 0
    batch_timeout: float = 0.01
    scheduling: str = "fair"
    batches_in_flight: int = 2
    cores: frozenset[int] = frozenset()
    arguments: Mapping[str, str] = field(default_factory=dict)

    def flat(self) -> dict[str, str]:
        """All of it by name, as text."""
        own = {name: str(value) for name, value in vars(self).items() if name != "arguments"}
        return {**own, **self.arguments}


class ModelRunner:
    """Owns one model and the thread that runs it.

    Args:
        load: Makes and loads the model; called on the thread that starts the runner. Raises ModelLoadError.
        config: See ``RunnerConfig``.
        after: Work on the checked results of each batch before they are handed out, such as tracking; batches in order.

    Attributes:
        config: As it is now.
        past: What ``config`` said before, by name: users that still ask for it are served with what is now.
    """

    def __init__(self, load: Callable[[], LoadedModel], config: RunnerConfig, after: After | None = None) -> None:
        self.config, self.after = config, after
        self.past: defaultdict[str, set[str]] = defaultdict(set)
        self._load = load
        self._condition = threading.Condition()
        self._lanes: list[Lane] = []
        self._turn = 0
        self._model: LoadedModel | None = None
        self._worker: threading.Thread | None = None
        self._stopping = False
        # Held by the thread that gives batches to the model.
        self._giving = threading.Lock()
        self._free_at = 0.0
        self._arrived = 0
        self._wake_at = 1
        self._onlookers = 0
        self._in_flight: list[_Batch] = []
        self._pace = Pace()
        self._submitted: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._courier: threading.Thread | None = None
        self._slots = threading.Semaphore(max(1, config.batches_in_flight))
        self.fill: Counter[int] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def model(self) -> LoadedModel | None:
        """The model that is running."""
        return self._model

    def start(self) -> None:
        """Loads the model and starts the worker; repeated calls do nothing."""
        if self._worker is not None:
            return
        self._model = self._load()
        # What loading left behind is never garbage: without it each collection walks the whole model's objects.
        gc.collect()
        gc.freeze()
        self._stopping = False
        self._worker = threading.Thread(target=self._run, name=f"gstinfer:{self.config.spec}", daemon=True)
        self._courier = threading.Thread(target=self._hand_out, name="gstinfer:results", daemon=True)
        self._courier.start()
        self._worker.start()

    def attach(self, depth: int = 1) -> Lane:
        """A new lane, see ``Lane``."""
        lane = Lane(self, depth)
        with self._condition:
            self._lanes.append(lane)
        return lane

    def stop(self) -> None:
        """Fails what waits, joins the worker and closes the model."""
        with self._condition:
            self._stopping = True
            for lane in self._lanes:
                self._drop(lane)
            self._condition.notify_all()
        worker, self._worker = self._worker, None
        if worker is not None and worker is not threading.current_thread():
            worker.join(PATIENCE)
            if worker.is_alive():
                log.error("%s does not return from predict; its thread is left behind", self.config.spec)
                return
            if not self._giving.acquire(timeout=PATIENCE):
                log.error("%s does not return from predict; it is left behind", self.config.spec)
                return
            self._giving.release()
            self._submitted.put(None)
            if self._courier is not None:
                self._courier.join()
        model, self._model = self._model, None
        if model is not None:
            model.close()
            gc.unfreeze()

    def exchange(self, model: LoadedModel, spec: str, arguments: Mapping[str, str] | None = None) -> None:
        """Puts another, loaded model in place between two batches, and closes the old one when its last batch is out.

        Args:
            model: The new one.
            spec: Its spec.
            arguments: Its settings, see ``RunnerConfig``; None for the same as before.

        Raises:
            Flushed: The runner stopped meanwhile; the new model is closed.
        """
        with self._condition:
            old: LoadedModel | None = model
            if not self._stopping and self._worker is not None:
                old, self._model = self._model, model
                self._note(spec=spec, arguments=self.config.arguments if arguments is None else arguments)
            self._wait_out(lambda batch: batch.model is old)
        if old is not None:
            old.close()
        if old is model:
            raise Flushed

    def adapt(self, name: str, value: str) -> None:
        """Notes that one of the model's settings changed while it runs."""
        with self._condition:
            self._note(arguments={**self.config.arguments, name: value})

    def _note(self, **changes: Any) -> None:
        before, self.config = self.config.flat(), replace(self.config, **changes)
        for name in {**before, **self.config.flat()}:
            self.past[name].add(before.get(name, UNSET))

    def busy_since(self) -> float | None:
        """``time.monotonic()`` when the oldest batch in flight began; None while none is."""
        with self._condition:
            return self._in_flight[0].began if self._in_flight else None

    def stats(self) -> dict[str, float]:
        """Counters so far: batches, frames, mean batch, and seconds by step."""
        # Copies, as the worker adds to both meanwhile.
        fill, seconds = dict(self.fill), dict(self.seconds)
        frames = sum(size * count for size, count in fill.items())
        batches = sum(fill.values())
        found: dict[str, float] = {
            "batches": batches,
            "frames": frames,
            "batch-fill": frames / batches if batches else 0,
        }
        found.update({f"{name}-seconds": value for name, value in seconds.items()})
        inner = getattr(self._model.model, "stage_seconds", None) if self._model is not None else None
        for name, value in (inner or {}).items():
            found[f"{name}-seconds"] = value
        return found

    def _limit(self) -> int:
        own = self._model.model.max_batch if self._model is not None else None
        # A lane whose frames come in batches, as DeepStream's do, counts as that many. Of frames in flight half may share a
        # batch, while the others are on their way.
        wanted = self.config.batch_size or max(1, sum(lane.width * max(1, lane.depth // 2) for lane in self._lanes))
        # A static batch of 1 is sliced inside the model, so a larger window costs nothing but waiting.
        return wanted if self.config.batch_size or own is None else max(1, min(wanted, own))

    def _submit(
        self, lane: Lane, frames: Sequence[Frame], job: BufferJob | None = None, *, here: bool = False
    ) -> Ticket:
        ticket = Ticket(lane, frames, job)
        empty, batch = not ticket.pending, None
        with self._condition:
            if self._stopping or self._worker is None or lane not in self._lanes:
                raise Flushed
            lane.active = True
            lane.width = max(1, len(ticket.frames))
            lane.waiting.extend((ticket, index) for index in range(ticket.pending))
            self._arrived += 1
            if here and len(self._lanes) == 1 and not self._in_flight:
                batch = self._begin()
            # Waking the worker for every frame of a batch would cost more than all the rest here.
            if batch is None and self._arrived >= self._wake_at:
                self._condition.notify_all()
        if batch is not None:
            try:
                self._submit_batch(batch)
            finally:
                self._giving.release()
        if empty:
            ticket._done.release()
        return ticket

    def _begin(self) -> _Batch | None:
        """A batch that the caller, who holds the condition, gives to the model and finishes before it lets go of
        ``_giving``; None where none is due or the worker is at it."""
        # Whom the worker waits for is its own affair.
        wake_at, due = self._wake_at, self._due()
        self._wake_at = wake_at
        if due is None or due > 0 or self._model is None or not self._giving.acquire(blocking=False):
            return None
        batch = _Batch(self._model, self._take(), time.monotonic(), here=True)
        self._in_flight.append(batch)
        return batch

    def _release(self, lane: Lane, *, flush: bool) -> None:
        with self._condition:
            lane.active = False
            if flush:
                self._drop(lane)
            self._condition.notify_all()

    def _detach(self, lane: Lane) -> None:
        with self._condition:
            self._drop(lane)
            if lane in self._lanes:
                self._lanes.remove(lane)
            # A batch that holds this lane's pictures must end before their memory goes.
            self._wait_out(lambda batch: any(ticket.lane is lane for ticket, _ in batch.places))
            self._condition.notify_all()

    def _wait_out(self, concerns: Callable[[_Batch], bool]) -> None:
        """Waits, with the condition held, until no such batch is in flight."""
        self._onlookers += 1
        while any(map(concerns, self._in_flight)):
            self._condition.wait(0.5)
        self._onlookers -= 1

    def _drop(self, lane: Lane) -> None:
        while lane.waiting:
            lane.waiting.popleft()[0]._fail(Flushed())

    def _drop_rest(self, ticket: Ticket, error: BaseException) -> None:
        """Drops the frames of a failed ticket that still wait."""
        waiting = ticket.lane.waiting
        rest = [place for place in waiting if place[0] is ticket]
        if rest:
            ticket.lane.waiting = deque(place for place in waiting if place[0] is not ticket)
            ticket._fail(error, len(rest))

    def _due(self) -> float | None:
        """Seconds until there is something to do: the open batch closes, or the streams of the last one do not come back.
        None while nothing is expected."""
        waiting = [lane for lane in self._lanes if lane.waiting]
        self._wake_at = 1
        if not waiting:
            return self._expected()
        queued, limit = sum(len(lane.waiting) for lane in waiting), self._limit()
        if queued >= limit or self.config.scheduling == "latency":
            return 0.0
        missing = limit - queued
        if any(lane.depth > 1 for lane in waiting) and (left := self._pace.left(time.monotonic())) > 0:
            # Of these streams more frames may come while the model is busy anyway.
            self._wake_at = missing
            return left
        if self.config.scheduling == "fair":
            missing = min(missing, sum(lane.active and not lane.waiting for lane in self._lanes))
            if not missing:
                return 0.0
        self._wake_at = missing
        oldest = min(lane.waiting[0][0].submitted for lane in waiting)
        return max(oldest, self._free_at) + self.config.batch_timeout - time.monotonic()

    def _expected(self) -> float | None:
        """While the streams of the last batch may come back together, nobody has to be woken by the first of them."""
        left = self._free_at + self.config.batch_timeout - time.monotonic()
        back = min(self._limit(), sum(lane.active for lane in self._lanes))
        if left <= 0 or back < 2 or self.config.scheduling != "fair":
            return None
        self._wake_at = back
        return left

    def _take(self) -> list[tuple[Ticket, int]]:
        """The next batch: lanes in turn, one frame each round."""
        for lane in self._lanes:
            if not lane.waiting:
                lane.active = False
        batch: list[tuple[Ticket, int]] = []
        limit, count = self._limit(), len(self._lanes)
        misses = 0
        while len(batch) < limit and misses < count:
            lane = self._lanes[self._turn % count]
            self._turn += 1
            if lane.waiting:
                batch.append(lane.waiting.popleft())
                misses = 0
            else:
                misses += 1
        return batch

    def _run(self) -> None:
        settle(self.config.cores)
        while True:
            self._slots.acquire()
            with self._condition:
                while not self._stopping:
                    due = self._due()
                    if due is not None and due <= 0:
                        break
                    self._arrived = 0
                    self._condition.wait(due)
            with self._giving:
                with self._condition:
                    if self._stopping or self._model is None:
                        self._slots.release()
                        return
                    if (due := self._due()) is None or due > 0:
                        # Somebody else was quicker.
                        self._slots.release()
                        continue
                    batch = _Batch(self._model, self._take(), time.monotonic())
                    self._in_flight.append(batch)
                self._submit_batch(batch)

    def _open_buffers(self, batch: _Batch) -> None:
        """Opens what was handed over as whole buffers; one that cannot be opened leaves the batch."""
        opened = []
        for ticket, index in batch.places:
            try:
                if ticket.job is not None:
                    ticket.frames = ticket.job.open()
                opened.append((ticket, index))
            except Exception as error:  # whatever it is, the other streams go on
                ticket._fail(error)
        batch.places = opened

    def _submit_batch(self, batch: _Batch) -> None:
        self._open_buffers(batch)
        frames = tuple(ticket.frames[index] for ticket, index in batch.places)
        self.fill[len(frames)] += 1
        for ticket, _ in batch.places:
            ticket.waited = batch.began - ticket.submitted
            ticket.model = batch.model.text
            self.seconds["wait"] += ticket.waited
        try:
            if frames:
                batch.finish = batch.model.submit(FrameBatch(frames))
        except BaseException as error:  # the user's code ran
            batch.error = error
        if batch.model.pipelined and not batch.here:
            with self._condition:
                batch.given = time.monotonic()
                self._pace.given(len(frames), batch.began, batch.given)
            self._submitted.put(batch)
        else:
            self._finish(batch)

    def _hand_out(self) -> None:
        settle(self.config.cores)
        while (batch := self._submitted.get()) is not None:
            self._finish(batch)

    def _finish(self, batch: _Batch) -> None:
        results: list[tuple[Result, ...]] = []
        try:
            if batch.error is None and batch.finish is not None:
                results = batch.finish()
        except BaseException as error:  # the user's code ran
            batch.error = error
        self._free_at = time.monotonic()
        self.seconds["model"] += self._free_at - batch.began
        if batch.given:
            with self._condition:
                self._pace.finished(batch.given, self._free_at)
        if not batch.here:
            # The model is free: what is left to do with its results must not hold back the next batch.
            self._slots.release()
        try:
            if batch.error is None and batch.finish is not None and self.after is not None:
                frames = [ticket.frames[index] for ticket, index in batch.places]
                results = self.after(frames, results, [ticket.lane for ticket, _ in batch.places])
        except BaseException as error:  # the user's code ran
            batch.error = error
        spoilt = self._close_buffers(batch, results) if batch.error is None else {}
        with self._condition:
            # Under the lock, as a flush counts down the same tickets.
            if batch.error is not None:
                failure = _as_model_error(batch.error)
                for ticket, _ in batch.places:
                    ticket._fail(failure)
                    self._drop_rest(ticket, failure)
            else:
                done = []
                for (ticket, index), result in zip(batch.places, results):
                    if ticket in spoilt:
                        ticket._fail(spoilt[ticket])
                    elif ticket._deliver(index, result):
                        done.append(ticket)
                release_in_turn(done)
            self._in_flight.remove(batch)
            # A batch that was not the worker's changes nothing for it.
            if not batch.here or self._onlookers:
                self._condition.notify_all()

    def _close_buffers(self, batch: _Batch, results: list[tuple[Result, ...]]) -> dict[Ticket, Exception]:
        """Closes what was handed over as whole buffers; gives the errors of those that could not be written."""
        spoilt: dict[Ticket, Exception] = {}
        for (ticket, _), result in zip(batch.places, results):
            if ticket.job is not None:
                try:
                    ticket.job.close([result], ticket.model)
                except Exception as error:  # whatever it is, the other streams go on
                    spoilt[ticket] = error
        return spoilt


@dataclass(eq=False)
class _Batch:
    """Frames that a model works on; ``here``: in the thread that wanted them, not on the runner's own."""

    model: LoadedModel
    places: list[tuple[Ticket, int]]
    began: float
    given: float = 0.0
    finish: Callable[[], list[tuple[Result, ...]]] | None = None
    error: BaseException | None = None
    here: bool = False


def _as_model_error(error: BaseException) -> GstInferError:
    if isinstance(error, GstInferError):
        return error
    failure = PredictError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
