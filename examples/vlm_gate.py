"""Asks a vision-language model about each second of a video, and prints its answers as they come.

    python examples/vlm_gate.py VIDEO MODEL [PROMPT]

MODEL is what ``pyvlm`` takes, such as ``openai:http://127.0.0.1:8000/v1#Qwen3-VL-8B``.
"""

from __future__ import annotations

import sys

import gstinfer


def main(video: str, model: str, prompt: str = "What happens? Answer in one sentence.") -> int:
    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(
        "filesrc name=file ! decodebin ! videoconvert ! pyvlm name=vlm segment=1 fps=2 on-full=wait ! fakesink"
    )
    pipeline.get_by_name("file").set_property("location", video)
    vlm = pipeline.get_by_name("vlm")
    vlm.set_property("model", model)
    vlm.set_property("prompt", prompt)
    vlm.connect("result", lambda element, stream, start, end, text: print(f"{start / 1e9:.1f}-{end / 1e9:.1f} s: {text}"))
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    failed = message.type == Gst.MessageType.ERROR
    if failed:
        print(message.parse_error()[0].message, file=sys.stderr)
    pipeline.set_state(Gst.State.NULL)
    return int(failed)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
