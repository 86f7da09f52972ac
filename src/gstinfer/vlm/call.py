"""One question on its way: its deadline, its end, and how it is called off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gstinfer.results import Text
from gstinfer.vlm.segments import Segment

__all__ = ["Call", "Trouble"]


class Trouble(Exception):
    """Why a model did not answer.

    Args:
        reason: One word that is counted, such as ``"http-429"`` or ``"connection"``.
        message: For people.
        again: Whether another try may help.
        after: Seconds that the server asks to wait before it, or None.
    """

    def __init__(self, reason: str, message: str, *, again: bool = False, after: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.again, self.after = reason, again, after


class Call:
    """A segment handed over to be answered. It ends once: answered, dropped or failed.

    Args:
        segment: What is asked.
        timeout: Seconds from now until the answer counts no longer.
        ended: Called once with the call, in whichever thread ended it.

    Attributes:
        began: Monotonic time of its making, seconds.
        state: ``"waiting"``, ``"in-flight"``, ``"answered"``, ``"dropped"`` or ``"failed"``.
        reason: Why it was dropped or failed: one word.
        error: The same for people, or None.
        answer: What the model said, or None.
        retries: How often it was asked again.
    """

    def __init__(self, segment: Segment, timeout: float, ended: Callable[[Call], None], key: Any = None) -> None:
        self.segment, self.key, self._ended = segment, key, ended
        self.began = time.monotonic()
        self.deadline = self.began + timeout
        self.state, self.reason = "waiting", ""
        self.error: Exception | None = None
        self.answer: Text | None = None
        self.retries = 0
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._closers: list[Callable[[], None]] = []

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def start(self) -> bool:
        """A worker takes it; False where it is over already."""
        with self._lock:
            if self.state != "waiting":
                return False
            self.state = "in-flight"
            return True

    def finish(self, state: str, reason: str = "", error: Exception | None = None, answer: Text | None = None) -> bool:
        """Ends it; False where it was over already."""
        with self._lock:
            if self.over.is_set():
                return False
            self.state, self.reason, self.error, self.answer = state, reason, error, answer
            closers, self._closers = self._closers, []
            self.over.set()
        for close in closers:
            close()
        self._ended(self)
        return True

    def on_over(self, close: Callable[[], None]) -> None:
        """Has something closed when the call ends, at once where it has ended already."""
        with self._lock:
            if not self.over.is_set():
                self._closers.append(close)
                return
        close()
