"""A frame is one picture of one stream; a batch is an ordered tuple of frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.image import Device, Image
from gstinfer.preprocess import Preprocessing, prepare, to_array
from gstinfer.results import FrameResults

__all__ = ["DropFrame", "Flushed", "Frame", "FrameBatch"]


class DropFrame(Exception):
    """The batch is to be left out of the stream; no error."""


class Flushed(Exception):
    """A waiting frame was released because its stream is flushed or stopped; no error."""


@dataclass
class Frame:
    """One picture of one stream.

    Attributes:
        image: The pixels; valid until the stage or ``predict`` returns.
        stream_id: Which stream, set once at the pad or by the muxer.
        pts: Presentation time of the buffer in ns, or None.
        sequence: Number of the frame in its stream, from 0.
        time: UTC capture time in ns since the epoch, or None where none is known.
        results: What is known about the frame; stages replace or extend it.
        source: Where the stream comes from, for people; may be empty.
    """

    image: Image
    stream_id: str = "0"
    pts: int | None = None
    sequence: int = 0
    time: int | None = None
    results: FrameResults = field(default_factory=FrameResults)
    source: str = ""

    @property
    def width(self) -> int:
        return self.image.width

    @property
    def height(self) -> int:
        return self.image.height


@dataclass(frozen=True)
class FrameBatch:
    """Frames in order; what ``Model.predict`` receives. The arrays it gives are valid until ``predict`` returns."""

    frames: tuple[Frame, ...]

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[Frame]:
        return iter(self.frames)

    def __getitem__(self, index: int) -> Frame:
        return self.frames[index]

    @classmethod
    def of(cls, pictures: Any, color: str = "rgb") -> FrameBatch:
        """A batch of frames, images or uint8 arrays, or of one of them.

        Raises:
            ConfigError: Something that is no picture.
        """
        if isinstance(pictures, FrameBatch):
            return pictures
        if isinstance(pictures, (Frame, Image)) or (isinstance(pictures, np.ndarray) and pictures.ndim != 4):
            pictures = [pictures]
        frames = []
        for number, item in enumerate(pictures):
            if isinstance(item, Frame):
                frames.append(item)
            elif isinstance(item, Image):
                frames.append(Frame(item, sequence=number))
            else:
                try:
                    frames.append(Frame(Image.from_array(item, color), sequence=number))
                except ConfigError as error:
                    raise ConfigError(f"picture {number} of the batch: {error.message}", hint=error.hint) from error
        return cls(tuple(frames))

    @property
    def device(self) -> Device:
        return self.frames[0].image.device if self.frames else Device()

    def images(self, color: str = "rgb") -> list[NDArray[np.uint8]]:
        """H x W x 3 (``"rgb"``, ``"bgr"``) or H x W (``"gray"``) uint8 arrays in host memory."""
        return [to_array(frame.image, color) for frame in self.frames]

    def tensors(self, color: str = "rgb") -> list[Any]:
        """H x W x 3 uint8 arrays on the frames' own device, with ``__dlpack__``."""
        if self.device.is_cuda:
            from gstinfer.preprocess import cuda

            return [cuda.to_tensor(frame.image, color) for frame in self.frames]
        return list(self.images(color))

    def letterbox(
        self,
        size: int | tuple[int, int],
        dtype: str = "float32",
        scale: float = 1 / 255,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        *,
        color: str = "rgb",
        resize: str = "letterbox",
        pad_value: int = 114,
    ) -> tuple[Any, list[ImageTransform]]:
        """One NCHW array for the whole batch on the frames' own device, and one transform per frame.

        Args:
            size: Side of a square input, or (width, height).
            dtype: ``"float32"`` or ``"float16"``.
            scale: Factor on 0..255 pixels.
            mean: Subtracted after scaling, one value or one per channel.
            std: Divided by after that, one value or one per channel.
            color: ``"rgb"`` or ``"bgr"``.
            resize: ``"letterbox"``, ``"letterbox-topleft"``, ``"stretch"`` or ``"crop"``.
            pad_value: Grey level of the padding.
        """
        side = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        spec = Preprocessing(side, resize, pad_value, color, scale, tuple(mean), tuple(std), "NCHW", dtype)
        return prepare([frame.image for frame in self.frames], spec)
