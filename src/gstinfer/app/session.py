"""A running job: any number of inputs through one model."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import gstinfer
from gstinfer import registry
from gstinfer.app import sinks, sources, window
from gstinfer.app.branch import Branch
from gstinfer.app.mosaic import Mosaic
from gstinfer.app.sources import Source
from gstinfer.elements import factories
from gstinfer.errors import ConfigError, HostError, ModelLoadError, UnknownNameError
from gstinfer.model import ModelSpec
from gstinfer.publish.worker import open_lease, publisher_for

__all__ = ["Job", "Session", "parse_settings", "stop_on_signals"]

TICK = 0.05
"""Seconds between two looks at the pipelines."""

SWAP_SECONDS = 120.0
"""Patience with a model that loads."""

KEPT = 100
"""Streams that ended and are still listed, once others are added."""


@dataclass
class Job:
    """What ``gstinfer run`` is asked for.

    Attributes:
        inputs: As ``sources.parse_all`` reads them: files, folders, patterns, addresses, cameras, ``test:PATTERN``.
        model: Spec of the model.
        device: ``"auto"``, ``"cpu"`` or ``"cuda:N"``.
        settings: ``NAME=VALUE`` for pyinfer, ``ELEMENT.NAME=VALUE`` for the others.
        track: Name of a tracker, or ``"none"``.
        output: MP4 file, or folder; None for no pictures.
        publish: URLs that messages go to.
        max_frames: Frames of each input after which it ends, or None.
        tile: Whether ``output`` is one picture of all inputs.
        stay: Whether the session goes on without any input, for those that are added.
        attempts: Failures in a row after which a camera counts as failed; 0 for no end; None for six seconds without an answer,
            five failures without a frame, and no end after one.
        vlm: Vision-language model beside the streams, or empty.
        prompt: What it is asked.
        show: Whether each input gets a window.
        then: Spec of a model for the objects that were found, or empty.
    """

    inputs: Sequence[str]
    model: str
    device: str = "auto"
    settings: Sequence[str] = ()
    track: str = "bytetrack"
    output: str | None = None
    publish: Sequence[str] = field(default_factory=tuple)
    max_frames: int | None = None
    tile: bool = False
    stay: bool = False
    attempts: int | None = None
    vlm: str = ""
    prompt: str = ""
    show: bool = False
    then: str = ""


def parse_settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``NAME=VALUE`` and ``ELEMENT.NAME=VALUE`` as checked values by element and property.

    Raises:
        ConfigError: No ``=``, or a value that does not fit.
        UnknownNameError: An element or a property that is not known.
    """
    options = {name: cls.options for name, _, cls in factories()}
    options["then"] = options["pyinfer"]
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
        "pyvlm": not job.vlm and "there is no vision-language model without --vlm",
        "then": not job.then and "there is no second model without --then",
        "pyoverlay": not (job.output or job.show) and "nothing is drawn without --output or --show",
        "pypublish": not job.publish and "nothing is published without --jsonl or --publish",
    }
    for element, reason in absent.items():
        if reason and settings[element]:
            raise ConfigError(f"--set {element}.{next(iter(settings[element]))} has no effect: {reason}")
    twice = {"pyinfer": {"model": "--model", "device": "--device"}, "pytrack": {"tracker": "--track"}}
    twice["then"] = {"model": "--then", "device": "--device"}
    twice["pypublish"] = {"url": "--jsonl or --publish"}
    twice["pyvlm"] = {"model": "--vlm", "prompt": "--prompt"}
    for element, names in twice.items():
        for name, option in names.items():
            if name in settings[element]:
                raise ConfigError(f"--set {element}.{name} is {option}", hint=f"use {option}")


