"""A stream's way from its decoder to its model: NVDEC's frames stay in CUDA memory, others are brought there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from gstinfer import captures
from gstinfer.app.pipeline import link, make
from gstinfer.app.placement import CUDA, UPRIGHT, Decoder, Pixels, decoders_to_try, nvdec_number, surfaces, way
from gstinfer.elements.compat import GObject, Gst, structure_of
from gstinfer.hosts import CAPS
from gstinfer.image import Device

__all__ = ["Entry", "decoders_for", "prefer_cpu"]

TRY, SKIP = 0, 2
"""Values of GstAutoplugSelectResult, which no typelib has."""

ORIENTATION = "image-orientation"

SURFACES = "num-output-surfaces"
"""Property of NVDEC's decoders that hand out their own surfaces: most of them from 1.24 on."""


class Entry:
    """Chooses the decoder of one stream, and brings its frames into the memory where the model reads them.

    Args:
        device: Where the model runs.
        warn: Told what costs more than it should, on a streaming thread.
        orientation: The tag ``image-orientation`` of the source, as far as known.
        held: Most frames that wait for the model or in it.

    Attributes:
        on_gpu: Whether frames lie in CUDA memory when they are through.
        decoder: Factory of the video decoder that was tried last, or empty.
    """

    def __init__(
        self, device: Device, warn: Callable[[str], None], orientation: str = UPRIGHT, held: int = 0
    ) -> None:
        self.device, self.orientation, self.held = device, orientation, held
        missing = _missing() if device.is_cuda else ""
        self.on_gpu = device.is_cuda and not missing
        self.decoder = ""
        self._warn, self._nvdec, self._codec = warn, self.on_gpu, ""
        if missing:
            warn(f"{missing}: decoded on the CPU, and the model copies each frame to {device}")

    def watch(self, decodebin: Any) -> None:
        """Chooses among the decoders that a decodebin finds."""
        decodebin.connect("autoplug-select", self._select)
        decodebin.connect("element-added", self._opens)

    def _opens(self, decodebin: Any, element: Any) -> None:
        if nvdec_number(element.get_factory().get_name()) is None:
            return
        # Left to itself a decoder copies every frame; with surfaces of its own it copies where none is free.
        if element.find_property(SURFACES) is not None:
            element.set_property(SURFACES, surfaces(self.held))
        opening = object()
        captures.begin_change(opening)

        def opened(pad: Any, info: Any) -> Any:
            captures.end_change(opening)
            return Gst.PadProbeReturn.REMOVE

        element.get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, opened)

    def _select(self, decodebin: Any, pad: Any, caps: Any, factory: Any) -> int:
        if not _is_video_decoder(factory):
            return TRY
        codec, name = structure_of(caps, 0).get_name(), factory.get_name()
        if name not in decoders_to_try(codec, decoders_for(caps, self.device), self.device, self._nvdec):
            return SKIP
        self.decoder, self._codec = name, codec
        return TRY

    def refused(self, reason: str) -> bool:
        """Whether the stream may be decoded anew on the CPU, since NVDEC failed on it; true once."""
        if not self._nvdec or nvdec_number(self.decoder) is None:
            return False
        self._nvdec = False
        self._warn(f"NVDEC ({self.decoder}) does not decode it: {reason}")
        return True

    def elements(self, bin: Any, pixels: Pixels) -> list[Any]:
        """New elements in a bin that bring such frames to the device, in order, not yet linked."""
        if not self.on_gpu:
            return []
        chosen = way(self.device, pixels)
        if chosen.warning:
            self._warn(chosen.warning)
        return [make(bin, factory, **values) for factory, values in chosen.elements]

    def bring(self, bin: Any, pad: Any, caps: Any, first: Any = None) -> Any:
        """Brings what comes out of a decoder's pad to the device.

        Args:
            bin: Where new elements go; it has begun already.
            pad: Of the decoder, blocked or without data as yet.
            caps: Of the pad.
            first: An element that all frames go through before, or None.

        Returns:
            The pad where they come out.
        """
        out = pad
        if first is not None:
            pad.link(first.get_static_pad("sink"))
            out = first.get_static_pad("src")
        if not self.on_gpu:
            return out
        features = caps.get_features(0)
        pixels = Pixels(
            features is not None and features.contains(CUDA),
            caps.can_intersect(Gst.Caps.from_string(CAPS["cuda"])),
            structure_of(caps, 0).get_string("format") or "",
            self._codec,
            _orientation(pad) or self.orientation,
        )
        made = self.elements(bin, pixels)
        if not made:
            pad.add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, self._turns)
            return out
        link(*made)
        for element in reversed(made):
            element.sync_state_with_parent()
        out.link(made[0].get_static_pad("sink"))
        return made[-1].get_static_pad("src")

    def _turns(self, pad: Any, info: Any) -> Any:
        event = info.get_event()
        if event.type == Gst.EventType.TAG:
            known, turn = event.parse_tag().get_string(ORIENTATION)
            if known and turn != UPRIGHT:
                self._warn(f"its pictures should be turned ({turn}), which was not known before they ran: they are not")
        return Gst.PadProbeReturn.OK


