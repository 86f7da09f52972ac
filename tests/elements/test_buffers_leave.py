"""Buffers behind pyinfer: writable for who comes next, and the first of them without a second."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

import gstinfer
from gstinfer.elements.compat import Gst
from gstinfer.hosts.gstbuffer import BufferStruct
from gstinfer.testing import run_pipeline

MODEL = "import time\n\ndef model(batch):\n    time.sleep({})\n    return [None] * len(batch)\n"


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("streams", [1, 4])
def test_nobody_else_holds_a_buffer_that_leaves(tmp_path, streams, depth):
    (tmp_path / "m.py").write_text(MODEL.format(0.002))
    gstinfer.register()
    pipeline = Gst.parse_launch(
        " ".join(
            "videotestsrc num-buffers=30 ! video/x-raw,format=NV12,width=64,height=64 ! queue "
            f"! pyinfer name=infer{n} model={tmp_path}/m.py:model device=cpu model-instance-id={tmp_path.name}"
            f" frames-in-flight={depth} ! fakesink sync=false"
            for n in range(streams)
        )
    )
    came, left = [], []

    def seen(pad, info, held):
        buffer = info.get_buffer()
        held.append(BufferStruct.from_address(hash(buffer)).refcount)
        return Gst.PadProbeReturn.OK

    for n in range(streams):
        for name, held in (("sink", came), ("src", left)):
            pad = pipeline.get_by_name(f"infer{n}").get_static_pad(name)
            pad.add_probe(Gst.PadProbeType.BUFFER, seen, held)
    pipeline.set_state(Gst.State.PLAYING)
    kinds = Gst.MessageType.EOS | Gst.MessageType.ERROR
    message = pipeline.get_bus().timed_pop_filtered(30 * Gst.SECOND, kinds)
    pipeline.set_state(Gst.State.NULL)
    assert message is not None and message.type == Gst.MessageType.EOS
    # The wrapper that a probe makes counts in both.
    assert left == came == came[:1] * 30 * streams


def test_sinks_behind_a_tee_get_their_first_buffer(tmp_path):
    (tmp_path / "m.py").write_text(MODEL.format(0.05))
    run = run_pipeline(
        "videotestsrc num-buffers=12 ! video/x-raw,format=NV12,width=64,height=64 ! tee name=t "
        f"t. ! queue ! pyinfer model={tmp_path}/m.py:model device=cpu frames-in-flight=8 ! fakesink name=sink sync=false "
        "t. ! queue max-size-buffers=2 ! fakesink sync=false",
        timeout=10,
    )
    assert run.eos and run.error is None
