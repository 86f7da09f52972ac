"""What fixed caps say about raw video."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gstinfer.errors import ConfigError
from gstinfer.image import FORMATS, ColorInfo

__all__ = ["VideoFormat", "size_of"]

# FCC and SMPTE 240M differ from their neighbours by less than two grey levels.
_MATRICES = {"bt601": "bt601", "fcc": "bt601", "bt709": "bt709", "smpte240m": "bt709", "bt2020": "bt2020", "rgb": "rgb"}


@dataclass(frozen=True)
class VideoFormat:
    """Raw video under fixed caps.

    Attributes:
        name: GStreamer's name of the format.
        width: Pixels.
        height: Pixels.
        color: Matrix and range.
        offsets: Bytes from the start of the buffer to each plane, where the buffer has no ``GstVideoMeta``.
        strides: Bytes from row to row of each plane, likewise.
        pixel_aspect: Width of a pixel by its height.
        interlaced: Whether frames hold two fields.
    """

    name: str
    width: int
    height: int
    color: ColorInfo
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    pixel_aspect: float = 1.0
    interlaced: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.width, self.height

    @classmethod
    def of(cls, caps: Any, formats: Collection[str] = FORMATS) -> VideoFormat:
        """Reads fixed ``Gst.Caps``.

        Raises:
            ConfigError: They are not raw video of one of ``formats``.
        """
        import gi

        gi.require_version("GstVideo", "1.0")
        from gi.repository import GstVideo

        try:
            info = GstVideo.VideoInfo.new_from_caps(caps)
        except TypeError:
            info = None
        if info is None:
            raise ConfigError(
                f"not raw video with a size and a format: {caps.to_string()}",
                hint="decode and convert before this element: decodebin ! videoconvert",
            )
        name = info.finfo.name
        if name not in formats:
            raise ConfigError(
                f"pixel format {name} is not read in place; supported: {', '.join(formats)}",
                hint="put videoconvert before this element",
            )
        planes = info.finfo.n_planes
        return cls(
            name,
            info.width,
            info.height,
            _color(info, GstVideo),
            tuple(info.offset[:planes]),
            tuple(info.stride[:planes]),
            info.par_n / info.par_d if info.par_n and info.par_d else 1.0,
            info.interlace_mode != GstVideo.VideoInterlaceMode.PROGRESSIVE,
        )


def _color(info: Any, video: Any) -> ColorInfo:
    """Caps without colorimetry have GStreamer's default already, BT.709 for more than 576 lines and BT.601 else; an
    unknown matrix gets the same."""
    matrix = _MATRICES.get(info.colorimetry.matrix.value_nick)
    if matrix is None:
        matrix = "bt709" if info.height > 576 else "bt601"
    return ColorInfo(matrix, info.colorimetry.range == getattr(video.VideoColorRange, "0_255"))


def size_of(caps: Any) -> tuple[tuple[int, int], float] | tuple[()]:
    """((width, height), pixel aspect) of fixed caps of any raw video; empty for other caps."""
    structure = caps.get_structure(0)
    structure = structure.__enter__() if hasattr(structure, "__enter__") else structure
    found, width = structure.get_int("width")
    found_too, height = structure.get_int("height")
    if not (found and found_too):
        return ()
    has_aspect, over, under = structure.get_fraction("pixel-aspect-ratio")
    return (width, height), over / under if has_aspect else 1.0
