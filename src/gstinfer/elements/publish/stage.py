"""The work of ``pypublish``: one message per frame, handed to the writer of its URL."""

from __future__ import annotations

from collections.abc import Callable

from gstinfer.errors import GstInferError
from gstinfer.frames import FrameBatch
from gstinfer.publish.message import message
from gstinfer.publish.worker import Lease, open_lease
from gstinfer.settings import Settings, option

__all__ = ["PublishSettings", "PublishStage"]


class PublishSettings(Settings):
    """The properties of ``pypublish``."""

    url = option(str, "stdout:", "Where messages go: stdout: or file:PATH")
    append = option(bool, False, "Add to a file that exists instead of beginning it anew")
    queue_size = option(int, 10_000, "Most messages that wait for a slow target", minimum=1)
    on_full = option(
        str,
        "drop",
        "What happens when so many messages wait: drop counts and drops the new one, wait holds the stream",
        choices=("drop", "wait"),
    )


class PublishStage:
    """Publishes what is known about each frame.

    Args:
        settings: URL and queue.
        on_error: Told once, on another thread, when the target failed; ``process`` raises from then on.
        on_warning: Told on the streaming thread when the first message was dropped.
    """

    def __init__(
        self,
        settings: PublishSettings,
        *,
        on_error: Callable[[GstInferError], None] | None = None,
        on_warning: Callable[[GstInferError], None] | None = None,
    ) -> None:
        self.settings = settings
        self.on_error, self.on_warning = on_error, on_warning
        self._lease: Lease | None = None
        self._wait = False
        self._last = {"published": 0, "dropped": 0}

    def start(self) -> None:
        settings = self.settings
        extra = {"append": True} if settings.append else {}
        self._wait = settings.on_full == "wait"
        self._lease = open_lease(
            settings.url, size=settings.queue_size, on_error=self.on_error, on_warning=self.on_warning, **extra
        )

    def process(self, batch: FrameBatch) -> None:
        lease = self._lease
        if lease is not None:
            for frame in batch:
                lease.put(message(frame), wait=self._wait)

    def drain(self) -> bool:
        """Waits until every message so far is written; False when the target failed or is stuck."""
        return self._lease is None or self._lease.drain()

    def reset(self, stream_id: str) -> None:
        """Messages that wait belong to frames that were seen: they are written before a stream ends or begins again."""
        if self._lease is not None:
            self._lease.resume()
            self._lease.drain()

    def interrupt(self) -> None:
        if self._lease is not None:
            self._lease.interrupt()

    def stop(self) -> None:
        """Waits until everything queued is written, and lets go of the target."""
        if self._lease is not None:
            self._lease.close()
            self._last = self.stats()
            self._lease = None

    def stats(self) -> dict[str, int]:
        """Counts since start: messages ``published`` and ``dropped``; after stop, of the last run."""
        lease = self._lease
        return self._last if lease is None else {"published": lease.published, "dropped": lease.dropped}
