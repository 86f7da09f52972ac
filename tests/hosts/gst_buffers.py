"""Real GStreamer buffers for the tests of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gi
import numpy as np

gi.require_version("Gst", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import Gst, GstVideo

from gstinfer.image import FORMATS

Gst.init(None)


@dataclass
class Stream:
    """What an element tells its host."""

    stream_id: str = "door"
    source: str = "door.mp4"
    component_id: int = 15
    sequence: int = 0


def caps_for(format: str, width: int, height: int, more: str = "") -> Any:
    return Gst.Caps.from_string(f"video/x-raw,format={format},width={width},height={height},framerate=30/1{more}")


def pattern(format: str, width: int, height: int) -> list[np.ndarray]:
    """Planes where every pixel and channel has a value that a wrong stride or offset would move."""
    planes = []
    for number, shape in enumerate(FORMATS[format].plane_shapes(width, height)):
        y, x = np.mgrid[: shape[0], : shape[1]]
        channels = [x, y, np.full_like(x, 7), x + y][: shape[2] if len(shape) == 3 else 1]
        plane = (np.stack(channels, -1) + 31 * number).astype(np.uint8)
        plane = plane if len(shape) == 3 else plane[..., 0]
        layout = FORMATS[format]
        if layout.depth > 8:
            plane = (plane.astype(np.uint16) * 4 + 3) << layout.shift
        planes.append(plane)
    return planes


def memory_planes(format: str, planes: list[np.ndarray]) -> list[np.ndarray]:
    """Planes as they lie in memory, as bytes: Y, U and V of YUY2 and its like alternate in one."""
    packing = FORMATS[format].packing
    if not packing:
        return [p.reshape(len(p), -1).view(np.uint8) for p in planes]
    groups = np.zeros((*planes[1].shape[:2], 4), np.uint8)
    odd = planes[0].shape[1] % 2
    luma = np.pad(planes[0], ((0, 0), (0, odd))).reshape(len(planes[0]), -1, 2)
    first = packing.index("Y")
    groups[..., first], groups[..., first + 2] = luma[..., 0], luma[..., 1]
    groups[..., 1 - first], groups[..., 3 - first] = planes[1][..., 0], planes[1][..., 1]
    return [groups.reshape(len(groups), -1)]


def make_buffer(
    planes: list[np.ndarray], offsets: list[int], strides: list[int], size: int, filler: int = 0xEE
) -> Any:
    """A buffer of these planes; whatever lies between rows is filler."""
    memory = np.full(size, filler, np.uint8)
    for plane, offset, stride in zip(planes, offsets, strides):
        row = plane.reshape(plane.shape[0], -1)
        for number, line in enumerate(row):
            start = offset + number * stride
            memory[start : start + line.size] = line
    return Gst.Buffer.new_wrapped(memory.tobytes())


def default_layout(caps: Any) -> tuple[list[int], list[int], int]:
    info = GstVideo.VideoInfo.new_from_caps(caps)
    planes = info.finfo.n_planes
    return list(info.offset[:planes]), list(info.stride[:planes]), info.size


def blank(caps: Any, value: int = 100) -> Any:
    return Gst.Buffer.new_wrapped(bytes([value]) * default_layout(caps)[2])