def _missing() -> str:
    """What this machine lacks for frames in CUDA memory, or empty."""
    if not all(map(Gst.ElementFactory.find, ("cudaupload", "cudadownload"))):
        return "GStreamer has no nvcodec elements here"
    if not (find_spec("torch") and find_spec("triton")) and not find_spec("cupy"):
        return "nothing here reads frames in CUDA memory (pip install 'gstinfer[torch]')"
    return ""


def _orientation(pad: Any) -> str:
    """What the tags that a pad has seen say, or empty."""
    number, found = 0, ""
    while (event := pad.get_sticky_event(Gst.EventType.TAG, number)) is not None:
        known, turn = event.parse_tag().get_string(ORIENTATION)
        found, number = turn if known else found, number + 1
    return found


def _is_video_decoder(factory: Any) -> bool:
    kinds = (factory.get_metadata("klass") or "").split("/")
    return "Decoder" in kinds and ("Video" in kinds or "Image" in kinds)


def decoders_for(caps: Any, device: Device) -> list[Decoder]:
    """Decoders of pictures that take a stream, those that nobody ranks left out.

    Args:
        caps: Of the stream.
        device: Where it will run; for the CPU no NVDEC is touched, and the number of its GPU is a guess.
    """
    kind, ranked = Gst.ELEMENT_FACTORY_TYPE_DECODER, Gst.Rank.MARGINAL
    found = Gst.ElementFactory.list_get_elements(kind, ranked)
    taking = Gst.ElementFactory.list_filter(found, caps, Gst.PadDirection.SINK, False)
    return [Decoder(f.get_name(), _gpu_of(f, device)) for f in taking if _is_video_decoder(f)]


def _gpu_of(factory: Any, device: Device) -> int | None:
    number = nvdec_number(factory.get_name())
    if number is None or not device.is_cuda:
        return number
    # From 1.22 on it says so itself; a name counts decoders, and skips GPUs that have none.
    element = factory.create(None)
    if element is not None and element.find_property("cuda-device-id") is not None:
        number = int(element.get_property("cuda-device-id"))
    return number


def prefer_cpu(decodebin: Any, device: Device) -> None:
    """For a first look at a source: NVDEC is used only where nothing else decodes the stream, and never for the CPU."""
    if GObject.signal_lookup("autoplug-select", decodebin):
        decodebin.connect("autoplug-select", partial(_select_cpu, device))


def _select_cpu(device: Device, decodebin: Any, pad: Any, caps: Any, factory: Any) -> int:
    if not _is_video_decoder(factory):
        return TRY
    codec, found = structure_of(caps, 0).get_name(), decoders_for(caps, device)
    allowed = decoders_to_try(codec, found, Device()) or decoders_to_try(codec, found, device)
    return TRY if factory.get_name() in allowed else SKIP
