"""Fixtures for the tests of hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("gi")
from gst_buffers import Gst, Stream


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def through() -> Callable[..., list[Any]]:
    """Pushes buffers through elements and gives the samples that come out."""

    def run(caps: Any, buffers: list[Any], elements: str, sink: str = "appsink name=sink sync=false") -> list[Any]:
        pipeline = Gst.parse_launch(f"appsrc name=src format=time ! {elements} ! {sink}")
        source, target = pipeline.get_by_name("src"), pipeline.get_by_name("sink")
        source.set_property("caps", caps)
        pipeline.set_state(Gst.State.PLAYING)
        try:
            for number in range(len(buffers)):
                buffer, buffers[number] = buffers[number], None
                buffer.pts = number * Gst.SECOND // 30
                buffer.duration = Gst.SECOND // 30
                source.emit("push-buffer", buffer)
                del buffer
            source.emit("end-of-stream")
            samples = []
            while (sample := target.emit("try-pull-sample", 10 * Gst.SECOND)) is not None:
                samples.append(sample)
            error = pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
            assert error is None, error.parse_error()
            assert samples, "nothing came out"
            return samples
        finally:
            pipeline.set_state(Gst.State.NULL)

    return run
