"""Runs a pipeline to its end and keeps what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gstinfer.elements.compat import structure_of
from gstinfer.results import FrameResults

__all__ = ["Run", "run_pipeline"]


@dataclass
class Run:
    """What a pipeline did.

    Attributes:
        pts: Of every buffer that reached the sink named ``sink``, ns.
        results: What ``gstinfer.read`` found on each; None for a batch of several frames.
        data: Bytes of each buffer, where asked for.
        eos: Whether the pipeline ended by EOS.
        error: Text of the first error message, or None.
        debug: Its debug text.
        warnings: Texts of all warnings.
        messages: Names of all element messages' structures.
        stats: The ``stats`` property of every element that has one, by element name.
    """

    pts: list[int] = field(default_factory=list)
    results: list[FrameResults | None] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    eos: bool = False
    error: str | None = None
    debug: str = ""
    warnings: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)

    def boxes(self) -> list[list[list[float]]]:
        """Boxes of every frame, rounded to a tenth of a pixel; None's place is an empty list."""
        return [
            [] if r is None or r.detections is None else [[round(float(v), 1) for v in b] for b in r.detections.xyxy]
            for r in self.results
        ]


def run_pipeline(
    description: str,
    *,
    timeout: float = 20.0,
    keep_data: bool = False,
    prepare: Callable[[Any], None] | None = None,
    on_buffer: Callable[[Any, int], None] | None = None,
) -> Run:
    """Runs a launch description until EOS, an error or the timeout.

    Args:
        description: As for gst-launch; a sink named ``sink`` is watched (``fakesink name=sink``).
        timeout: Seconds.
        keep_data: Whether the buffers' bytes are kept.
        prepare: Called with the pipeline before it starts.
        on_buffer: Called with (pipeline, number) for every buffer at the sink, on its streaming thread.

    Raises:
        TimeoutError: Neither EOS nor an error came.
    """
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(description)
    if not isinstance(pipeline, Gst.Pipeline):
        whole = Gst.Pipeline.new(None)
        whole.add(pipeline)
        pipeline = whole
    run = Run()

    def probe(pad: Any, info: Any) -> Any:
        buffer = info.get_buffer()
        run.pts.append(buffer.pts)
        found = gstinfer.read_frames(buffer)
        run.results.append(found[0] if len(found) == 1 else None)
        if keep_data:
            run.data.append(buffer.extract_dup(0, buffer.get_size()))
        if on_buffer is not None:
            on_buffer(pipeline, len(run.pts))
        return Gst.PadProbeReturn.OK

    sink = pipeline.get_by_name("sink")
    pad = sink.get_static_pad("sink") if sink is not None else None
    watch = pad.add_probe(Gst.PadProbeType.BUFFER, probe) if pad is not None else 0
    if prepare is not None:
        prepare(pipeline)
    bus = pipeline.get_bus()
    pipeline.set_state(Gst.State.PLAYING)
    deadline = Gst.util_get_timestamp() + int(timeout * Gst.SECOND)
    try:
        while not run.eos and run.error is None:
            left = deadline - Gst.util_get_timestamp()
            message = bus.timed_pop(left) if left > 0 else None
            if message is None:
                raise TimeoutError(f"no end after {timeout} s and {len(run.pts)} frames: {description}")
            if message.type == Gst.MessageType.ERROR:
                error, debug = message.parse_error()
                run.error, run.debug = error.message, debug or ""
            elif message.type == Gst.MessageType.WARNING:
                run.warnings.append(message.parse_warning()[0].message)
            elif message.type == Gst.MessageType.ELEMENT:
                run.messages.append(structure_of(message).get_name())
            elif message.type == Gst.MessageType.EOS:
                run.eos = True
        for element in _elements(pipeline):
            if element.find_property("stats") is not None and element.find_property("unique-id") is not None:
                run.stats[element.get_name()] = _fields(element.get_property("stats"))
    finally:
        pipeline.set_state(Gst.State.NULL)
        if pad is not None:
            # The probe holds the pipeline, and the pipeline the probe.
            pad.remove_probe(watch)
    return run


def _elements(pipeline: Any) -> list[Any]:
    found: list[Any] = []
    iterator = pipeline.iterate_recurse()
    while True:
        code, element = iterator.next()
        if code.value_nick != "ok":
            return found
        found.append(element)


def _fields(structure: Any) -> dict[str, Any]:
    if structure is None:
        return {}
    names = [structure.nth_field_name(i) for i in range(structure.n_fields())]
    return {name: structure.get_value(name) for name in names}
