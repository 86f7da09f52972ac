"""Memory on DeepStream: thousands of buffers under AddressSanitizer, on the stand-in of its C ABI.

Every kind of result is written, copied, tracked, drawn and read back; the stand-in's pools are heap blocks of their own, so
that a byte written past a struct ends the run. At the end acquired, appended and released must agree, and the process must
not have grown.

    python benchmarks/deepstream_memory.py [--buffers 10000] [--plain]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests" / "deepstream"
PIPELINE = (
    "standinmux name=m ! pyinfer device=cpu model=deepstream_models:All output-tensor-meta=true ! "
    "standintracker location=/dev/null ! standinosd location=/dev/null ! standinmsgconv location=/dev/null ! "
    "standinprobe location=/dev/null copy=true ! fakesink name=sink "
    "videotestsrc num-buffers={n} ! video/x-raw,format=NV12,width=160,height=120 ! m.sink_0"
)
GROWTH = """
    import resource
    count = [0]
    read, gstinfer.read_frames = gstinfer.read_frames, lambda buffer: []  # run_pipeline keeps what it reads
    def probe(pad, info):
        count[0] += 1
        found = read(info.get_buffer())
        assert len(found) == 1 and found[0].detections is not None
        if count[0] in (WARM, LAST):
            pages = int(open("/proc/self/statm").read().split()[1])
            frames.append(pages * resource.getpagesize() / 1e6)
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
"""


def load(name: str) -> Any:
    """A module of the tests' folder."""
    spec = importlib.util.spec_from_file_location(f"standin_{name}", TESTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=10_000)
    parser.add_argument("--plain", action="store_true", help="without AddressSanitizer")
    arguments = parser.parse_args()
    build, support = load("build"), load("support")
    sanitize = None if arguments.plain else "address"
    for rotation in (True, False):
        folder = Path(tempfile.gettempdir()) / f"gstinfer-standin-{sanitize or 'plain'}-{int(rotation)}"
        standin = build.Standin(build.build(folder, rotation, sanitize), rotation, sanitize)
        prepare = GROWTH.replace("WARM", str(arguments.buffers // 4)).replace("LAST", str(arguments.buffers))
        started = time.monotonic()
        pipeline = PIPELINE.format(n=arguments.buffers)
        told = support.run(standin, pipeline, prepare=prepare, timeout=7200, limit=7000)
        assert told.error is None, told.error
        counters = told.run.counters
        objects = [counters[name]["object"] for name in ("acquired", "appended", "released")]
        row = {
            "layout": "rotation" if rotation else "plain",
            "buffers": arguments.buffers,
            "objects": objects,
            "never_appended": counters["never_appended"]["object"],
            "users": [counters[name]["user"] for name in ("acquired", "appended", "released")],
            "copied": counters["batch_copied"],
            "MB at a quarter and at the end": [round(x) for x in told.frames],
            "seconds": round(time.monotonic() - started),
        }
        print(json.dumps(row))
        assert len(set(objects)) == 1 and not row["never_appended"]


if __name__ == "__main__":
    main()
