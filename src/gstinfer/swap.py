"""A model changes while it runs: the next one is loaded and warmed beside it, then exchanged between two batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from gstinfer.errors import GstInferError, ModelLoadError
from gstinfer.frames import Flushed
from gstinfer.model import LoadedModel
from gstinfer.periodic import Periodic
from gstinfer.runner import ModelRunner

__all__ = ["ModelSwap", "Watch"]

log = logging.getLogger(__name__)


class ModelSwap:
    """Loads models on a worker and puts them into a runner, one after another; the newest wish wins.

    Args:
        runner: Whose model changes.
        done: Called on the worker with (spec, None) after an exchange, or (spec, error) when the old model stays.
    """

    def __init__(self, runner: ModelRunner, done: Callable[[str, BaseException | None], None]) -> None:
        self.runner, self.done = runner, done
        self._wish: tuple[str, Callable[[], LoadedModel], Mapping[str, str] | None] | None = None
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._closed = False

    def request(
        self, spec: str, load: Callable[[], LoadedModel], arguments: Mapping[str, str] | None = None
    ) -> None:
        """Asks for another model; returns at once. ``load`` makes, loads and warms it, on the worker; its settings are
        ``arguments``, see ``ModelRunner.exchange``.
        """
        with self._lock:
            if self._closed:
                return
            self._wish = (spec, load, arguments)
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="gstinfer:swap", daemon=True)
                self._worker.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                wish, self._wish = self._wish, None
                if wish is None or self._closed:
                    self._worker = None
                    return
            spec, load, arguments = wish
            error: BaseException | None = None
            try:
                self.runner.exchange(load(), spec, arguments)
            except Flushed:
                continue
            except GstInferError as failure:
                error = failure
            except Exception as failure:  # the user's code ran
                error = ModelLoadError(f"{spec}: {type(failure).__name__}: {failure}")
                error.__cause__ = failure
            self.done(spec, error)

    def close(self) -> None:
        """Waits for a load that is under way, and starts no more."""
        with self._lock:
            self._closed, self._wish = True, None
            worker = self._worker
        if worker is not None and worker is not threading.current_thread():
            worker.join()


class Watch:
    """Notices that a file has new content, once it has stopped growing.

    Args:
        path: The file; nothing happens while it is missing.
        changed: Called on the watching thread.
        interval: Seconds between two looks.
    """

    def __init__(self, path: Path, changed: Callable[[], None], interval: float = 0.5) -> None:
        self.path, self.changed = path, changed
        self._known = self._before = self._state()
        self._looking = Periodic(f"gstinfer:watch {path.name}", interval, self._look)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _look(self) -> None:
        now = self._state()
        if now is not None and now != self._known and now == self._before:
            self._known = now
            self.changed()
        self._before = now

    def close(self) -> None:
        self._looking.close()
