"""Any Python model as a GStreamer element."""

from __future__ import annotations

from typing import Any

from gstinfer import unwinder

# Before NumPy and GStreamer: see the module.
unwinder.preload()

from gstinfer.errors import (
    ConfigError,
    GstInferError,
    HostError,
    MissingDependencyError,
    ModelError,
    ModelLoadError,
    PredictError,
    PublishError,
    ResultError,
    UnknownNameError,
)
from gstinfer.frames import Frame, FrameBatch
from gstinfer.geometry import ImageTransform
from gstinfer.image import ColorInfo, Device, Image
from gstinfer.model import Model, as_model
from gstinfer.results import (
    Attribute,
    Classifications,
    Detections,
    FrameResults,
    Mask,
    SegmentationMap,
    Tensors,
    Text,
)
from gstinfer.settings import option

__version__ = "0.1.0"

__all__ = [
    "Attribute",
    "Classifications",
    "ColorInfo",
    "ConfigError",
    "Detections",
    "Device",
    "Frame",
    "FrameBatch",
    "FrameResults",
    "GstInferError",
    "HostError",
    "Image",
    "ImageTransform",
    "Mask",
    "MissingDependencyError",
    "Model",
    "ModelError",
    "ModelLoadError",
    "PredictError",
    "PublishError",
    "ResultError",
    "SegmentationMap",
    "Tensors",
    "Text",
    "UnknownNameError",
    "as_model",
    "element",
    "option",
    "read",
    "read_frames",
    "register",
]


def register() -> None:
    """Makes the elements known to this process, with no plugin loader and no registry; repeated calls do nothing."""
    from gstinfer.elements import register as register_elements

    register_elements()


def element(name: str, model: str, **settings: Any) -> tuple[str, int, Any]:
    """A model as an element under a name of your own: the value of ``__gstelementfactory__`` in a plugin file.

    Args:
        name: The element's name, such as ``"gstyoloplugin"``.
        model: Its model's spec, such as ``"my_models:Yolo"``; the model's ``option()``s become GObject properties.
        **settings: ``long_name``, ``description`` and ``author`` for gst-inspect; anything else is a default for one of
            pyinfer's properties.
    """
    from gstinfer.elements.infer.named import element_class

    return name, 0, element_class(name, model, **settings)


def read(buffer: Any) -> FrameResults | None:
    """What our elements wrote on a buffer, in pixels of the frame that the buffer holds now.

    Args:
        buffer: A ``Gst.Buffer``, read in a pad probe or from an appsink's sample.

    Returns:
        None where the buffer carries none of our results.
    """
    from gstinfer.hosts import read as read_buffer

    return read_buffer(buffer)


def read_frames(buffer: Any) -> list[FrameResults]:
    """What is known about every frame of a buffer: each frame of a DeepStream batch, else the one frame.

    Args:
        buffer: A ``Gst.Buffer``, read in a pad probe or from an appsink's sample.

    Returns:
        One ``FrameResults`` a frame, ``stream_id`` telling whose it is; empty where nothing is known.
    """
    from gstinfer.hosts import read_frames as read_batch

    return read_batch(buffer)
