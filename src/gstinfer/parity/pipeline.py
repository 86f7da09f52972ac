"""A video through the real elements: decoder, pyinfer, and what is on each buffer behind it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gstinfer
from gstinfer.app.sources import Source
from gstinfer.elements.compat import Gst
from gstinfer.errors import HostError
from gstinfer.hosts.system import SystemHost
from gstinfer.image import Image
from gstinfer.results import FrameResults

__all__ = ["Seen", "bgr_of", "frames", "opencv_frames"]

PATIENCE = 60
"""Seconds without a frame after which a pipeline counts as stuck; a model may take long to load."""


@dataclass
class Seen:
    """A buffer behind pyinfer; the picture is valid until the next one is asked for.

    Attributes:
        image: Its pixels.
        results: What pyinfer wrote on it.
    """

    image: Image
    results: FrameResults


@dataclass
class _Stream:
    stream_id: str = "parity"
    source: str = ""
    component_id: int = 15
    sequence: int = 0


def frames(source: Source, properties: Mapping[str, Any], *, format: str = "") -> Iterator[Seen]:
    """Every frame of a file or test picture as it comes out of pyinfer.

    Args:
        source: What to decode.
        properties: Of pyinfer, by name.
        format: Pixel format that frames are converted to before pyinfer; as they are decoded when empty.

    Raises:
        HostError: The pipeline failed; the text is the element's.
    """
    gstinfer.register()
    caps = f"video/x-raw,format={format}" if format else "video/x-raw"
    if source.kind == "test":
        options = dict(source.options)
        size = f"video/x-raw,width={options.get('width', 640)},height={options.get('height', 480)}"
        first = f"videotestsrc pattern={source.target} num-buffers={options.get('frames', 30)} ! {size}"
    else:
        first = "filesrc name=file ! decodebin"
    pipeline = Gst.parse_launch(
        f"{first} ! videoconvert ! videoflip video-direction=auto ! videoconvert ! {caps} ! pyinfer name=infer ! "
        "appsink name=sink sync=false max-buffers=2"
    )
    if source.kind != "test":
        pipeline.get_by_name("file").set_property("location", source.target)
    for name, value in properties.items():
        pipeline.get_by_name("infer").set_property(name.replace("_", "-"), value)
    with closing(_pulled(pipeline)) as pulled:
        yield from pulled


def _pulled(pipeline: Any) -> Generator[Seen]:
    sink, bus, waited = pipeline.get_by_name("sink"), pipeline.get_bus(), 0.0
    host: SystemHost | None = None
    pipeline.set_state(Gst.State.PLAYING)
    try:
        while True:
            sample = sink.emit("try-pull-sample", Gst.SECOND // 5)
            message = bus.pop_filtered(Gst.MessageType.ERROR)
            if message is not None:
                raise HostError(message.parse_error()[0].message)
            if sample is None:
                if sink.get_property("eos"):
                    return
                waited += 0.2
                if waited > PATIENCE:
                    raise HostError(f"no frame came for {PATIENCE} s")
                continue
            waited = 0.0
            host = host or SystemHost(sample.get_caps(), _Stream())
            buffer = sample.get_buffer()
            results = gstinfer.read(buffer)
            if results is None:
                raise HostError("a frame carries no results of pyinfer")
            with host.open(buffer) as batch:
                yield Seen(batch[0].image, results)
    finally:
        pipeline.set_state(Gst.State.NULL)


def opencv_frames(path: str) -> Iterator[NDArray[np.uint8]]:
    """BGR frames as ``cv2.VideoCapture`` gives them; none where it cannot open the file."""
    import cv2

    capture = cv2.VideoCapture(path)
    try:
        while True:
            more, frame = capture.read()
            if not more:
                return
            yield np.asarray(frame, np.uint8)
    finally:
        capture.release()


def bgr_of(image: Image) -> NDArray[np.uint8]:
    """A picture as BGR by OpenCV's own conversions, which know one matrix; others are converted by the package."""
    import cv2

    from gstinfer.preprocess import to_array

    planes = [np.ascontiguousarray(p) for p in image.planes]
    if image.width % 2 == 0 and image.height % 2 == 0 and image.format in ("I420", "NV12"):
        if image.format == "NV12":
            return np.asarray(cv2.cvtColorTwoPlane(planes[0], planes[1], cv2.COLOR_YUV2BGR_NV12), np.uint8)
        joined = np.concatenate([p.reshape(-1) for p in planes]).reshape(-1, image.width)
        return np.asarray(cv2.cvtColor(joined, cv2.COLOR_YUV2BGR_I420), np.uint8)
    if image.format == "RGB":
        return np.asarray(cv2.cvtColor(planes[0], cv2.COLOR_RGB2BGR), np.uint8)
    return np.ascontiguousarray(to_array(image, "bgr"))