class Session:
    """Runs a job. Everything that can be checked is checked when it is made.

    ``add_source``, ``remove_source``, ``swap``, ``report`` and ``stop`` may be called from any thread while it runs.

    Args:
        job: What to run.

    Attributes:
        branches: One per input, those that ended too.
        urls: Where messages go, each target once.

    Raises:
        GstInferError: A setting, an input's name, an output or a message target that cannot be used.
    """

    def __init__(self, job: Job) -> None:
        gstinfer.register()
        self.job = job
        settings = parse_settings(job.settings)
        inputs = sources.parse_all(job.inputs)
        if not inputs and not job.stay:
            raise ConfigError("there is no input", hint="name a file, or test:smpte")
        if job.max_frames is not None and job.max_frames < 1:
            raise ConfigError(f"max-frames={job.max_frames} is out of range", hint="use at least 1")
        if job.track not in (*registry.names("tracker"), "none"):
            raise UnknownNameError("tracker", job.track, [*registry.names("tracker"), "none"])
        ModelSpec.parse(job.model)
        if job.then:
            ModelSpec.parse(job.then)
        if job.prompt and not job.vlm:
            raise ConfigError("--prompt asks nobody without --vlm", hint="add --vlm openai:URL#MODEL")
        _refuse_idle(settings, job)
        if "stream_id" in settings["pyinfer"]:
            if len(inputs) != 1:
                raise ConfigError("--set stream-id would give several inputs one name", hint="leave it out")
            inputs = [replace(inputs[0], stream_id=settings["pyinfer"]["stream_id"])]
        shared = {"model_instance_id": f"run-{id(self):x}"}
        self._infer: dict[str, Any] = {"model": job.model, "device": job.device, **shared, **settings["pyinfer"]}
        self._properties: dict[str, Mapping[str, Any] | None] = {
            **settings,
            "pyinfer": self._infer,
            "pytrack": None if job.track == "none" else {"tracker": job.track, **settings["pytrack"]},
            "pyvlm": {"model": job.vlm, "prompt": job.prompt, **shared, **settings["pyvlm"]} if job.vlm else None,
            "then": self._second(settings) if job.then else None,
        }
        targets: dict[str, str] = {}
        for url in job.publish:
            targets.setdefault(str(getattr(publisher_for(url), "target", url)), url)
        self.urls = tuple(targets.values())
        wishes = settings["pypublish"]
        self._writing = {"size": wishes["queue_size"]} if "queue_size" in wishes else {}
        self._writing |= {"append": True} if wishes.get("append") else {}
        self._picture: Path | None = None
        if job.tile:
            if not job.output:
                raise ConfigError("--tile writes one picture of all inputs; there is no --output", hint="-o FILE.mp4")
            self._picture = sinks.output_paths(job.output, [Source("", "mosaic", "", "mosaic")])[0]
            assert self._picture is not None
            if any(source.kind == "file" and sinks.same_file(self._picture, source.target) for source in inputs):
                raise ConfigError(f"{job.output!r} is an input and the output", hint="choose another name")
        outputs = [None] * len(inputs) if job.tile else sinks.output_paths(job.output, inputs)
        if job.show and job.tile:
            raise ConfigError("--show does not apply to --tile", hint="leave one of them out")
        self._window = window.find_sink() if job.show else ""
        self.mosaic: Mosaic | None = None
        self.branches = [self._branch(source, output) for source, output in zip(inputs, outputs)]
        self._stop = threading.Event()
        self._stop_sent = False
        self._running = False
        self._lock = threading.Lock()
        self._updates: dict[str, str] = {}

    def _second(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Properties of the pyinfer that looks at objects."""
        own = {"model": self.job.then, "device": self.job.device, "model_instance_id": f"then-{id(self):x}"}
        number = self._infer.get("unique_id", 15)
        return {**own, "process_mode": 2, "unique_id": number + 1, "infer_on_gie_id": number, **settings["then"]}

    def _branch(self, source: Source, output: Path | None) -> Branch:
        return Branch(
            source, output, self._properties, self.urls, self.job.max_frames,
            attempts=self.job.attempts, show=self._window, updated=self._updated,
        )  # fmt: skip

    @property
    def failed(self) -> list[Branch]:
        """The inputs that failed so far."""
        return [branch for branch in self.branches if branch.state == "failed"]

    @property
    def error(self) -> str:
        """What failed apart from the inputs, or empty."""
        return f"{str(self._picture)!r} cannot be written: {self.mosaic.error}" if self.mosaic and self.mosaic.error else ""

    def stop(self) -> None:
        """Ends all streams with their files finished; any thread, also from a signal handler."""
        self._stop.set()

    def run(self, tick: Callable[[Session], None] | None = None) -> bool:
        """Runs until every stream ended, or with ``Job.stay`` until ``stop``.

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
            for url in self.urls if ready or self.job.stay else ():
                # Held for the whole job, so that a stream that begins later adds to the file.
                stack.callback(open_lease(url, on_error=_told, on_warning=_told, **self._writing).close)
            if self._picture is not None and (ready or self.job.stay):
                live = self.job.stay or any(branch.source.live for branch in ready)
                mosaic = self.mosaic = Mosaic(self._picture, live)
                stack.callback(mosaic.close)
                for branch in ready:
                    branch.tile = mosaic.add(branch.source)
                mosaic.start()
                # Streams stop before their picture does.
                stack.callback(self._abandon)
            self._running = True
            stack.callback(self._closed)
            for branch in ready:
                if self._stop.is_set():
                    break
                branch.start()
            while any(branch.running for branch in self.branches) or (self.job.stay and not self._stop.is_set()):
                self.poll()
                if self._stop.is_set() and not self._stop_sent:
                    self._stop_sent = True
                    for branch in self.branches:
                        branch.stop()
                if tick is not None:
                    tick(self)
                # A stop wakes the loop; after it the loop only waits for the files.
                (threading.Event() if self._stop_sent else self._stop).wait(TICK)
        return not self.failed and not self.error

    def poll(self) -> None:
        """Takes what the pipelines said meanwhile; never waits."""
        for branch in list(self.branches):
            branch.poll()
        if self.mosaic is not None:
            self.mosaic.poll()

    def find(self, name: str) -> Branch:
        """The newest branch of a stream's name.

        Raises:
            UnknownNameError: No stream has it.
        """
        for branch in reversed(self.branches):
            if branch.source.stream_id == name:
                return branch
        raise UnknownNameError("stream", name, {branch.source.stream_id for branch in self.branches})

    def add_source(self, text: str, name: str = "") -> Branch:
        """Adds an input to a running session, and starts it in the caller's thread.

        Args:
            text: As on the command line.
            name: Of the stream; empty for one made from the input. The name of a stream that ended may be used again.

        Raises:
            ConfigError, HostError: The input is not known or cannot be opened, the name is taken, or the session does not run.
        """
        source = sources.parse(text)
        with self._lock:
            if not self._running or self._stop.is_set():
                raise ConfigError("the session does not run", hint="add sources while run() is at work")
            taken = {b.source.stream_id for b in self.branches if b.running or b.state == "ready"}
            if name in taken:
                raise ConfigError(f"a stream {name!r} is running already", hint="remove it first, or take another name")
            chosen = name or next(n for n in _numbered(source.stream_id) if n not in taken)
            source = replace(source, stream_id=chosen)
            branch = self._branch(source, self._output(source))
            branch.probe()
            if branch.state == "failed":
                raise HostError(f"{source.text}: {branch.error}")
            if self.mosaic is not None:
                branch.tile = self.mosaic.add(source)
            ended = [b for b in self.branches if not b.running and b.state != "failed"]
            for old in ended[:-KEPT]:
                self.branches.remove(old)
            self.branches.append(branch)
            branch.start()
        if branch.state == "failed":
            raise HostError(f"{source.text}: {branch.error}")
        return branch

    def _output(self, source: Source) -> Path | None:
        if not self.job.output or self.job.tile:
            return None
        if not Path(self.job.output).is_dir():
            raise ConfigError(
                f"{self.job.output!r} is one file, and an added source needs its own", hint="start with --output DIR/"
            )
        used = {branch.output for branch in self.branches}
        for name in _numbered(source.stream_id):
            path = sinks.output_paths(self.job.output, [replace(source, stream_id=name)])[0]
            if path not in used:
                return path
        raise AssertionError("numbers do not end")

    def remove_source(self, name: str) -> Branch:
        """Ends one stream, its files finished; returns at once.

        Raises:
            UnknownNameError: No stream of that name.
            ConfigError: It ended before.
        """
        branch = self.find(name)
        if not branch.running:
            raise ConfigError(f"the stream {name!r} is not running, it {branch.state}")
        branch.stop()
        return branch

    def swap(self, model: str, patience: float = SWAP_SECONDS) -> None:
        """Exchanges the model of all streams; returns when the new one runs.

        Args:
            model: Spec of the model.
            patience: Seconds that it may take to load.

        Raises:
            ConfigError: The spec names nothing.
            ModelLoadError: The new model cannot be loaded, or not in time; the old one runs on.
        """
        ModelSpec.parse(model)
        element = next((e for b in self.branches if (e := b.element) is not None), None)
        if element is None:
            self._infer["model"] = model
            return
        deadline = time.monotonic() + patience

        def wait() -> None:
            if time.monotonic() > deadline:
                raise ModelLoadError(f"{model} was not loaded within {patience:g} s", hint="the old model runs on till then")
            self.poll()
            time.sleep(TICK / 2)

        # An element that still loads its first model would take the wish without a word.
        while element.stage is None:
            wait()
        self._updates.pop(model, None)
        element.set_property("model", model)
        while model not in self._updates:
            wait()
        if reason := self._updates.pop(model):
            raise ModelLoadError(reason)

    def _updated(self, spec: str, error: str) -> None:
        if not error:
            self._infer["model"] = spec
        self._updates[spec] = error

    @property
    def model(self) -> str:
        """Spec of the model that runs, or of the one that will."""
        return str(self._infer["model"])

    def report(self) -> dict[str, Any]:
        """The model and every stream, as plain values."""
        return {"model": self.model, "streams": [branch.report() for branch in list(self.branches)]}

    def _closed(self) -> None:
        with self._lock:
            self._running = False

    def _abandon(self) -> None:
        for branch in self.branches:
            branch.abandon()


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name}-{number}"


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
