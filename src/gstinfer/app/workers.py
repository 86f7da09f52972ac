"""A running job in several processes, each an ordinary session with a share of the inputs and a model of its own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import Any, NoReturn

from gstinfer.app import naming, sources
from gstinfer.app.branch import RUNNING, Branch
from gstinfer.app.child import Child, ended_by
from gstinfer.app.devices import on_one_core
from gstinfer.app.relay import Relay
from gstinfer.app.session import KEPT, SWAP_SECONDS, TICK, Job, Session
from gstinfer.app.settings import parse_settings
from gstinfer.app.sources import Source
from gstinfer.app.worker import Order
from gstinfer.cores import set_aside
from gstinfer.errors import ConfigError, GstInferError, ModelLoadError
from gstinfer.model import ModelSpec
from gstinfer.publish.jsonl import JsonLines
from gstinfer.publish.worker import publisher_for

__all__ = ["Row", "Workers"]

ANSWER_SECONDS = 10.0
"""Patience with a worker beyond the time that it gives itself."""


class Row:
    """A stream in a worker, as that last told of it.

    Args:
        key: Its number.
        source: What runs.
        output: MP4 file to write, or None.
        worker: Number of its worker, from 1.
    """

    def __init__(self, key: int, source: Source, output: Path | None, worker: int) -> None:
        self.key, self.source, self.output, self.worker = key, source, output, worker
        # One that never starts says what is to be said of it.
        self.told = Branch(source, output, (), None).report()

    @property
    def state(self) -> str:
        return str(self.told["state"])

    @property
    def running(self) -> bool:
        return self.state in RUNNING

    @property
    def error(self) -> str:
        return self.told["error"] or "" if self.state == "failed" else ""

    @property
    def warnings(self) -> Sequence[str]:
        found: list[str] = self.told["warnings"]
        return found

    def report(self) -> dict[str, Any]:
        """See ``Branch.report``; ``worker`` is the number of its process."""
        return {**self.told, "worker": self.worker}

    def fail(self, reason: str) -> None:
        """What its worker can tell no more."""
        self.told = {**self.told, "state": "failed", "error": reason}
        if self.output is not None:
            with contextlib.suppress(OSError):
                self.output.with_name(f".{self.output.name}.part").unlink()


class Workers:
    """Runs a job in several processes. Everything that can be checked is checked when it is made; nothing is started yet.

    The surface is that of ``Session``; this process loads no model and decodes nothing. Inputs are dealt out in turn, and so
    are the devices of ``Job.device``. A worker that dies fails its own streams.

    Args:
        job: What to run.
        count: Number of processes; not more than there are inputs, unless ``Job.stay`` is set.

    Attributes:
        branches: One per input, those that ended too.
        model: Spec of the model that runs, or of the one that will.
        urls: Where messages go, each target once.

    Raises:
        GstInferError: As from ``Session``, or a job that needs a single process.
    """

    def __init__(self, job: Job, count: int) -> None:
        for option in [name for name, wanted in (("--tile", job.tile), ("--show", job.show)) if wanted]:
            raise ConfigError(
                f"{option} needs all pictures in one process; --workers {count} spreads them",
                hint=f"leave out {option} or --workers",
            )
        plan = Session(job)
        self.job, self.model, self.urls = job, plan.model, plan.urls
        self.count = max(1, count if job.stay else min(count, len(plan.branches)))
        self._settling = on_one_core(plan.seats[0])
        self._devices = [str(seat.infer["device"]) for seat in plan.seats]
        self._keys = numbers()
        self.branches: list[Row] = [
            Row(next(self._keys), branch.source, branch.output, n % self.count + 1) for n, branch in enumerate(plan.branches)
        ]
        publishers = {url: publisher_for(url) for url in self.urls}
        append = bool(parse_settings(job.settings)["pypublish"].get("append"))
        self._relays = {
            url: Relay(JsonLines(url, append=append)) for url, found in publishers.items() if isinstance(found, JsonLines)
        }
        self._pipes: dict[tuple[int, str], Relay] = {}
        self._children: list[Child] = []
        self._probed: set[int] = set()
        self._done: set[int] = set()
        self._dead: list[str] = []
        self._errors: list[GstInferError] = []
        self._stop = threading.Event()
        self._stop_sent = False
        self._running = self._closing = False
        self._lock = threading.Lock()
        self._swapping = threading.Lock()

    @property
    def failed(self) -> list[Row]:
        """The inputs that failed so far."""
        return [row for row in self.branches if row.state == "failed"]

    @property
    def error(self) -> str:
        """What failed apart from the inputs, or empty."""
        if any(child.alive for child in self._children):
            return "; ".join(self._dead)
        # The streams that met it have said it by now.
        said = {row.error for row in self.failed}
        lost = [str(relay.failure) for relay in self._relays.values() if relay.failure is not None]
        return "; ".join([*self._dead, *(text for text in lost if text not in said)])

    @property
    def written(self) -> list[Path]:
        """The video files that are finished."""
        return [row.output for row in self.branches if row.output is not None and row.told["written"]]

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ends all streams with their files finished; any thread, also from a signal handler."""
        self._stop.set()

    def exit(self, code: int) -> NoReturn:
        """Ends all processes at once, with nothing finished."""
        for child in self._children:
            child.kill()
        os._exit(code)

    def run(self, tick: Callable[[Workers], None] | None = None) -> bool:
        """Starts the workers, and returns when all ended; see ``Session.run``.

        Args:
            tick: Called some twenty times a second, in the caller's thread.

        Returns:
            Whether no input and no worker failed.

        Raises:
            PublishError: A message target cannot be opened.
            GstInferError: What a worker refused before it began.
        """
        with ExitStack() as stack:
            cores = stack.enter_context(set_aside(self.count if self._settling else 0))
            stack.callback(self._close)
            # Where there are too few, none of them shall choose the last one by itself.
            own = [str(core) for core in cores] or [""] * self.count
            for number, core in enumerate(own, 1):
                self._start(number, core)
            while any(child.alive for child in self._children):
                self._step()
                if tick is not None:
                    tick(self)
                # A stop wakes the loop; after it the loop only waits for the files.
                (threading.Event() if self._stop_sent else self._stop).wait(TICK)
        if self._errors:
            raise self._errors[0]
        return not self.failed and not self.error

    def _start(self, number: int, core: str) -> None:
        pipes = {url: relay.pipe() for url, relay in self._relays.items()}
        self._pipes |= {(number, f"/dev/fd/{pipe}"): self._relays[url] for url, pipe in pipes.items()}
        # Each process has the next device; where there are more devices than processes, several.
        devices = self._devices[number - 1 :: self.count] or [self._devices[(number - 1) % len(self._devices)]]
        order = Order(
            replace(
                self.job, inputs=(), stay=True, model=self.model, device=",".join(devices),
                settings=[*self.job.settings, *(f"{name}.cpu-cores={core}" for name in self._settling)],
                publish=[f"file:/dev/fd/{pipes[url]}" if url in pipes else url for url in self.urls],
            ),
            [(row.key, row.source, row.output) for row in self.branches if row.worker == number],
            list(pipes.values()),
        )  # fmt: skip
        try:
            name = f"worker {number} of {self.count}"
            self._children.append(Child(name, order, partial(self._told, number, name)))
        finally:
            for pipe in pipes.values():
                os.close(pipe)

    def _told(self, number: int, name: str, kind: str, value: Any) -> None:
        """What a worker says, on its thread."""
        with self._lock:
            if kind == "error":
                self._errors.append(value)
                self._done.add(number)
            elif kind == "ended":
                self._probed.add(number)
                self._lost(number, name, value)
            else:
                for row in self.branches:
                    row.told = value.get(row.key, row.told)
                    self._name_target(number, row.told)
            if kind == "probed":
                self._probed.add(number)
            elif kind == "done":
                self._done.add(number)

    def _lost(self, number: int, name: str, code: int) -> None:
        if self._closing or (number in self._done and not code):
            return
        reason = ended_by(code)
        self._dead.append(f"{name} {reason}")
        for row in self.branches:
            if row.worker == number and (row.running or (row.state == "ready" and number not in self._done)):
                row.fail(f"its process, {name}, {reason}")

    def _name_target(self, number: int, told: dict[str, Any]) -> None:
        """A worker knows the pipe alone, and not what is wrong at its other end."""
        for (worker, path), relay in self._pipes.items():
            if worker == number and relay.failure is not None and path in (told["error"] or ""):
                told["error"] = str(relay.failure)

    def _step(self) -> None:
        with self._lock:
            pending = any(row.running or row.state == "ready" for row in self.branches) or self.job.stay
            started = self._running
            if not started and pending and len(self._probed) == self.count and not (self._errors or self._stop.is_set()):
                for relay in self._relays.values():
                    relay.start()
                for child in self._children:
                    child.tell("begin")
                self._running = started = True
            ended = not pending and (started or len(self._probed) == self.count)
            if not self._stop_sent and (ended or self._errors or self._stop.is_set()):
                self._stop_sent, self._running = True, False
                for child in self._children:
                    child.tell("stop")

    def _close(self) -> None:
        """Leaves no process behind, however ``run`` ended."""
        with self._lock:
            self._running, self._closing = False, True
        for child in self._children:
            if child.alive:
                child.kill()
            child.join()
        for relay in self._relays.values():
            relay.finish()

    def find(self, name: str) -> Row:
        """The newest stream of a name.

        Raises:
            UnknownNameError: No stream has it.
        """
        return naming.newest(self.branches, name)

    def add_source(self, text: str, name: str = "") -> Row:
        """Adds an input, in the worker that runs the fewest; see ``Session.add_source``."""
        source = sources.parse(text)
        with self._lock:
            alive = [n for n, child in enumerate(self._children, 1) if child.alive]
            if not self._running or self._stop.is_set() or not alive:
                raise ConfigError("the session does not run", hint="add sources while run() is at work")
            busy = [row for row in self.branches if row.running or row.state == "ready"]
            source = naming.named(source, name, {row.source.stream_id for row in busy})
            output = naming.own_file(self.job.output, source, {row.output for row in self.branches})
            worker = min(alive, key=lambda n: sum(row.worker == n for row in busy))
            row = Row(next(self._keys), source, output, worker)
            ended = [row for row in self.branches if row.state == "ended"]
            for old in ended[:-KEPT]:
                self.branches.remove(old)
            self.branches.append(row)
        try:
            self._children[worker - 1].ask("add", row.key, source, output)
        except GstInferError:
            with self._lock:
                if row.state == "ready":
                    # It never began, as if it had not been named.
                    self.branches.remove(row)
            raise
        return row

    def remove_source(self, name: str) -> Row:
        """Ends one stream, its files finished; see ``Session.remove_source``."""
        row = self.find(name)
        if not row.running:
            raise ConfigError(f"the stream {name!r} is not running, it {row.state}")
        self._children[row.worker - 1].ask("remove", name)
        return row

    def swap(self, model: str, patience: float = SWAP_SECONDS) -> None:
        """Exchanges the model of all workers; returns when the new one runs in each. See ``Session.swap``.

        Raises:
            ConfigError: The spec names nothing.
            ModelLoadError: A worker cannot load it, or not in time; the old one runs on in all of them.
        """
        ModelSpec.parse(model)
        with self._swapping:
            children = [child for child in self._children if child.alive]
            failed = self._exchange(model, children, patience)
            if not failed:
                self.model = model
                return
            back = self._exchange(self.model, [child for child in children if child not in failed], patience)
        # One line for what all say.
        said: dict[str, list[str]] = {}
        for child, error in failed.items():
            said.setdefault(error.message, []).append(child.name)
        texts = [f"{', '.join(names)}: {text}" for text, names in said.items()]
        texts += [f"{child.name} did not go back to {self.model}: {error.message}" for child, error in back.items()]
        hints = dict.fromkeys(error.hint for error in failed.values() if error.hint)
        raise ModelLoadError("; ".join(texts), hint="; ".join(hints))

    def _exchange(self, model: str, children: Sequence[Child], patience: float) -> dict[Child, GstInferError]:
        """Asks workers for another model, all at once; the errors of those that keep the old one."""

        def ask(child: Child) -> GstInferError | None:
            try:
                child.ask("swap", model, patience, patience=patience + ANSWER_SECONDS)
            except GstInferError as error:
                return error
            return None

        with ThreadPoolExecutor(max(1, len(children))) as threads:
            answers = dict(zip(children, threads.map(ask, children)))
        return {child: error for child, error in answers.items() if error is not None}

    def report(self) -> dict[str, Any]:
        """The model, every stream and every worker, as plain values."""
        workers = [
            {"worker": number, "pid": child.pid, "ended": child.ended or None}
            for number, child in enumerate(self._children, 1)
        ]
        return {"model": self.model, "streams": [row.report() for row in list(self.branches)], "workers": workers}
