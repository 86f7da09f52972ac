"""What fixed caps say about raw video."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gstinfer.errors import ConfigError
from gstinfer.image import FORMATS, ColorInfo

__all__ = ["VideoFormat", "size_of"]

_log = logging.getLogger(__name__)
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
        if info is None or info.finfo.name == "ENCODED":
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
        modes, planes = GstVideo.VideoInterlaceMode, info.finfo.n_planes
        if info.interlace_mode == modes.ALTERNATE:
            raise ConfigError(
                "buffers hold one field each (interlace-mode=alternate)", hint="put deinterlace before this element"
            )
        found = cls(
            name,
            info.width,
            info.height,
            _color(info, caps),
            tuple(info.offset[:planes]),
            tuple(info.stride[:planes]),
            info.par_n / info.par_d if info.par_n and info.par_d else 1.0,
            info.interlace_mode != modes.PROGRESSIVE,
        )
        if found.interlaced:
            _say("frames are interlaced: moving things have combed edges for the model; put deinterlace before it")
        if found.pixel_aspect != 1:
            _say(
                f"pixels are not square ({info.par_n}/{info.par_d}): the model sees a squeezed picture; "
                "put videoscale ! video/x-raw,pixel-aspect-ratio=1/1 before it"
            )
        return found


@functools.cache
def _say(text: str) -> None:
    """Warns once in a process, as every element of a pipeline meets the same caps."""
    _log.warning(text)


def _structure(caps: Any) -> Any:
    structure = caps.get_structure(0)
    # A context manager from 1.26 on; the caps, which outlive this, own what it gives.
    return structure.__enter__() if hasattr(structure, "__enter__") else structure


def _color(info: Any, caps: Any) -> ColorInfo:
    """GStreamer's own default for caps without colorimetry and for an unknown matrix: BT.709 for more than 576 lines and
    BT.601 else. With an unknown matrix it forgets the range too, so that is read from the caps' text."""
    matrix = _MATRICES.get(info.colorimetry.matrix.value_nick)
    if matrix is None:
        matrix = "bt709" if info.height > 576 else "bt601"
    text = _structure(caps).get_string("colorimetry") or ""
    full = text.startswith("1:") or (not text.startswith("2:") and info.colorimetry.range.value_name.endswith("0_255"))
    return ColorInfo(matrix, full)


def size_of(caps: Any) -> tuple[tuple[int, int], float] | tuple[()]:
    """((width, height), pixel aspect) of fixed caps of any raw video; empty for other caps."""
    structure = _structure(caps)
    found, width = structure.get_int("width")
    found_too, height = structure.get_int("height")
    if not (found and found_too):
        return ()
    has_aspect, over, under = structure.get_fraction("pixel-aspect-ratio")
    return (width, height), over / under if has_aspect else 1.0
