"""pyinfer: any Python model on video.

Example::

    gst-launch-1.0 videotestsrc num-buffers=30 ! pyinfer model=nanodet-coco ! pytrack ! pyoverlay ! videoconvert ! autovideosink
"""

from __future__ import annotations

from typing import Any

from gstinfer.elements.base import BatchElement, gproperties
from gstinfer.elements.compat import GObject, Gst
from gstinfer.elements.guard import report
from gstinfer.elements.infer.settings import InferSettings
from gstinfer.elements.infer.stage import InferStage
from gstinfer.errors import ConfigError
from gstinfer.image import Device

__all__ = ["PyInfer"]


class PyInfer(BatchElement):
    __gtype_name__ = "GstInferPyInfer"
    settings_class = InferSettings
    options = InferSettings.options()
    metadata = (
        "Python model inference",
        "Filter/Analyzer/Video",
        "Runs any Python, ONNX or other model on video and writes its results as metadata",
        "gstinfer",
    )
    __gproperties__ = {
        **gproperties(options),
        "stats": (Gst.Structure, "Statistics", "Counters and seconds by step", GObject.ParamFlags.READABLE),
    }

    def make_stage(self, settings: Any) -> InferStage:
        if settings.device != "auto":
            Device.parse(settings.device)
        elif not _gpu_possible():
            settings.device = "cpu"
        return InferStage(settings, parse_arguments(settings.model_args), lambda error: report(self, error, "warning"))

    def offered_hosts(self) -> tuple[str, ...]:
        device = self.settings.device if self.settings is not None else self.wishes.get("device", "auto")
        if device == "cpu":
            return ("system",)
        return ("system", "cuda", "deepstream")

    def apply(self, name: str, value: Any) -> None:
        super().apply(name, value)
        if name == "model":
            raise ConfigError("model cannot change while the element runs yet", hint="set the element to READY first")
        self.stage.change(name, value)

    def host_options(self) -> dict[str, Any]:
        return {}


def parse_arguments(text: str) -> dict[str, Any]:
    """``key=value, key=value`` as a GstStructure's fields.

    Raises:
        ConfigError: The text is no such list.
    """
    if not text.strip():
        return {}
    try:
        parsed = Gst.Structure.from_string(f"arguments, {text}")
    except TypeError:
        parsed = None
    structure = parsed[0] if isinstance(parsed, tuple) else parsed
    if structure is None:
        raise ConfigError(f"model-args={text!r} cannot be read", hint='write key=value, key2="text with spaces"')
    names = [structure.nth_field_name(i) for i in range(structure.n_fields())]
    return {name: structure.get_value(name) for name in names}


def _gpu_possible() -> bool:
    """Whether frames may come in GPU memory: a driver's library is there."""
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


PyInfer.declare()
