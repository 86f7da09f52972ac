"""When a model that works on several batches at a time is going to be through with them."""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """Learns how long batches of each size hold up those behind them.

    What is given to a busy model only waits there; given just before the model needs it, the batch can be fuller. Times are
    ``time.monotonic()``; for one thread at a time.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._sizes: list[int] = []
        self._giving = 0.0
        self._ended = 0.0
        self._until = 0.0

    def given(self, size: int, began: float, now: float) -> None:
        """A batch is with the model; it took since ``began`` to give it."""
        self._giving += 0.2 * (now - began - self._giving)
        self._sizes.append(size)
        self._until = max(now, self._until) + self._seconds.get(size, 0.0)

    def finished(self, given: float, now: float) -> None:
        """The model is through with the first of its batches, which was given at ``given``."""
        size, took = self._sizes.pop(0), now - self._ended
        # Only what was there while the one before ran shows whether the model works on one after another, or on several.
        if given < self._ended:
            known = self._seconds.get(size, took)
            # Rather too short: a model that waits for its next batch costs more than one that is not full.
            self._seconds[size] = took if took < known else known + 0.1 * (took - known)
        self._ended = now
        self._until = now + sum(self._seconds.get(size, 0.0) for size in self._sizes)

    def left(self, now: float) -> float:
        """Seconds until the next batch must be begun so that the model does not wait for it; 0 where that is now."""
        return max(0.0, self._until - self._giving - now) if self._sizes else 0.0
