"""Something done again and again on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Periodic"]


class Periodic:
    """Calls a function at an interval until it is closed.

    Args:
        name: Of the thread.
        seconds: Between the end of one call and the next.
        call: What is done; it must not raise.
    """

    def __init__(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._stop = threading.Event()
        self._seconds, self._call = seconds, call
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._call()

    def close(self) -> None:
        """Stops, and waits for a call that is under way unless it is the caller."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
