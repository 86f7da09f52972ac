"""pyservicemaker's Pipeline API with pyinfer in nvinfer's place, and an operator behind it that reads the objects.

    python3 pipeline_api.py /path/to/video.mp4 yolo26s.engine
"""

import sys
from collections import Counter

from pyservicemaker import BatchMetadataOperator, Pipeline, Probe

import gstinfer


class CountObjects(BatchMetadataOperator):
    """Prints how many objects of each label a frame has. Values are copied inside the loop: the items are re-used."""

    def handle_metadata(self, batch_meta):
        for frame in batch_meta.frame_items:
            counts = Counter(obj.label for obj in frame.object_items)
            print(f"source {frame.source_id} frame {frame.frame_number}: {dict(counts)}")


def main(video: str, model: str) -> None:
    gstinfer.register()
    pipeline = Pipeline("pyinfer")
    pipeline.add("nvurisrcbin", "source", {"uri": f"file://{video}"})
    pipeline.add("nvstreammux", "mux", {"batch-size": 1, "width": 1280, "height": 720, "batched-push-timeout": 33000})
    pipeline.add("pyinfer", "infer", {"model": model, "confidence-threshold": 0.25})
    pipeline.add("nvdsosd", "display", {})
    pipeline.add("fakesink", "sink", {"sync": False})
    pipeline.link(("source", "mux"), ("", "sink_%u")).link("mux", "infer", "display", "sink")
    pipeline.attach("infer", Probe("counter", CountObjects()))
    pipeline.start().wait()


if __name__ == "__main__":
    main(*sys.argv[1:3])
