"""BatchElement: every vfunc of an element, written once. An element is a thin shell of properties over a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from gstinfer import threadstate
from gstinfer.elements.compat import GObject, Gst, GstBase, describe_class, event_number, refloat, structure_of
from gstinfer.elements.guard import guard, report
from gstinfer.elements.witness import keep_witness
from gstinfer.errors import ConfigError, GstInferError, HostError
from gstinfer.frames import Frame
from gstinfer.hosts import caps_of, select
from gstinfer.settings import Option, Settings
from gstinfer.stage import Stage

__all__ = ["BatchElement", "gproperties", "to_structure"]

log = logging.getLogger(__name__)

READWRITE = GObject.ParamFlags.READWRITE
SOURCE_EVENTS = frozenset((400, 401, 402, 404))
"""Numbers of nvstreammux's custom events that begin or end a source: pad added, pad deleted, stream EOS, stream reset."""
WIDE = {int: (-(2**31), 2**31 - 1), float: (-1e300, 1e300)}


def gproperties(options: dict[str, Option]) -> dict[str, tuple[Any, ...]]:
    """GObject properties of options, by hyphenated name.

    Ranges are wide: GLib would clamp a value out of range in silence, so ``Option`` refuses it at start instead.
    """
    made: dict[str, tuple[Any, ...]] = {}
    for option in options.values():
        blurb = option.help
        if option.choices:
            blurb += f" ({', '.join(filter(None, option.choices))})"
        elif option.minimum is not None or option.maximum is not None:
            blurb += f" ({_bounds(option)})"
        default = option.unset if option.default is None and option.unset is not None else option.default
        flags = READWRITE | (Gst.PARAM_MUTABLE_PLAYING if option.mutable else Gst.PARAM_MUTABLE_READY)
        nick = option.key.replace("-", " ").capitalize()
        if option.type in WIDE:
            made[option.key] = (option.type, nick, blurb, *WIDE[option.type], option.type(default), flags)
        else:
            made[option.key] = (option.type, nick, blurb, default, flags)
    return made


def _bounds(option: Option) -> str:
    if option.maximum is None:
        return f"at least {option.minimum:g}"
    return f"{option.minimum or 0:g} to {option.maximum:g}"


