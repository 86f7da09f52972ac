"""A running job: any number of inputs through one model."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import gstinfer
from gstinfer import registry
from gstinfer.app import sinks, sources
from gstinfer.app.branch import Branch
from gstinfer.elements import factories
from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.model import ModelSpec
from gstinfer.publish.worker import open_lease, publisher_for

__all__ = ["Job", "Session", "parse_settings", "stop_on_signals"]

TICK = 0.05
"""Seconds between two looks at the pipelines."""


@dataclass
class Job:
    """What ``gstinfer run`` is asked for.

    Attributes:
        inputs: Files, ``file://`` addresses or ``test:PATTERN``.
        model: Spec of the model.
        device: ``"auto"``, ``"cpu"`` or ``"cuda:N"``.
        settings: ``NAME=VALUE`` for pyinfer, ``ELEMENT.NAME=VALUE`` for the others.
        track: Name of a tracker, or ``"none"``.
        output: MP4 file, or folder; None for no pictures.
        publish: URLs that messages go to.
        max_frames: Frames of each input after which it ends, or None.
    """

    inputs: Sequence[str]
    model: str
    device: str = "auto"
    settings: Sequence[str] = ()
    track: str = "bytetrack"
    output: str | None = None
    publish: Sequence[str] = field(default_factory=tuple)
    max_frames: int | None = None


def parse_settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``NAME=VALUE`` and ``ELEMENT.NAME=VALUE`` as checked values by element and property.

    Raises:
        ConfigError: No ``=``, or a value that does not fit.
        UnknownNameError: An element or a property that is not known.
    """
    options = {name: cls.options for name, _, cls in factories()}
    found: dict[str, dict[str, Any]] = {name: {} for name in options}
    for text in texts:
        key, equals, value = text.partition("=")
        element, dot, name = key.strip().rpartition(".")
        element = element if dot else "pyinfer"
        if not equals:
            raise ConfigError(f"--set {text!r} has no '='", hint="write --set NAME=VALUE")
        if element not in options:
            raise UnknownNameError("element", element, options)
        option = options[element].get(name.replace("-", "_"))
        if option is None:
            raise UnknownNameError(f"property of {element}", name, (o.key for o in options[element].values()))
        parsed = option.parse(value)
        found[element][option.name] = option.unset if parsed is None else parsed
    return found


def _refuse_idle(settings: Mapping[str, Mapping[str, Any]], job: Job) -> None:
    """Refuses settings that nothing would use, or that say twice what an option of the command says."""
    absent = {
        "pytrack": job.track == "none" and "there is no tracker with --track none",
        "pyoverlay": not job.output and "nothing is drawn without --output",
        "pypublish": not job.publish and "nothing is published without --jsonl or --publish",
    }
    for element, reason in absent.items():
        if reason and settings[element]:
            raise ConfigError(f"--set {element}.{next(iter(settings[element]))} has no effect: {reason}")
    twice = {"pyinfer": {"model": "--model", "device": "--device"}, "pytrack": {"tracker": "--track"}}
    twice["pypublish"] = {"url": "--jsonl or --publish"}
    for element, names in twice.items():
        for name, option in names.items():
            if name in settings[element]:
                raise ConfigError(f"--set {element}.{name} is {option}", hint=f"use {option}")


class Session:
    """Runs a job. Everything that can be checked is checked when it is made.

    Args:
        job: What to run.

    Attributes:
        branches: One per input.
        urls: Where messages go, each target once.

    Raises:
        GstInferError: A setting, an input's name, an output or a message target that cannot be used.
    """

    def __init__(self, job: Job) -> None:
        gstinfer.register()
        self.job = job
        settings = parse_settings(job.settings)
        inputs = sources.parse_all(job.inputs)
        if not inputs:
            raise ConfigError("there is no input", hint="name a file, or test:smpte")
        if job.max_frames is not None and job.max_frames < 1:
            raise ConfigError(f"max-frames={job.max_frames} is out of range", hint="use at least 1")
        if job.track not in (*registry.names("tracker"), "none"):
            raise UnknownNameError("tracker", job.track, [*registry.names("tracker"), "none"])
        ModelSpec.parse(job.model)
        _refuse_idle(settings, job)
        if "stream_id" in settings["pyinfer"]:
            if len(inputs) > 1:
                raise ConfigError("--set stream-id would give several inputs one name", hint="leave it out")
            inputs = [replace(inputs[0], stream_id=settings["pyinfer"]["stream_id"])]
        shared = {"model_instance_id": f"run-{id(self):x}"} if len(inputs) > 1 else {}
        properties: dict[str, Mapping[str, Any] | None] = {
            **settings,
            "pyinfer": {"model": job.model, "device": job.device, **shared, **settings["pyinfer"]},
            "pytrack": None if job.track == "none" else {"tracker": job.track, **settings["pytrack"]},
        }
        targets: dict[str, str] = {}
        for url in job.publish:
            targets.setdefault(str(getattr(publisher_for(url), "target", url)), url)
        self.urls = tuple(targets.values())
        wishes = settings["pypublish"]
        self._writing = {"size": wishes["queue_size"]} if "queue_size" in wishes else {}
        self._writing |= {"append": True} if wishes.get("append") else {}
        outputs = sinks.output_paths(job.output, inputs)
        self.branches = [
            Branch(source, output, properties, self.urls, job.max_frames) for source, output in zip(inputs, outputs)
        ]
        self._stop = threading.Event()
        self._stop_sent = False

    @property
    def failed(self) -> list[Branch]:
        """The inputs that failed so far."""
        return [branch for branch in self.branches if branch.state == "failed"]

    def stop(self) -> None:
        """Ends all streams with their files finished; any thread, also from a signal handler."""
        self._stop.set()

    def run(self, tick: Callable[[Session], None] | None = None) -> bool:
        """Runs until every stream ended.

        Args:
            tick: Called some twenty times a second, in the caller's thread.

        Returns:
            Whether none failed.

        Raises:
            PublishError: A message target cannot be opened.
        """
        with ExitStack() as stack:
            stack.callback(self._abandon)
            for branch in self.branches:
                branch.probe()
            ready = [branch for branch in self.branches if branch.state == "ready"]
            for url in self.urls if ready else ():
                # Held for the whole job, so that a stream that begins later adds to the file.
                stack.callback(open_lease(url, on_error=_told, on_warning=_told, **self._writing).close)
            for branch in ready:
                if self._stop.is_set():
                    break
                branch.start()
            while any(branch.running for branch in self.branches):
                for branch in self.branches:
                    branch.poll()
                if self._stop.is_set() and not self._stop_sent:
                    self._stop_sent = True
                    for branch in self.branches:
                        branch.stop()
                if tick is not None:
                    tick(self)
                # A stop wakes the loop; after it the loop only waits for the files.
                (threading.Event() if self._stop_sent else self._stop).wait(TICK)
        return not self.failed

    def _abandon(self) -> None:
        for branch in self.branches:
            branch.abandon()


def _told(error: object) -> None:
    """The elements report the same."""


@contextmanager
def stop_on_signals(session: Session) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the session with its files finished; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: Any) -> None:
        if session._stop.is_set():
            os._exit(128 + number)
        session.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
