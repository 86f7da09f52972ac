# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's elements by their stand-ins, so that the examples run as they are written.

As a script it takes gst-launch-1.0's place: what is not in the stand-in is dropped, decoded frames are converted in front of
the muxer, and everything else is left as the example has it.
"""

from __future__ import annotations

import sys

ELEMENTS = {
    "nvstreammux": "standinmux",
    "nvurisrcbin": "uridecodebin",
    "nvtracker": "standintracker",
    "nvdsosd": "standinosd",
    "nvmsgconv": "standinmsgconv",
    "nvmsgbroker": "fakesink",
    "nveglglessink": "fakesink",
    "nvmultistreamtiler": "identity",
    "nvvideoconvert": "identity",
}
KEPT = {"name", "sync", "uri", "batch-size", "width", "height"}
"""Properties that both have."""


def translated(element: str, settings: dict) -> tuple[str, dict]:
    """The stand-in of an element, with the settings that it knows."""
    if element not in ELEMENTS:
        return element, settings
    known = KEPT if element == "nvstreammux" else KEPT - {"width", "height"}
    return ELEMENTS[element], {name: value for name, value in settings.items() if name in known}


def launch_line(arguments: list[str]) -> str:
    """gst-launch-1.0's arguments as a description of the stand-in's pipeline."""
    form = "RGB" if any("format=RGB" in word for word in arguments) else "NV12"
    words: list[str] = []
    element = ""
    for word in arguments:
        if word in ("-v", "-q", "-e"):
            continue
        if word.startswith("m.sink_"):
            word = f"videoconvert ! video/x-raw,format={form} ! {word}"
        elif "=" in word and not word.startswith("video/x-raw"):
            name, value = word.split("=", 1)
            if name not in translated(element, {name: value})[1]:
                continue
        elif word != "!" and "=" not in word and not word.endswith("."):
            element, word = word, translated(word, {})[0]
        words.append(word)
    return " ".join(words)


def main() -> None:
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import Gst

    import gstinfer

    Gst.init(None)
    gstinfer.register()
    pipeline = Gst.parse_launch(launch_line(sys.argv[1:]))
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(60 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message is None or message.type == Gst.MessageType.ERROR:
        sys.exit("no end" if message is None else str(message.parse_error()))


if __name__ == "__main__":
    main()
