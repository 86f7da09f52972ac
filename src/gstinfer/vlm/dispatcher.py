"""Questions wait in a bounded mailbox for a few workers; nothing here runs on the streaming thread but ``put``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gstinfer.errors import PredictError
from gstinfer.periodic import Periodic
from gstinfer.results import Text
from gstinfer.vlm.backend import Backend
from gstinfer.vlm.call import Call, Trouble

__all__ = ["Dispatcher", "release", "share"]

LOOK = 0.05
"""Seconds between two looks at the deadlines."""

PATIENCE = 1.0
"""Seconds that ``close`` waits for workers whose questions were called off."""

LONGEST_WAIT = 30.0
"""Seconds between two tries at most."""


class Dispatcher:
    """Hands questions to a backend.

    Args:
        backend: Opened already.
        size: Most questions that wait.
        max_inflight: Most that are asked at once.
        retries: How often a question is asked again after a fault that may pass.
        backoff: Seconds before the first of these; doubled each time.
    """

    def __init__(
        self, backend: Backend, *, size: int = 16, max_inflight: int = 4, retries: int = 3, backoff: float = 0.5
    ) -> None:
        self.backend, self.size, self.retries, self.backoff = backend, size, retries, backoff
        self._waiting: list[Call] = []
        self._flying: set[Call] = set()
        self._changed = threading.Condition()
        self._closed = False
        count = max_inflight if backend.workers is None else min(max_inflight, backend.workers)
        self._working = count
        self._threads = [
            threading.Thread(target=self._run, name=f"gstinfer:vlm {number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()
        self._looking = Periodic("gstinfer:vlm deadlines", LOOK, self._look)

    def put(self, call: Call, on_full: str = "drop-oldest", given_up: Callable[[], bool] = lambda: False) -> bool:
        """Adds a question.

        Args:
            call: The question.
            on_full: Where the mailbox is full: ``"drop-oldest"`` of the stream that has most there, ``"drop-newest"`` this
                one, ``"wait"``.
            given_up: Asked again and again while waiting.

        Returns:
            Whether it was taken; False where waiting was given up, the call is not ended then.
        """
        loser = None
        with self._changed:
            if on_full == "wait":
                while len(self._waiting) >= self.size and not self._closed:
                    if given_up():
                        return False
                    self._changed.wait(LOOK)
            elif len(self._waiting) >= self.size:
                loser = call if on_full == "drop-newest" else self._oldest()
            if self._closed:
                loser = call
            if loser is not call:
                if loser is not None:
                    self._waiting.remove(loser)
                self._waiting.append(call)
                self._changed.notify_all()
        if loser is not None:
            loser.finish("dropped", "full")
        return True

    def _oldest(self) -> Call:
        streams = Counter(call.segment.stream_id for call in self._waiting)
        busiest = max(streams.values())
        return next(call for call in self._waiting if streams[call.segment.stream_id] == busiest)

    def wake(self) -> None:
        """Has those that wait in ``put`` look again."""
        with self._changed:
            self._changed.notify_all()

    def drop(self, calls: Iterable[Call], reason: str) -> None:
        """Calls questions off, waiting or asked."""
        for call in calls:
            with self._changed:
                if call in self._waiting:
                    self._waiting.remove(call)
                    self._changed.notify_all()
            call.finish("dropped", reason)

    def _run(self) -> None:
        while (calls := self._take()) is not None:
            try:
                self._ask(calls)
            finally:
                with self._changed:
                    self._flying.difference_update(calls)
        with self._changed:
            self._working -= 1
            last = self._working == 0
        if last:
            # Here, and not in ``close``: a question that cannot be called off may outlive it.
            self.backend.close()

    def _take(self) -> list[Call] | None:
        """The next questions for one ``ask``; None when all is over."""
        with self._changed:
            while not self._closed:
                calls = [call for call in self._waiting[: self.backend.max_batch] if call.start()]
                if self._waiting:
                    del self._waiting[: self.backend.max_batch]
                    self._flying.update(calls)
                    self._changed.notify_all()
                    if calls:
                        return calls
                    continue
                self._changed.wait()
            return None

    def _ask(self, calls: list[Call]) -> None:
        """Asks, and again where that may help, until each question has ended."""
        delay = self.backoff
        for attempt in range(self.retries + 1):
            try:
                outcomes = list(self.backend.ask(calls))
            except (Exception, SystemExit) as error:
                trouble = Trouble("exception", f"{self.backend.name} raised {type(error).__name__}: {error}")
                trouble.__cause__ = error
                outcomes = [trouble] * len(calls)
            again, wait = [], 0.0
            for call, outcome in zip(calls, outcomes):
                if isinstance(outcome, Text):
                    call.finish("answered", answer=outcome)
                elif call.over.is_set():
                    continue
                else:
                    pause = min(LONGEST_WAIT, delay if outcome.after is None else max(delay, outcome.after))
                    if outcome.again and attempt < self.retries and call.remaining > pause:
                        again.append(call)
                        wait = max(wait, pause)
                    else:
                        _failed(call, outcome)
            calls = again
            if not calls:
                return
            # One question of its own wakes when it is called off; several wake when all is over.
            calls[0].over.wait(wait) if len(calls) == 1 else self._pause(wait)
            calls = [call for call in calls if not call.over.is_set()]
            for call in calls:
                call.retries += 1
            delay *= 2
            if not calls:
                return

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def _look(self) -> None:
        """Ends questions whose time is over, also those whose model hangs."""
        with self._changed:
            late = [call for call in self._waiting if call.remaining <= 0]
            stuck = [call for call in self._flying if call.remaining <= 0 and not call.over.is_set()]
            for call in late:
                self._waiting.remove(call)
            if late:
                self._changed.notify_all()
        for call in late:
            call.finish("dropped", "late")
        for call in stuck:
            _failed(call, Trouble("deadline", f"{self.backend.name} did not answer in time"))

    def count(self) -> tuple[int, int]:
        """Questions (waiting, asked)."""
        with self._changed:
            return len(self._waiting), sum(not call.over.is_set() for call in self._flying)

    def close(self) -> None:
        """Calls everything off and ends the workers; one whose model hangs is left to itself."""
        with self._changed:
            self._closed = True
            calls = [*self._waiting, *self._flying]
            self._waiting.clear()
            self._changed.notify_all()
        for call in calls:
            call.finish("dropped", "stopped")
        self._looking.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(PATIENCE / len(self._threads))


def _failed(call: Call, trouble: Trouble) -> None:
    error = PredictError(f"stream {call.segment.stream_id!r}: {trouble}")
    error.__cause__ = trouble
    call.finish("failed", trouble.reason, error)


@dataclass
class _Shared:
    """A dispatcher that several elements use."""

    dispatcher: Dispatcher | None = None
    description: object = None
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_shared: dict[str, _Shared] = {}
_lock = threading.Lock()


def share(key: str, description: object, make: Callable[[], Dispatcher]) -> tuple[Dispatcher, bool]:
    """The dispatcher of a key, made by its first user; without a key one of its own.

    Args:
        key: ``model-instance-id``.
        description: What it is made from; users of one key must agree.
        make: Makes it.

    Returns:
        The dispatcher, and whether the users agree about it.
    """
    if not key:
        return make(), True
    with _lock:
        entry = _shared.setdefault(key, _Shared())
        entry.users += 1
    try:
        with entry.lock:
            if entry.dispatcher is None:
                entry.dispatcher, entry.description = make(), description
            agreed = entry.description == description
    except BaseException:
        _leave(key, entry)
        raise
    if not agreed:
        release(key, entry.dispatcher)
    return entry.dispatcher, agreed


def _leave(key: str, entry: _Shared) -> bool:
    with _lock:
        entry.users -= 1
        if entry.users == 0:
            _shared.pop(key, None)
        return entry.users == 0


def release(key: str, dispatcher: Dispatcher) -> None:
    """A user is through with a dispatcher; the last one closes it."""
    entry = _shared.get(key)
    if not key or entry is None or _leave(key, entry):
        dispatcher.close()
