"""A running job: any number of inputs through one model."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import gstinfer
from gstinfer import registry
from gstinfer.app import naming, sinks, sources, window
from gstinfer.app.branch import Branch
from gstinfer.app.devices import Seat, least_loaded, on_one_core, resolve
from gstinfer.app.mosaic import Mosaic
from gstinfer.app.running import Running
from gstinfer.app.settings import parse_settings, refuse_idle
from gstinfer.app.sources import Source
from gstinfer.cores import set_aside
from gstinfer.errors import ConfigError, HostError, ModelLoadError, UnknownNameError
from gstinfer.image import Device
from gstinfer.model import ModelSpec
from gstinfer.publish.worker import open_lease, publisher_for

__all__ = ["Job", "Session", "stop_on_signals"]

TICK = 0.05
"""Seconds between two looks at the pipelines."""

ECHO = 0.2
"""Seconds in which a second signal is taken for the first once more: timeout(1) sends it to the process and to its group."""

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
        device: ``"auto"``, ``"cpu"``, ``"cuda:N"``, or several GPUs that share the inputs: ``"cuda:0,cuda:1"``.
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


class Session:
    """Runs a job. Everything that can be checked is checked when it is made.

    ``add_source``, ``remove_source``, ``swap``, ``report`` and ``stop`` may be called from any thread while it runs.

    Args:
        job: What to run.
        shares: Instead of ``job.inputs``, each with its file: a part of the inputs that others look after too.

    Attributes:
        branches: One per input, those that ended too.
        seats: The devices, each with a model of its own; a stream gets the one that runs the fewest.
        urls: Where messages go, each target once.
        begun: Set once inputs may be added, and at the end in any case.

    Raises:
        GstInferError: A setting, an input's name, an output or a message target that cannot be used.
    """

    def __init__(self, job: Job, shares: Sequence[tuple[Source, Path | None]] | None = None) -> None:
        gstinfer.register()
        self.job = job
        settings = parse_settings(job.settings)
        inputs = sources.parse_all(job.inputs) if shares is None else [source for source, _ in shares]
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
        refuse_idle(settings, job)
        if "stream_id" in settings["pyinfer"] and shares is None:
            if len(inputs) != 1:
                raise ConfigError("--set stream-id would give several inputs one name", hint="leave it out")
            inputs = [replace(inputs[0], stream_id=settings["pyinfer"]["stream_id"])]
        models = [model for model in (job.model, job.then) if model]
        places = resolve(job.device, models, str(settings["pyinfer"].get("model_args", "")))
        self.seats = [self._seat(settings, device, text, len(places) > 1) for device, text in places]
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
        if shares is not None:
            outputs = [output for _, output in shares]
        else:
            outputs = [None] * len(inputs) if job.tile else sinks.output_paths(job.output, inputs)
        if job.show and job.tile:
            raise ConfigError("--show does not apply to --tile", hint="leave one of them out")
        self._window = window.find_sink() if job.show else ""
        self.mosaic: Mosaic | None = None
        self.branches = [self._branch(source, output) for source, output in zip(inputs, outputs)]
        self._stop = threading.Event()
        self._stop_sent = False
        self._running = False
        self.begun = threading.Event()
        self._lock = threading.Lock()
        self._updates: dict[tuple[Device, str], str] = {}

    def _seat(self, settings: Mapping[str, Mapping[str, Any]], device: Device, text: str, several: bool) -> Seat:
        """What the streams of one device share: a model of its own, and the properties of their elements."""
        job, key = self.job, f"{id(self):x}" + (f"-{device}" if several else "")
        infer = {"model": job.model, "device": text, "model_instance_id": f"run-{key}", **settings["pyinfer"]}
        track = None if job.track == "none" else {"tracker": job.track, **settings["pytrack"]}
        if track is not None and track.keys() <= {"tracker", "tracker_args"}:
            # Inside of pyinfer the streams of a batch are tracked in one step.
            infer, track = {**infer, **track}, None
        number = infer.get("unique_id", 15)
        then = {
            "model": job.then, "device": text, "model_instance_id": f"then-{key}",
            "process_mode": 2, "unique_id": number + 1, "infer_on_gie_id": number, **settings["then"],
        }  # fmt: skip
        # One for all devices: it runs where its own setting says.
        vlm = {"model": job.vlm, "prompt": job.prompt, "model_instance_id": f"run-{id(self):x}", **settings["pyvlm"]}
        writers: dict[str, dict[str, Any] | None] = {
            "pyinfer": infer,
            "pytrack": track,
            "pyvlm": vlm if job.vlm else None,
            "then": then if job.then else None,
        }
        return Seat(device, {
            **{name: dict(values) for name, values in settings.items()},
            # Regions of interest are for others; here nobody else reads what is on a frame.
            **{name: values and {"write_meta": "carrier", **values} for name, values in writers.items()},
        })  # fmt: skip

    def _branch(self, source: Source, output: Path | None) -> Branch:
        return Branch(
            source, output, self.urls, self.job.max_frames,
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

    @property
    def written(self) -> list[Path]:
        """The video files that are finished."""
        found = [branch.output for branch in self.branches if branch.written and branch.output is not None]
        return found + ([self.mosaic.path] if self.mosaic is not None and self.mosaic.written else [])

    def stop(self) -> None:
        """Ends all streams with their files finished; any thread, also from a signal handler."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    def exit(self, code: int) -> NoReturn:
        """Ends the process at once, with nothing finished."""
        os._exit(code)

    def run(
        self, tick: Callable[[Session], None] | None = None, probed: Callable[[Session], bool] | None = None
    ) -> bool:
        """Runs until every stream ended, or with ``Job.stay`` until ``stop``.

        Args:
            tick: Called some twenty times a second, in the caller's thread.
            probed: Called when all inputs were looked at and nothing is opened for writing yet; says whether to go on.

        Returns:
            Whether none failed.

        Raises:
            PublishError: A message target cannot be opened.
        """
        with ExitStack() as stack:
            # At the latest when it is over, so that nobody waits for ever.
            stack.callback(self.begun.set)
            settling = on_one_core(self.seats[0])
            for core in stack.enter_context(set_aside(1 if settling else 0)):
                for seat in self.seats:
                    seat.properties.update({n: {**(seat.properties[n] or {}), "cpu_cores": str(core)} for n in settling})
            stack.callback(self._abandon)
            for branch in self.branches:
                branch.probe(self.seats[0].device)
            if probed is not None and not probed(self):
                return not self.failed
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
            self.begun.set()
            stack.callback(self._closed)
            for branch in ready:
                if self._stop.is_set():
                    break
                branch.start(self._next_seat())
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
        return naming.newest(self.branches, name)

    def _next_seat(self) -> Seat:
        """Of the device that the fewest streams run on."""
        return least_loaded(self.seats, [branch.seat for branch in self.branches if branch.running])

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
            self._require_running()
            taken = {b.source.stream_id for b in self.branches if b.running or b.state == "ready"}
            source = naming.named(source, name, taken)
            output = None if self.job.tile else naming.own_file(self.job.output, source, {b.output for b in self.branches})
            return self._begin(source, output)

    def begin(self, source: Source, output: Path | None) -> Branch:
        """``add_source`` for a source whose name and file are decided.

        Raises:
            ConfigError, HostError: It cannot be opened, or the session does not run.
        """
        with self._lock:
            self._require_running()
            return self._begin(source, output)

    def _require_running(self) -> None:
        if not self._running or self._stop.is_set():
            raise ConfigError("the session does not run", hint="add sources while run() is at work")

    def _begin(self, source: Source, output: Path | None) -> Branch:
        branch = self._branch(source, output)
        branch.probe(self.seats[0].device)
        if branch.state == "failed":
            raise HostError(f"{source.text}: {branch.error}")
        if self.mosaic is not None:
            branch.tile = self.mosaic.add(source)
        ended = [b for b in self.branches if not b.running and b.state != "failed"]
        for old in ended[:-KEPT]:
            self.branches.remove(old)
        self.branches.append(branch)
        branch.start(self._next_seat())
        if branch.state == "failed":
            raise HostError(f"{source.text}: {branch.error}")
        return branch

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
        before = self.model
        failed = self._exchange(model, self.seats, patience)
        if not failed:
            return
        if len(self.seats) > 1:
            # All devices run one model: those that have the new one, or still load it, go back.
            self._exchange(before, [seat for seat in self.seats if seat.infer["model"] != before], patience)
        reasons, hints = ("; ".join(filter(None, dict.fromkeys(texts))) for texts in zip(*failed))
        raise ModelLoadError(reasons, hint=hints)

    def _exchange(self, model: str, seats: Sequence[Seat], patience: float) -> list[tuple[str, str]]:
        """Exchanges the model on some devices, all at once; (reason, hint) of each that keeps the old one."""
        deadline = time.monotonic() + patience
        asked: dict[Seat, Branch | None] = dict.fromkeys(seats)
        failed: list[tuple[str, str]] = []
        while asked:
            for seat, branch in list(asked.items()):
                if (seat.device, model) in self._updates and branch is not None:
                    del asked[seat]
                    if reason := self._updates.pop((seat.device, model)):
                        failed.append((f"{seat.device}: {reason}" if len(self.seats) > 1 else reason, ""))
                elif branch is None or not branch.running:
                    # What an element has to say is lost when its stream ends meanwhile: another is asked.
                    asked[seat] = self._ask(seat, model)
                    if asked[seat] is None and not any(b.seat is seat and b.running for b in self.branches):
                        seat.infer["model"] = model
                        del asked[seat]
            if asked and time.monotonic() > deadline:
                failed.append((f"{model} was not loaded within {patience:g} s", "the old model runs on till then"))
                break
            if asked:
                self.poll()
                time.sleep(TICK / 2)
        return failed

    def _ask(self, seat: Seat, model: str) -> Branch | None:
        """Asks an element on a device for another model; its branch, or None where all still load their first one."""
        for branch in self.branches:
            element = branch.element if branch.seat is seat else None
            # An element without a stage would take the wish without a word.
            if element is not None and element.stage is not None:
                self._updates.pop((seat.device, model), None)
                element.set_property("model", model)
                return branch
        return None

    def _updated(self, branch: Branch, spec: str, error: str) -> None:
        seat = branch.seat
        if seat is None:
            return
        if not error:
            seat.infer["model"] = spec
        self._updates[seat.device, spec] = error

    @property
    def model(self) -> str:
        """Spec of the model that runs, or of the one that will."""
        return str(self.seats[0].infer["model"])

    def report(self) -> dict[str, Any]:
        """The model and every stream, as plain values."""
        return {"model": self.model, "streams": [branch.report() for branch in list(self.branches)]}

    def _closed(self) -> None:
        with self._lock:
            self._running = False

    def _abandon(self) -> None:
        for branch in self.branches:
            branch.abandon()


def _told(error: object) -> None:
    """The elements report the same."""


@contextmanager
def stop_on_signals(session: Running) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the session with its files finished; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first = 0.0

    def handle(number: int, _: Any) -> None:
        nonlocal first
        if not session.stopping:
            first = time.monotonic()
            session.stop()
        elif time.monotonic() > first + ECHO:
            session.exit(128 + number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
