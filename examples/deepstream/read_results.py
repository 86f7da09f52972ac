"""Reads every result in a pad probe behind pyinfer: objects, texts and keypoints, whoever wrote them.

    python3 read_results.py "LAUNCH DESCRIPTION WITH A pyinfer name=infer"
"""

import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst

import gstinfer


def show(pad, info):
    for frame in gstinfer.read_frames(info.get_buffer()):
        found = frame.detections
        print(f"stream {frame.stream_id}: inferred {frame.inferred}, {0 if found is None else len(found)} objects")
        for row in range(0 if found is None else len(found)):
            print("  ", found.label[row], round(float(found.confidence[row]), 2), found.xyxy[row].round(1).tolist())
        for text in frame.texts:
            print("  ", text.text)
    return Gst.PadProbeReturn.OK


def main(description: str) -> None:
    Gst.init(None)
    gstinfer.register()
    pipeline = Gst.parse_launch(description)
    pipeline.get_by_name("infer").get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, show)
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message.type == Gst.MessageType.ERROR:
        sys.exit(str(message.parse_error()[0]))


if __name__ == "__main__":
    main(sys.argv[1])
