# SPDX-License-Identifier: Apache-2.0
"""Pipeline, Probe and as much of Flow as the examples use, over GStreamer and the stand-in's elements."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ._buffer import Buffer

try:
    from standin_names import translated
except ImportError:  # without the tests' folder: only what has no stand-in can be added

    def translated(element: str, settings: dict) -> tuple[str, dict]:
        return element, settings


class Probe:
    """Calls an operator for each buffer that leaves an element."""

    def __init__(self, name: str, operator: Any) -> None:
        self.name, self.operator = name, operator


class Pipeline:
    """A pipeline by names: add, link, attach, start, wait."""

    def __init__(self, name: str) -> None:
        import gi

        gi.require_version("Gst", "1.0")
        from gi.repository import Gst

        Gst.init(None)
        self._gst, self._pipeline = Gst, Gst.Pipeline.new(name)

    def add(self, kind: str, name: str, properties: dict[str, Any] | None = None) -> Pipeline:
        kind, properties = translated(kind, properties or {})
        element = self._gst.ElementFactory.make(kind, name)
        if element is None:
            raise RuntimeError(f"no element {kind}")
        for key, value in properties.items():
            element.set_property(key, value)
        self._pipeline.add(element)
        return self

    def link(self, *names: Any) -> Pipeline:
        if isinstance(names[0], tuple):
            (source, target), (_, pad) = names
            self._pipeline.get_by_name(source).connect("pad-added", self._decoded, target, pad)
            return self
        for first, second in pairwise(names):
            if not self._pipeline.get_by_name(first).link(self._pipeline.get_by_name(second)):
                raise RuntimeError(f"{first} does not link to {second}")
        return self

    def _decoded(self, source: Any, pad: Any, target: str, template: str) -> None:
        text = "videoconvert ! capsfilter caps=video/x-raw,format=NV12"
        convert = self._gst.parse_bin_from_description(text, True)
        self._pipeline.add(convert)
        convert.sync_state_with_parent()
        pad.link(convert.get_static_pad("sink"))
        convert.get_static_pad("src").link(self._pipeline.get_by_name(target).request_pad_simple(template))

    def attach(self, name: str, probe: Probe) -> Pipeline:
        def called(pad: Any, info: Any) -> Any:
            probe.operator.handle_metadata(Buffer(info.get_buffer()).batch_meta)
            return self._gst.PadProbeReturn.OK

        kind = self._gst.PadProbeType.BUFFER
        self._pipeline.get_by_name(name).get_static_pad("src").add_probe(kind, called)
        return self

    def start(self) -> Pipeline:
        self._pipeline.set_state(self._gst.State.PLAYING)
        return self

    def wait(self) -> None:
        kinds = self._gst.MessageType.EOS | self._gst.MessageType.ERROR
        message = self._pipeline.get_bus().timed_pop_filtered(60 * self._gst.SECOND, kinds)
        self._pipeline.set_state(self._gst.State.NULL)
        if message is None or message.type == self._gst.MessageType.ERROR:
            raise RuntimeError("no end" if message is None else str(message.parse_error()))


class Stream:
    """One end of a flow."""

    def __init__(self, originator: str) -> None:
        self.originator = originator


class Flow:
    """Elements that follow one another."""

    def __init__(self, pipeline: Pipeline, streams: list[Any] | None = None) -> None:
        self._pipeline, self._streams = pipeline, streams or []

    def batch_capture(self, inputs: list[str]) -> Flow:
        self._pipeline.add("nvstreammux", "mux", {"batch-size": len(inputs)})
        for number, uri in enumerate(inputs):
            self._pipeline.add("nvurisrcbin", f"source{number}", {"uri": uri})
            self._pipeline.link((f"source{number}", "mux"), ("", "sink_%u"))
        return Flow(self._pipeline, [Stream("mux")])
