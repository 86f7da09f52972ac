"""What the element costs: pyinfer against a bare loop that is fed the same decoded frames.

Both use the same loaded model, threads, preprocessing and batch. The bare loop pulls decoded frames from an appsink, maps
them and calls ``predict``; the pipeline ends in a fakesink. Rounds alternate, and the ratio is that of the medians.

    .venv/bin/python benchmarks/overhead.py VIDEO [--model nanodet-coco] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

import gstinfer
from gstinfer.hosts import select


class Stream:
    stream_id, source, component_id, sequence = "bench", "", 15, 0


def bare(video: str, model) -> float:
    from gi.repository import Gst

    pipeline = Gst.parse_launch(
        f"filesrc location=\"{video}\" ! decodebin ! videoconvert ! video/x-raw,format=I420 ! "
        "appsink name=sink sync=false max-buffers=2"
    )
    sink = pipeline.get_by_name("sink")
    pipeline.set_state(Gst.State.PLAYING)
    host, frames, began = None, 0, 0.0
    while (sample := sink.emit("pull-sample")) is not None:
        host = host or select(sample.get_caps(), Stream())
        buffer = sample.get_buffer()
        with host.open(buffer) as batch:
            model.loaded.predict(batch)
        frames += 1
        began = began or time.perf_counter()
    elapsed = time.perf_counter() - began
    pipeline.set_state(Gst.State.NULL)
    return (frames - 1) / elapsed


def element(video: str, spec: str) -> float:
    from gi.repository import Gst

    pipeline = Gst.parse_launch(
        f"filesrc location=\"{video}\" ! decodebin ! videoconvert ! video/x-raw,format=I420 ! queue max-size-buffers=2 ! "
        f"pyinfer model={spec} ! fakesink name=sink sync=false"
    )
    times: list[float] = []

    def probe(pad, info):
        times.append(time.perf_counter())
        return Gst.PadProbeReturn.OK

    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_bus().timed_pop_filtered(600 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    return (len(times) - 1) / (times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("video")
    parser.add_argument("--model", default="nanodet-coco")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    gstinfer.register()
    model = gstinfer.as_model(options.model)
    rates: dict[str, list[float]] = {"bare": [], "pyinfer": []}
    for number in range(options.rounds):
        rates["bare"].append(bare(options.video, model))
        rates["pyinfer"].append(element(options.video, options.model))
        print(f"round {number}: bare {rates['bare'][-1]:.1f} fps, pyinfer {rates['pyinfer'][-1]:.1f} fps")
    bare_fps, element_fps = (statistics.median(rates[k]) for k in ("bare", "pyinfer"))
    print(f"median: bare {bare_fps:.1f} fps, pyinfer {element_fps:.1f} fps, ratio {element_fps / bare_fps:.3f} (budget 0.97)")


if __name__ == "__main__":
    main()
