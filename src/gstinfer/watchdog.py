"""Notices a model that hangs, and says where it is."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from gstinfer.errors import PredictError
from gstinfer.periodic import Periodic
from gstinfer.runner import ModelRunner

__all__ = ["Watchdog"]


class Watchdog:
    """Looks at a runner from a thread of its own.

    Args:
        runner: Whose batches are timed.
        seconds: A batch that takes longer hangs.
        hung: Called once per hanging batch, on the watchdog's thread, with an error whose ``debug`` holds the stacks.
    """

    def __init__(self, runner: ModelRunner, seconds: float, hung: Callable[[BaseException], None]) -> None:
        self.runner, self.seconds, self.hung = runner, seconds, hung
        self._told: float | None = None
        self._looking = Periodic("gstinfer:watchdog", min(1.0, seconds / 4), self._look)

    def _look(self) -> None:
        began = self.runner.busy_since()
        if began is None or began == self._told or time.monotonic() - began < self.seconds:
            return
        self._told = began
        self.hung(
            _Hung(
                f"{self.runner.config.spec} has worked on one batch for more than {self.seconds:g} s",
                hint="the stacks of all threads are in the message's debug text",
            )
        )

    def close(self) -> None:
        self._looking.close()


class _Hung(PredictError):
    """A batch that does not end; ``debug`` holds the stacks of all threads at that moment."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        self.debug = "\n".join(
            f"Thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame))
            for ident, frame in sys._current_frames().items()
        )
