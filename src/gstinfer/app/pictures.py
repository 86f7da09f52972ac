"""Pictures as a stream: files that Pillow reads, upright, one frame each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.app.pipeline import make
from gstinfer.elements.compat import Gst
from gstinfer.errors import HostError

__all__ = ["FPS", "SUFFIXES", "Feeder", "file_of", "in_folder", "in_order", "is_picture", "open_picture"]

FPS = 25
"""Frames per second that pictures are numbered with, unless the user says otherwise."""

SUFFIXES = frozenset((".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
"""Of files that hold one picture."""

_STREAMS = frozenset((".mjpeg", ".mjpg"))
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def is_picture(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds a single picture: by its name, else by its first bytes."""
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES or suffix in _STREAMS:
        return suffix in SUFFIXES
    try:
        # A pipe would wait for a writer.
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(8).startswith(_MAGIC)
    except OSError:
        return False


def in_order(paths: Sequence[str]) -> list[str]:
    """Paths in the order of their names, numbers by value: ``2.jpg`` before ``10.jpg``."""
    return sorted(paths, key=lambda path: [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in _parts(path)])


def _parts(path: str) -> list[str]:
    return re.findall(r"[0-9]+|[^0-9]+", path)


def in_folder(folder: str) -> list[str]:
    """The pictures of a folder, in order; not those of folders in it, and no hidden ones."""
    try:
        names = [e.name for e in os.scandir(folder) if e.is_file() and not e.name.startswith(".")]
    except OSError:
        return []
    return in_order([path for path in (os.path.join(folder, name) for name in names) if is_picture(path)])


def open_picture(path: str) -> NDArray[np.uint8]:
    """A picture as H x W x 3 RGB, turned as its EXIF orientation says; of several in one file the first.

    Raises:
        HostError: It cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        if os.path.getsize(path) == 0:
            raise HostError("the file is empty (0 bytes)")
        with Image.open(path) as file:
            picture: Any = ImageOps.exif_transpose(file)
            if picture.mode.startswith("I"):
                # 16 bits a sample: Pillow's own conversion would saturate.
                deep = np.asarray(picture).astype(np.int64) >> 8
                return np.repeat(np.clip(deep, 0, 255).astype(np.uint8)[..., None], 3, -1)
            return np.asarray(picture.convert("RGB"))
    except HostError:
        raise
    except UnidentifiedImageError:
        raise HostError("it cannot be decoded: it is no picture that Pillow knows") from None
    except FileNotFoundError:
        raise HostError("no such file") from None
    except PermissionError:
        raise HostError("no permission to read it") from None
    except Exception as error:
        # A decoder of pictures meets broken data in many ways.
        raise HostError(f"it cannot be decoded: {error}") from error


def file_of(files: Sequence[str], fps: int, pts: int) -> str:
    """The file that a frame's PTS in ns says it comes from."""
    return files[min(len(files) - 1, round(pts * fps / Gst.SECOND))]


class Feeder:
    """Pushes pictures into a pipeline as fast as they are wanted; their size may change from one to the next.

    Args:
        pipeline: Where the element goes.
        files: In order.
        fps: Frames per second; the PTS of a frame is its number by this.
        broken: Told ``FILE: REASON``, on a streaming thread, of each picture that cannot be read; it is left out.

    Attributes:
        element: What frames come out of: RGB in system memory.
    """

    def __init__(self, pipeline: Any, files: Sequence[str], fps: int, broken: Callable[[str], None]) -> None:
        self.fps, self.broken = fps, broken
        self._left = iter(enumerate(files))
        self.element = make(pipeline, "appsrc", format="time", max_bytes=1)
        self.element.connect("need-data", self._push)

    def _push(self, element: Any, size: int) -> None:
        for number, pixels in self._pictures():
            height, width = pixels.shape[:2]
            row = (3 * width + 3) // 4 * 4
            memory = np.zeros((height, row), np.uint8)
            memory[:, : 3 * width] = pixels.reshape(height, -1)
            buffer = Gst.Buffer.new_wrapped(memory.tobytes())
            buffer.pts, next_pts = (n * Gst.SECOND // self.fps for n in (number, number + 1))
            buffer.duration = next_pts - buffer.pts
            caps = f"video/x-raw,format=RGB,width={width},height={height},framerate={self.fps}/1,pixel-aspect-ratio=1/1"
            element.set_property("caps", Gst.Caps.from_string(caps))
            element.emit("push-buffer", buffer)
            return
        element.emit("end-of-stream")

    def _pictures(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for number, path in self._left:
            try:
                yield number, open_picture(path)
            except HostError as error:
                self.broken(f"{path}: {error}")