class BatchElement(GstBase.BaseTransform):  # type: ignore[misc]
    """Base of all elements of this package.

    Subclasses set ``settings_class``, ``metadata`` and ``make_stage``, and call ``declare`` once.

    Attributes:
        writes_pixels: Whether the stage draws.
        writes_results: Whether the stage changes ``frame.results``.
        failed: Whether an error was posted since the last start.
        tally: Told of each frame when its results are on the buffer, or None; on the thread that writes them.
    """

    settings_class: ClassVar[type[Settings]]
    metadata: ClassVar[tuple[str, str, str, str]]
    writes_pixels: ClassVar[bool] = False
    writes_results: ClassVar[bool] = True
    options: ClassVar[dict[str, Option]] = {}

    def __init__(self) -> None:
        super().__init__()
        refloat(self)
        self.wishes: dict[str, Any] = {}
        # Each subclass has its own kinds of these; None while the element is stopped.
        self.settings: Any = None
        self.stage: Any = None
        self.host: Any = None
        self.failed = False
        self.stream_id = ""
        self.announced_stream = ""
        self.sequence = 0
        self.source = ""
        self.component_id = 0
        self.tally: Callable[[Frame], None] | None = None
        self.set_in_place(True)

    @classmethod
    def declare(cls) -> None:
        """Metadata and pad templates; called once per class after it is made."""
        caps = cls.template_caps()
        describe_class(cls, cls.metadata, caps, caps)

    @classmethod
    def template_caps(cls) -> str:
        return caps_of("system", "cuda", "deepstream")

    def make_stage(self, settings: Settings) -> Stage:
        """The stage of this element; ``settings`` are checked already."""
        raise NotImplementedError

    def offered_hosts(self) -> tuple[str, ...]:
        """Hosts whose memory the pads accept now."""
        return ("system", "cuda", "deepstream")

    def host_options(self, caps: Any) -> dict[str, Any]:
        """Options for the host of some fixed caps, from properties."""
        write_meta = getattr(self.settings, "write_meta", None)
        features = caps.get_features(0)
        if features is not None and features.contains("memory:NVMM"):
            if write_meta in ("analytics", "roi"):
                raise ConfigError(f"write-meta={write_meta} does not apply to DeepStream", hint="its metas are NvDs metas")
            return {}
        return {} if write_meta is None else {"write_meta": write_meta}

    def chosen(self, names: Any) -> dict[str, Any]:
        """Values of some options: as set, else this element's own default."""
        return {name: self.wishes.get(name, self.options[name].default) for name in names}

    def stats(self) -> dict[str, Any]:
        """Counters that the ``stats`` property shows."""
        own = getattr(self.stage, "stats", None)
        return own() if callable(own) else {}

    # Properties: a setter only stores, so that a value is judged together with all others at start.

    def do_get_property(self, pspec: Any) -> Any:
        name = pspec.name.replace("-", "_")
        if name == "stats":
            return to_structure("stats", self.stats())
        option = self.options[name]
        value = self.wishes.get(name, option.default)
        return option.unset if value is None and option.unset is not None else value

    def do_set_property(self, pspec: Any, value: Any) -> None:
        name = pspec.name.replace("-", "_")
        if self.settings is None:
            self.wishes[name] = value
            return
        self._change(name, value)

    def _change(self, name: str, value: Any) -> None:
        """A property is set while the element runs; what cannot be is a warning."""
        try:
            checked = self.options[name].parse(value)
            self.apply(name, checked)
            if name in self.settings.options():
                setattr(self.settings, name, checked)
            self.wishes[name] = value
        except GstInferError as error:
            report(self, error, "warning")

    def apply(self, name: str, value: Any) -> None:
        """A property changed while the element runs; the default refuses those that are not mutable.

        Raises:
            GstInferError: It cannot change now.
        """
        if not self.options[name].mutable:
            raise ConfigError(
                f"{self.options[name].key} cannot change while {self.get_name()} runs",
                hint="set the element to READY first",
            )

    # States

    @guard(False)
    def do_start(self) -> bool:
        self.failed = False
        taken = dict(self.wishes)
        settings = self.settings_class(**self.chosen(self.settings_class.options()))
        self.stream_id = getattr(settings, "stream_id", "") or ""
        self.component_id = getattr(settings, "unique_id", 0)
        stage = self.make_stage(settings)
        stage.start()
        self.settings, self.stage = settings, stage
        # What was set while the model was loading.
        for name, value in list(self.wishes.items()):
            if name not in taken or taken[name] != value:
                self._change(name, value)
        return True

    @guard(False)
    def do_stop(self) -> bool:
        stage, self.stage, self.settings = self.stage, None, None
        host, self.host = self.host, None
        try:
            if stage is not None:
                stage.stop()
        finally:
            if host is not None:
                host.close()
        return True

    def do_change_state(self, transition: Any) -> Any:
        if transition == Gst.StateChange.PAUSED_TO_READY and self.stage is not None:
            # Pads are deactivated only when the streaming thread has left the vfunc: wake it first.
            self.stage.interrupt()
        elif transition == Gst.StateChange.PLAYING_TO_PAUSED and callable(getattr(self.stage, "idle", None)):
            # Streams that go on must not wait for one that stands still.
            self.stage.idle()
        return GstBase.BaseTransform.do_change_state(self, transition)

    # Caps

    @guard(None)
    def do_transform_caps(self, direction: Any, caps: Any, filter_caps: Any) -> Any:
        offered = Gst.Caps.from_string(caps_of(*self.offered_hosts()))
        result = caps.intersect_full(offered, Gst.CapsIntersectMode.FIRST)
        if filter_caps is not None:
            result = filter_caps.intersect_full(result, Gst.CapsIntersectMode.FIRST)
        return result

    @guard(False)
    def do_set_caps(self, incaps: Any, outcaps: Any) -> bool:
        if self.host is not None:
            self.host.close()
            self.host = None
        self.host = select(incaps, self, **self.host_options(incaps))
        for text in getattr(self.host, "warnings", ()):
            report(self, HostError(text), "warning")
        # In place without passthrough the buffer is always writable; DeepStream forbids the copy that may cost.
        changes = self.writes_pixels or self.writes_results
        self.set_passthrough(self.host.passthrough or not changes)
        if self.writes_results and not self.host.passthrough:
            keep_witness(self.srcpad)
        return True

    # Data

    @guard(Gst.FlowReturn.ERROR)
    def do_transform_ip(self, buffer: Any) -> Any:
        assert self.host is not None and self.stage is not None
        with self.host.open(buffer, write=self.writes_pixels) as batch:
            self.stage.process(batch)
        return Gst.FlowReturn.OK

    @guard(False)
    def do_sink_event(self, event: Any) -> bool:
        self.before_event(event)
        return bool(GstBase.BaseTransform.do_sink_event(self, event))

    def before_event(self, event: Any) -> None:
        """What an event means to the stage, before it goes on downstream."""
        kind, types = event.type, Gst.EventType
        stage = self.stage
        if kind == types.SEGMENT:
            # On the thread that brings the buffers, before they come.
            threadstate.keep()
        if kind == types.STREAM_START:
            self.announced_stream = event.parse_stream_start() or ""
            self.sequence = 0
            configured = getattr(self.settings, "stream_id", "") if self.settings is not None else ""
            self.stream_id = configured or self.announced_stream
        if stage is None:
            return
        if kind == types.FLUSH_START:
            stage.interrupt()
        elif kind in (types.EOS, types.FLUSH_STOP, types.STREAM_START):
            stage.reset(self.stream_id)
            for source in getattr(self.host, "sources", ()):
                stage.reset(source)
        elif kind == types.GAP and callable(getattr(stage, "idle", None)):
            stage.idle()
        elif event_number(event) >> 8 in SOURCE_EVENTS:
            known, source = structure_of(event).get_uint("source-id")
            if known:
                stage.reset(str(source))


def to_structure(name: str, values: dict[str, Any]) -> Any:
    """A GstStructure: whole numbers as guint64, others as double, text as it is."""
    structure = Gst.Structure.new_empty(name)
    for key, value in values.items():
        if isinstance(value, (bool, str)):
            structure.set_value(key, value)
        elif isinstance(value, int):
            structure.set_value(key, GObject.Value(GObject.TYPE_UINT64, max(0, value)))
        else:
            structure.set_value(key, float(value))
    return structure
