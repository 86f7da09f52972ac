# SPDX-License-Identifier: Apache-2.0
"""Every kind of result under AddressSanitizer; benchmarks/deepstream_memory.py does it for thousands of buffers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support import balanced, run, source

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]


@pytest.mark.parametrize("rotation", [True, False], ids=["rotation", "no-rotation"])
def test_no_invalid_access(make_standin, standin_build, rotation):
    try:
        standin = make_standin(rotation=rotation, sanitize="address")
    except standin_build.BuildError as error:
        pytest.skip(f"no AddressSanitizer: {error}")
    pipeline = (
        "standinmux name=m batch-size=2 ! pyinfer device=cpu model=deepstream_models:All output-tensor-meta=true "
        "frames-in-flight=2 ! queue ! standintracker ! standinosd ! standinmsgconv ! standinprobe dump=false copy=true "
        "! fakesink name=sink " + source(30) + source(30, pad=1)
    )
    told = run(standin, pipeline, read="len(f.detections)")
    assert told.error is None and told.frames == [[2, 2]] * 30
    counters = told.run.counters
    assert counters["acquired"] == counters["appended"] == counters["released"]
    assert not any(counters["never_appended"].values())


def test_payloads_outlive_the_interpreter(make_standin):
    """A buffer that is dropped after Python has ended releases its user metas without it."""
    prepare = """
    import atexit, ctypes
    gst = ctypes.CDLL("libgstreamer-1.0.so.0")
    gst.gst_mini_object_ref.argtypes = gst.gst_mini_object_unref.argtypes = [ctypes.c_void_p]
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3
    def probe(pad, info):
        address = hash(info.get_buffer())
        gst.gst_mini_object_ref(address)
        # run by the C library, when there is no interpreter any more
        unref = ctypes.cast(gst.gst_mini_object_unref, ctypes.c_void_p)
        libc.__cxa_atexit(unref, address, None)
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    """
    pipeline = f"standinmux name=m ! pyinfer device=cpu model=deepstream_models:Caption ! fakesink name=sink {source(3)}"
    told = run(make_standin(), pipeline, prepare=prepare)
    assert told.error is None and told.run.code == 0
    balanced(told)
    assert told.run.counters["user_released"] >= 6
