"""pyservicemaker's Flow: captured files in a batch, pyinfer in the middle, an operator behind it.

Flow has methods for NVIDIA's own elements; any other joins its pipeline and is linked to the stream so far.

    python3 flow_api.py yolo26s.engine /path/to/video1.mp4 [/path/to/video2.mp4 ...]
"""

import sys

from pipeline_api import CountObjects
from pyservicemaker import Flow, Pipeline, Probe

import gstinfer


def main(model: str, videos: list[str]) -> None:
    gstinfer.register()
    pipeline = Pipeline("pyinfer-flow")
    flow = Flow(pipeline).batch_capture([f"file://{video}" for video in videos])
    # The flow's last element is what it would link next; pyinfer takes that place.
    streams = getattr(flow, "_streams", None)
    if not streams:
        raise SystemExit("this pyservicemaker does not tell the end of its flow: use pipeline_api.py")
    last = getattr(streams[0], "originator", streams[0])
    pipeline.add("pyinfer", "infer", {"model": model})
    pipeline.add("fakesink", "sink", {"sync": False})
    pipeline.link(last, "infer", "sink")
    pipeline.attach("infer", Probe("counter", CountObjects()))
    pipeline.start().wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
