"""Pixels of one picture: planes in memory, their format, colour description and device."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError
from gstinfer.geometry import Region

__all__ = ["FORMATS", "ColorInfo", "Device", "Image", "PixelFormat"]


@dataclass(frozen=True)
class Device:
    """Where pixels lie or a model runs: ``cpu`` or ``cuda:N``."""

    kind: str = "cpu"
    index: int = 0

    @classmethod
    def parse(cls, text: str | Device) -> Device:
        """Reads ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

        Raises:
            ConfigError: The text names no device.
        """
        if isinstance(text, Device):
            return text
        match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", text.strip().lower())
        if match is None or (match[1] == "cpu" and match[2]):
            raise ConfigError(f"unknown device {text!r}", hint="use auto, cpu, cuda or cuda:N")
        return cls(match[1], int(match[2] or 0))

    @property
    def is_cuda(self) -> bool:
        return self.kind == "cuda"

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.is_cuda else "cpu"


@dataclass(frozen=True)
class ColorInfo:
    """Matrix and range of YUV pixels.

    Attributes:
        matrix: ``"bt601"``, ``"bt709"``, ``"bt2020"`` or ``"rgb"``.
        full_range: True where luma and chroma use 0..255, False for 16..235 and 16..240.
    """

    matrix: str = "bt601"
    full_range: bool = False


@dataclass(frozen=True)
class PixelFormat:
    """Memory layout of a raw video format, by GStreamer's name.

    Attributes:
        name: GStreamer's name, such as ``"NV12"``.
        kind: ``"packed"`` (one H x W x C plane), ``"gray"`` (H x W), ``"nv"`` (Y and interleaved chroma) or
            ``"planar"`` (Y, U and V).
        order: For packed formats the channel letters in memory order; for chroma the order of U and V.
        subsampling: Pixels (across, down) that share one chroma sample.
        depth: Bits of a sample; more than 8 lie in 16-bit words of little-endian order.
        shift: Unused bits below the sample in such a word.
        packing: Letters of a group in memory where Y, U and V alternate in one plane, such as ``"YUYV"``; else empty.
    """

    name: str
    kind: str
    order: str
    subsampling: tuple[int, int] = (2, 2)
    depth: int = 8
    shift: int = 0
    packing: str = ""

    @property
    def is_yuv(self) -> bool:
        return self.kind in ("nv", "planar")

    @property
    def is_plain(self) -> bool:
        """Whether samples are bytes and chroma, if any, is halved both ways: what is read and drawn on without a detour."""
        return self.depth == 8 and not self.packing and (not self.is_yuv or self.subsampling == (2, 2))

    @property
    def dtype(self) -> str:
        """NumPy name of a sample's type."""
        return "uint8" if self.depth == 8 else "uint16"

    @property
    def to_byte(self) -> float:
        """Factor from a sample to 0..255."""
        return float(2.0 ** (8 - self.depth - self.shift))

    def plane_shapes(self, width: int, height: int) -> list[tuple[int, ...]]:
        """Shapes of the planes in pixels, chroma rounded up at odd sizes."""
        across, down = self.subsampling
        chroma = (-(-height // down), -(-width // across))
        if self.kind == "packed":
            return [(height, width, len(self.order))]
        if self.kind == "gray":
            return [(height, width)]
        if self.kind == "nv":
            return [(height, width), (*chroma, 2)]
        return [(height, width), chroma, chroma]

    @property
    def places(self) -> list[tuple[int, int, int, int]]:
        """Of each plane: its memory plane, its first byte there, and bytes from pixel to pixel and to channel."""
        if self.packing:
            luma = self.packing.index("Y")
            return [(0, luma, 2, 1), (0, 1 - luma, 4, 2)]
        size = 1 if self.depth == 8 else 2
        channels = {"packed": [len(self.order)], "gray": [1], "nv": [1, 2], "planar": [1, 1, 1]}[self.kind]
        return [(number, 0, count * size, size) for number, count in enumerate(channels)]


FORMATS: dict[str, PixelFormat] = {
    f.name: f
    for f in (
        PixelFormat("RGB", "packed", "RGB"),
        PixelFormat("BGR", "packed", "BGR"),
        PixelFormat("RGBA", "packed", "RGBA"),
        PixelFormat("BGRA", "packed", "BGRA"),
        PixelFormat("RGBx", "packed", "RGBx"),
        PixelFormat("BGRx", "packed", "BGRx"),
        PixelFormat("GRAY8", "gray", "Y"),
        PixelFormat("NV12", "nv", "UV"),
        PixelFormat("I420", "planar", "UV"),
        PixelFormat("YV12", "planar", "VU"),
        PixelFormat("NV21", "nv", "VU"),
        PixelFormat("YUY2", "nv", "UV", (2, 1), packing="YUYV"),
        PixelFormat("UYVY", "nv", "UV", (2, 1), packing="UYVY"),
        PixelFormat("YVYU", "nv", "VU", (2, 1), packing="YVYU"),
        PixelFormat("Y42B", "planar", "UV", (2, 1)),
        PixelFormat("Y444", "planar", "UV", (1, 1)),
        PixelFormat("P010_10LE", "nv", "UV", depth=10, shift=6),
        PixelFormat("I420_10LE", "planar", "UV", depth=10),
        PixelFormat("I422_10LE", "planar", "UV", (2, 1), depth=10),
        PixelFormat("Y444_10LE", "planar", "UV", (1, 1), depth=10),
    )
}
"""What the CPU reads in place, by name."""


@dataclass
class Image:
    """One picture as planes, in place: nothing is copied to make one.

    Attributes:
        format: GStreamer's name of the layout, a key of ``FORMATS``.
        planes: One array per plane, shaped as ``PixelFormat.plane_shapes`` says, with any strides, of uint8 (uint16 where a
            sample has more than 8 bits): NumPy views on the CPU, objects with ``__cuda_array_interface__`` on a GPU.
        width: Pixels.
        height: Pixels.
        color: Matrix and range; ignored for RGB formats.
        device: Where the planes lie.
        region: None, or which rectangle of a larger picture this one is; the planes are then the larger picture's, and
            ``width`` and ``height`` the rectangle's. ``preprocess`` reads such pictures like any other.
    """

    format: str
    planes: tuple[Any, ...]
    width: int
    height: int
    color: ColorInfo = field(default_factory=ColorInfo)
    device: Device = field(default_factory=Device)
    region: Region | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigError(f"pixel format {self.format!r} is not supported", hint=f"use one of {', '.join(FORMATS)}")

    @property
    def layout(self) -> PixelFormat:
        return FORMATS[self.format]

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.width, self.height

    def crop(self, origin: tuple[float, float], size: tuple[int, int], angle: float = 0.0) -> Image:
        """A rectangle of this picture as a picture; no pixel is copied.

        Args:
            origin: Its top left, before it is turned.
            size: Its (width, height), at least one pixel each.
            angle: Its rotation around its centre, radians.

        Raises:
            ConfigError: An empty rectangle, or a crop of a crop.
        """
        if self.region is not None or min(size) < 1:
            raise ConfigError(f"cannot crop {size[0]}x{size[1]} at {origin} out of {self.width}x{self.height}")
        return replace(self, width=size[0], height=size[1], region=Region(self.size, origin, size, angle))

    @classmethod
    def from_array(cls, array: Any, color: str = "rgb") -> Image:
        """Wraps a uint8 array of H x W x 3, H x W x 4 or H x W.

        Args:
            array: The pixels; not copied.
            color: Channel order, ``"rgb"`` or ``"bgr"``.

        Raises:
            ConfigError: Another dtype, shape or channel order.
        """
        array = np.asarray(array)
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or 0 in array.shape:
            raise ConfigError(
                f"a picture must be uint8 of H x W x 3, H x W x 4 or H x W, got {array.dtype} {array.shape}"
            )
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[..., 0]
        height, width = array.shape[:2]
        if array.ndim == 2:
            return cls("GRAY8", (array,), width, height)
        name = {("rgb", 3): "RGB", ("bgr", 3): "BGR", ("rgb", 4): "RGBA", ("bgr", 4): "BGRA"}.get(
            (color.lower(), array.shape[2])
        )
        if name is None:
            raise ConfigError(
                f"a picture of {array.shape[2]} channels in {color!r} order is not supported", hint="use rgb or bgr"
            )
        return cls(name, (array,), width, height)
