"""The elements that decode a source, and name its frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gstinfer.app import pictures
from gstinfer.app.entry import Entry
from gstinfer.app.live import entry_queue
from gstinfer.app.pipeline import link, make
from gstinfer.app.placement import Pixels
from gstinfer.app.sources import STDIN, Facts, Source, stdin_is_file
from gstinfer.elements.compat import Gst
from gstinfer.errors import GstInferError

__all__ = ["build", "name_frames"]


def build(
    pipeline: Any,
    source: Source,
    nothing_found: Callable[[str], None],
    broken: Callable[[str], None],
    facts: Facts,
    entry: Entry,
) -> Any:
    """Adds the elements that decode a source; for an RTSP camera there is ``live.Connection``.

    Args:
        pipeline: The ``Gst.Pipeline``.
        source: What to decode.
        nothing_found: Told the reason, on a streaming thread, when decoding finds no video.
        broken: Told ``FILE: REASON``, on a streaming thread, of each of several pictures that cannot be read.
        facts: What is known of it.
        entry: Chooses its decoder.

    Returns:
        The last element; raw video of any format comes out of it, in the memory that ``entry.on_gpu`` says.
    """
    queue = entry_queue(pipeline, source.live)
    options = dict(source.options)
    if source.kind == "pictures":
        feeder = pictures.Feeder(pipeline, source.files, options.get("fps", pictures.FPS), broken)
        link(feeder.element, *entry.elements(pipeline, Pixels(False)), queue)
        return queue
    if source.kind == "test":
        test = make(
            pipeline, "videotestsrc",
            pattern=source.target, num_buffers=options.get("frames", -1), is_live=source.live,
        )  # fmt: skip
        size = f"width={options.get('width', 640)},height={options.get('height', 480)}"
        caps = make(pipeline, "capsfilter", caps=f"video/x-raw,{size},framerate={options.get('fps', 30)}/1")
        link(test, caps, *entry.elements(pipeline, Pixels(False)), queue)
        return queue
    if source.kind == "camera":
        wished = "".join(f",{key}={options[key]}" for key in ("width", "height") if key in options)
        wished += f",framerate={options['fps']}/1" if "fps" in options else ""
        kinds = "; ".join(f"{kind}{wished}" for kind in ("video/x-raw", "image/jpeg", "video/x-h264"))
        start = [make(pipeline, "v4l2src", device=source.target), make(pipeline, "capsfilter", caps=kinds)]
    elif source.kind == "stdin" and not stdin_is_file():
        start = [make(pipeline, "fdsrc", fd=0)]
    else:
        start = [make(pipeline, "filesrc", location=STDIN if source.kind == "stdin" else source.target)]
    decoder = make(pipeline, "decodebin")
    sink = queue.get_static_pad("sink")
    given = f"video/x-raw,colorimetry=(string){facts.colorimetry}" if facts.colorimetry else ""
    setter = make(pipeline, "capssetter", caps=given) if given else None

    failures: list[str] = []

    def pad_added(_: Any, pad: Any) -> None:
        caps = pad.get_current_caps() or pad.query_caps(None)
        if not caps.to_string().startswith("video/x-raw") or sink.is_linked():
            return
        try:
            entry.bring(pipeline, pad, caps, setter).link(sink)
        except GstInferError as error:
            failures.append(str(error))

    def no_more_pads(_: Any) -> None:
        if not sink.is_linked():
            nothing_found(failures[0] if failures else "it has no video stream")

    # Sound is not decoded: its pad comes out encoded, and stays unlinked.
    decoder.connect("autoplug-continue", lambda _, pad, caps: not caps.to_string().startswith("audio/"))
    decoder.connect("pad-added", pad_added)
    decoder.connect("no-more-pads", no_more_pads)
    entry.watch(decoder)
    link(*start, decoder)
    return queue


def name_frames(element: Any, source: Source) -> None:
    """Makes an element name each picture's own file as the frame's source."""
    element.source = source.text
    if source.kind != "pictures":
        return
    fps = dict(source.options).get("fps", pictures.FPS)

    def arrive(pad: Any, info: Any) -> Any:
        element.source = pictures.file_of(source.files, fps, info.get_buffer().pts)
        return Gst.PadProbeReturn.OK

    element.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, arrive)
