"""Which decoder a stream gets, and how its frames come to the device that the model runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gstinfer.image import Device

__all__ = ["CUDA", "TURN", "UPRIGHT", "Decoder", "Pixels", "Way", "decoders_to_try", "nvdec_number", "surfaces", "way"]

CUDA = "memory:CUDAMemory"
"""The caps feature of frames on a GPU."""

NVDEC_CODECS = ("video/x-h264", "video/x-h265", "video/x-vp8", "video/x-vp9", "video/x-av1", "video/mpeg")
"""What is left to NVDEC. JPEG is not: its full-range colours and 4:2:2 come out wrong or not at all."""

UPRIGHT = "rotate-0"
"""The tag ``image-orientation`` of pictures that need not be turned."""

TURN: tuple[tuple[str, Mapping[str, Any]], ...] = (("videoconvert", {}), ("videoflip", {"video_direction": "auto"}))
"""Elements that bring pictures in system memory upright, by their own tags."""

NVDEC_NAME = re.compile(r"nv[a-z0-9]+?(?:device(\d+))?dec")


MOST_SURFACES, PASSING = 64, 8
"""What nvcodec allows, and frames that are in somebody's hands or wait to be drawn."""


@dataclass(frozen=True)
class Decoder:
    """A decoder that GStreamer has for a stream.

    Attributes:
        name: Of its factory.
        gpu: Number of the GPU whose NVDEC it is, or None.
    """

    name: str
    gpu: int | None = None


@dataclass(frozen=True)
class Pixels:
    """What comes out of a decoder or a source.

    Attributes:
        on_gpu: Whether it lies in CUDA memory.
        readable: Whether pyinfer reads it in CUDA memory.
        format: GStreamer's name of the pixel format.
        codec: Caps name of what was decoded, such as ``video/x-h264``; empty for sources that need no decoder.
        orientation: The tag ``image-orientation``; ``UPRIGHT`` where there is none.
    """

    on_gpu: bool
    readable: bool = True
    format: str = "NV12"
    codec: str = ""
    orientation: str = UPRIGHT


@dataclass(frozen=True)
class Way:
    """Elements between decoder and model.

    Attributes:
        elements: Factories in order, with their properties.
        warning: What it costs, or empty.
    """

    elements: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    warning: str = ""


def nvdec_number(factory: str) -> int | None:
    """The GPU that a factory's name speaks of: 0 for ``nvh264dec``, 1 for ``nvh264device1dec``; None for other names."""
    match = NVDEC_NAME.fullmatch(factory)
    return None if match is None else int(match[1] or 0)


def decoders_to_try(codec: str, found: Sequence[Decoder], device: Device, nvdec: bool = True) -> tuple[str, ...]:
    """Names of the decoders that may decode a stream.

    The NVDEC of the stream's own GPU where it takes the stream, and then no other; else whatever is no NVDEC.

    Args:
        codec: Caps name of the stream.
        found: Those that take the stream.
        device: Where the model runs.
        nvdec: Whether NVDEC may be used at all.
    """
    own = [d.name for d in found if nvdec and device.is_cuda and d.gpu == device.index and codec in NVDEC_CODECS]
    return tuple(own or (d.name for d in found if d.gpu is None))


def surfaces(held: int) -> int:
    """Frames that a decoder which hands out its own surfaces must have.

    Args:
        held: Most frames that wait for the model or in it.
    """
    return min(MOST_SURFACES, held + PASSING)


def way(device: Device, pixels: Pixels) -> Way:
    """How decoded frames come into the memory of a GPU, as upright pictures in a format that is read there.

    Args:
        device: A GPU.
        pixels: What the decoder gives.
    """
    upload = (
        ("cudaupload", {"cuda_device_id": device.index}),
        # Without it both ends might settle on system memory.
        ("capsfilter", {"caps": f"video/x-raw({CUDA})"}),
    )
    if not pixels.on_gpu:
        reason = f"{device} has no decoder for {pixels.codec}" if pixels.codec else "its frames are made on the CPU"
        if pixels.codec and pixels.codec not in NVDEC_CODECS:
            reason = f"{pixels.codec} is decoded on the CPU"
        return Way((*TURN, *upload), f"{reason}; each frame is copied to {device}")
    turned = pixels.orientation != UPRIGHT
    if not turned and pixels.readable:
        return Way()
    what = f"turned ({pixels.orientation})" if turned else f"converted from {pixels.format}"
    download = (
        ("cudadownload", {"cuda_device_id": device.index}),
        ("capsfilter", {"caps": "video/x-raw"}),
    )
    return Way(
        (*download, *TURN, *upload),
        f"its pictures are {what} on the CPU: each frame is copied from {device} and back",
    )
