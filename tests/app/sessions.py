"""A session that runs in a thread, and what to wait for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def wait_for(condition: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
    """Waits until a condition holds, and gives its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not after {seconds} s: {what or condition}"
        time.sleep(0.02)
    return value


class Gaps:
    """A session's tick that notes the longest time without a new frame, by stream."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self._last: dict[Any, tuple[int, float]] = {}

    def __call__(self, session: Any) -> None:
        now = time.monotonic()
        for branch in session.branches:
            frames, since = self._last.get(branch, (0, now))
            if branch.state == "playing" and frames:
                name = branch.source.stream_id
                self.longest[name] = max(self.longest.get(name, 0.0), now - since)
            if branch.counts.frames != frames:
                self._last[branch] = (branch.counts.frames, now)


@contextmanager
def running(session: Any, tick: Any = None) -> Iterator[list[Any]]:
    """Runs a session in a thread; what ``run`` returned or raised is in the list afterwards."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(session.run(tick))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: session._running or outcome)
        yield outcome
    finally:
        session.stop()
        thread.join(60)
        assert not thread.is_alive(), "the session does not end"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
