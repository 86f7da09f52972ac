"""An opened buffer is held once, so that whoever keeps it can have the only reference."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.gst


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_nothing_but_the_opened_buffer_holds_the_wrapper(kind):
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    from gstinfer.hosts.cuda import CudaHost
    from gstinfer.hosts.system import SystemHost

    caps = Gst.Caps.from_string("video/x-raw,format=NV12,width=64,height=48,framerate=30/1")
    stream = SimpleNamespace(stream_id="a", source="", component_id=1, sequence=0)
    host = SystemHost(caps, stream) if kind == "system" else CudaHost(caps, stream, cuda=False)
    buffer = Gst.Buffer.new_allocate(None, 64 * 48 * 3 // 2, None)
    alone = sys.getrefcount(buffer)
    opened = host.open(buffer)
    with opened as batch:
        assert batch[0].results.detections is None
        assert sys.getrefcount(buffer) == alone + 1
        opened.buffer = None
        assert sys.getrefcount(buffer) == alone
        opened.buffer = buffer
