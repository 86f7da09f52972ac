"""A thread between the stream and a target, so that a slow target never holds a frame; one per target, shared."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from gstinfer import registry
from gstinfer.errors import ConfigError, GstInferError, PublishError
from gstinfer.frames import Flushed
from gstinfer.publish import Publisher

__all__ = ["Lease", "Writer", "open_lease", "publisher_for"]

log = logging.getLogger("gstinfer.publish")

Report = Callable[[GstInferError], None]

_writers: dict[str, Writer] = {}
_writers_lock = threading.Lock()


def publisher_for(url: str, **options: Any) -> Publisher:
    """The publisher for a URL, by its scheme, not yet open.

    Raises:
        ConfigError: No scheme, or one that nobody publishes to.
    """
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ConfigError(
            f"url={url!r} has no scheme", hint=f"write one of {', '.join(n + ':' for n in registry.names('publisher'))}"
        )
    publisher: Publisher = registry.find("publisher", scheme)(url, **options)
    return publisher


class Lease:
    """One user's share of a writer, with its own counts.

    Attributes:
        published: Messages handed to the target.
        dropped: Messages lost because the queue was full or the target failed.
    """

    def __init__(self, writer: Writer, on_error: Report | None, on_warning: Report | None) -> None:
        self.writer = writer
        self.on_error, self.on_warning = on_error, on_warning
        self.queued = self.published = self.dropped = 0
        self.interrupted = False

    @property
    def pending(self) -> int:
        """Messages that are still in the queue."""
        return self.queued - self.published - self.dropped

    def put(self, message: dict[str, Any], *, wait: bool = False) -> None:
        """Hands a message over.

        Args:
            message: Not to be changed any more.
            wait: Whether a full queue holds the caller instead of dropping the message.

        Raises:
            PublishError: The target failed.
            Flushed: ``interrupt`` released a waiting call.
        """
        self.writer.put(self, message, wait)

    def interrupt(self) -> None:
        """Releases a waiting ``put``, and those to come until ``resume``."""
        with self.writer.changed:
            self.interrupted = True
            self.writer.changed.notify_all()

    def resume(self) -> None:
        self.interrupted = False

    def drain(self, patience: float = 5.0) -> bool:
        """Waits until everything this lease queued is written.

        Args:
            patience: Seconds without any progress after which the target counts as stuck.

        Returns:
            False when the target failed or is stuck.
        """
        return self.writer.drain(self, patience)

    def close(self, patience: float = 5.0) -> None:
        """Drains, and lets go of the writer; the last one to do so closes the target. Never raises."""
        self.drain(patience)
        with _writers_lock:
            self.writer.leases.discard(self)
            if not self.writer.leases:
                _writers.pop(self.writer.target, None)
                self.writer.close()


class Writer:
    """A queue and its thread in front of one publisher.

    Args:
        target: Name of the target, the key under which writers are shared.
        publisher: Open already.
        size: Most messages that wait.
    """

    def __init__(self, target: str, publisher: Publisher, size: int) -> None:
        self.target, self.publisher, self.size = target, publisher, size
        self.leases: set[Lease] = set()
        self.failure: GstInferError | None = None
        self.changed = threading.Condition()
        self._queue: deque[tuple[Lease, dict[str, Any]]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"gstinfer-publish {target}", daemon=True)
        self._thread.start()

    def put(self, lease: Lease, message: dict[str, Any], wait: bool) -> None:
        warn = False
        with self.changed:
            while wait and len(self._queue) >= self.size and self.failure is None and not lease.interrupted:
                self.changed.wait()
            if self.failure is not None:
                raise self.failure
            if wait and lease.interrupted:
                raise Flushed()
            lease.queued += 1
            if len(self._queue) >= self.size:
                warn = lease.dropped == 0
                lease.dropped += 1
            else:
                self._queue.append((lease, message))
                if len(self._queue) == 1:
                    self.changed.notify_all()
        if warn:
            text = f"{self.target} is too slow: {self.size} messages wait, further ones are dropped and counted"
            _report(lease.on_warning, PublishError(text, hint="raise queue-size, or set on-full=wait"))

    def drain(self, lease: Lease, patience: float) -> bool:
        with self.changed:
            while lease.pending and self.failure is None:
                if not self.changed.wait(patience):
                    return False
        return self.failure is None

    def close(self, patience: float = 1.0) -> None:
        """Ends the thread and closes the target; a target that is stuck is left to its thread."""
        with self.changed:
            self._closing = True
            lost = len(self._queue)
            for lease, _ in self._queue:
                lease.dropped += 1
            self._queue.clear()
            self.changed.notify_all()
        if lost and self.failure is None:
            log.warning("%s did not take the last %d messages; they are lost", self.target, lost)
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)

    def _run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    break
                lease, message = self._queue.popleft()
            try:
                self.publisher.publish(message)
            except Exception as error:
                self._fail(lease, error)
                break
            with self.changed:
                lease.published += 1
                self.changed.notify_all()
        self.publisher.close()

    def _fail(self, lease: Lease, error: Exception) -> None:
        failure = error if isinstance(error, GstInferError) else PublishError(f"{self.target}: {error}")
        if failure is not error:
            failure.__cause__ = error
        with self.changed:
            self.failure = failure
            lease.dropped += 1
            for owner, _ in self._queue:
                owner.dropped += 1
            self._queue.clear()
            leases = list(self.leases)
            self.changed.notify_all()
        for owner in leases:
            _report(owner.on_error, failure)


def _report(callback: Report | None, error: GstInferError) -> None:
    if callback is None:
        log.warning("%s", error)
    else:
        callback(error)


def open_lease(
    url: str,
    *,
    size: int = 10_000,
    on_error: Report | None = None,
    on_warning: Report | None = None,
    **options: Any,
) -> Lease:
    """A share of the writer for a URL; the first opens the target, the rest join it.

    Args:
        url: Such as ``stdout:`` or ``file:PATH``.
        size: Most messages that wait; the first one decides.
        on_error: Told once, on the writer's thread, when the target failed.
        on_warning: Told on the caller's thread when the first message was dropped.
        **options: For the publisher.

    Raises:
        ConfigError: A URL that is not understood.
        PublishError: The target cannot be opened.
    """
    publisher = publisher_for(url, **options)
    target = str(getattr(publisher, "target", url))
    with _writers_lock:
        writer = _writers.get(target)
        if writer is None or writer.failure is not None:
            publisher.open()
            writer = _writers[target] = Writer(target, publisher, size)
        lease = Lease(writer, on_error, on_warning)
        writer.leases.add(lease)
    return lease
