"""The second way into a batch: NVIDIA's own Python bindings, ``pyservicemaker``.

Its ways are taken into account: a wrapper holds the buffer, so that it is dropped before the buffer goes on; its iterators
hand out one object again and again, null after the loop, so that values are copied inside of it; a failed ``extract``
raises nothing and gives a tensor that is falsy and crashes when asked; without a batch meta ``acquire_*`` crashes.

The bindings have no ``infer_done``, no parent, no classifier, mask or user metas. Where this process's layout is proved,
those are written as in the first way; where it is not, they are left out and said once.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from gstinfer.errors import ConfigError, HostError, MissingDependencyError
from gstinfer.frames import FrameBatch
from gstinfer.hosts import caps_of
from gstinfer.hosts.deepstream.abi import LAYOUTS, FrameMeta, Layout, layout, links
from gstinfer.hosts.deepstream.libs import libraries
from gstinfer.hosts.deepstream.plan import FramePlan, NewObjects, Owned
from gstinfer.hosts.deepstream.planner import Planner
from gstinfer.hosts.deepstream.reader import OBJECT, BatchReader, FrameReader
from gstinfer.hosts.deepstream.writer import MetaWriter
from gstinfer.hosts.frame import BufferFrame
from gstinfer.hosts.video import VideoFormat
from gstinfer.image import ColorInfo, Device, Image
from gstinfer.results import Detections, FrameResults

if TYPE_CHECKING:
    from gstinfer.hosts import HostStream

__all__ = ["ServiceMakerHost"]

_NO_TIME = (1 << 64) - 1


class ServiceMakerHost:
    """Opens batches of RGB frames through ``pyservicemaker.Buffer``.

    Attributes:
        sources: Streams that were seen so far.
        warnings: For people, to be posted once.

    Args:
        caps: Fixed ``Gst.Caps`` with the ``memory:NVMM`` feature.
        stream: Facts about the pad's stream.
        device: Where the element works.
        gpu_id: The GPU that the element wants, or None.
        tensor_metas: Whether raw outputs become nvinfer's tensor metas.

    Raises:
        ConfigError: Frames that are not RGB.
        MissingDependencyError: pyservicemaker is not installed.
    """

    CAPS = caps_of("deepstream")
    """What an element offers on its pads for this host."""

    passthrough = True
    single = False

    def __init__(
        self,
        caps: Any,
        stream: HostStream,
        *,
        device: str = "auto",
        gpu_id: int | None = None,
        tensor_metas: bool = False,
    ) -> None:
        video = VideoFormat.of(caps, ("NV12", "RGBA", "RGB"))
        if video.name != "RGB":
            raise ConfigError(
                f"frame-access=pyservicemaker reads RGB alone, the frames are {video.name}",
                hint="add nvvideoconvert ! 'video/x-raw(memory:NVMM),format=RGB' before this element, or use "
                "frame-access=surface, which reads NV12 and RGBA in place",
            )
        try:
            import pyservicemaker  # type: ignore[import-not-found]
        except ImportError as error:
            raise MissingDependencyError("pyservicemaker", purpose="frame-access=pyservicemaker") from error
        self.bindings, self.stream, self.device, self.gpu_id = pyservicemaker, stream, device, gpu_id
        self.sources: set[str] = set()
        self.warnings: list[str] = []
        self.lib: Any = None
        self.writer: MetaWriter | None = None
        turned = hasattr(pyservicemaker.osd.Rect, "rotation_angle")
        structs: Layout = LAYOUTS[turned]
        try:
            structs = layout()
            self.lib = libraries()
            self.writer = MetaWriter(self.lib, structs)
        except HostError as error:
            self.warnings.append(
                f"{error.message}; results are written through pyservicemaker alone: bInferDone stays FALSE, so that "
                "nvtracker ignores the detections, and masks, classifiers and user metas are left out"
            )
        self.layout = structs
        result_type = self.lib.user_meta_type(b"GSTINFER.RESULT") if self.lib is not None else 0
        self.planner = Planner(structs, result_type, tensor_metas=tensor_metas, gpu_id=gpu_id or 0)

    def open(self, buffer: Any, *, write: bool = False) -> _Opened:
        """The frames of a batch, see ``Host.open``."""
        if write:
            raise HostError("frames in NVMM memory are not drawn on by this element", hint="use nvdsosd in this place")
        return _Opened(self, buffer)

    def close(self) -> None:
        """Holds nothing between buffers."""


class _NoReader:
    """Stands for a frame of which nothing can be read."""

    address = 0

    def __init__(self) -> None:
        self.objects: dict[int, int] = {}
        self.before: Detections | None = None
        self.known: FrameResults | None = None

    def results(self) -> FrameResults | None:
        return None


class _Opened:
    """One batch while a stage works on it."""

    __slots__ = ("buffer", "frames", "host", "readers", "wrapped")

    def __init__(self, host: ServiceMakerHost, buffer: Any) -> None:
        self.host, self.buffer = host, buffer

    def __enter__(self) -> FrameBatch:
        host = self.host
        self.frames: dict[int, BufferFrame] = {}
        self.readers: dict[int, Any] = {}
        self.wrapped = host.bindings.Buffer(self.buffer)
        try:
            return self._opened()
        except BaseException:
            self.wrapped = None
            raise

    def _opened(self) -> FrameBatch:
        host, meta = self.host, self.wrapped.batch_meta
        address = host.lib.batch_meta(hash(self.buffer)) if host.lib is not None else 0
        if host.lib is not None and not address:
            raise HostError(
                "a buffer under memory:NVMM caps has no batch meta",
                hint="put nvstreammux before this element, also for a single source",
            )
        if not meta.n_frames:
            return FrameBatch(())
        known: dict[int, FrameReader] = {}
        if host.writer is not None:
            batch = BatchReader(host.lib, host.layout, address)
            known = {FrameMeta.from_address(a).batch_id: batch.frame(a) for a in batch.frames}
        for item in meta.frame_items:
            batch_id, source_id, pts = int(item.batch_id), int(item.source_id), int(item.buffer_pts)
            number, ntp = int(item.frame_number), int(getattr(item, "ntp_timestamp", 0))
            host.sources.add(str(source_id))
            reader = self.readers[batch_id] = known.get(batch_id) or _NoReader()
            self.frames[batch_id] = BufferFrame(
                self._image(batch_id),
                reader.results,
                stream_id=str(source_id),
                pts=None if pts == _NO_TIME else pts,
                sequence=number,
                time=ntp or None,
                source=host.stream.source,
            )
        return FrameBatch(tuple(self.frames.values()))

    def _image(self, batch_id: int) -> Image:
        tensor = self.wrapped.extract(batch_id)
        if not tensor:
            raise HostError(
                f"pyservicemaker gave no pixels of frame {batch_id}",
                hint="it reads RGB in CUDA memory alone: add nvvideoconvert ! "
                "'video/x-raw(memory:NVMM),format=RGB' before this element, or use frame-access=surface",
            )
        kind, index = tensor.__dlpack_device__()
        if int(kind) == 1:
            plane, device = np.from_dlpack(tensor), Device()
        else:
            plane, device = _torch_view(tensor), Device("cuda", int(index))
        if len(plane.shape) != 3 or plane.shape[2] != 3:
            raise HostError(f"pyservicemaker gave a tensor of {tuple(plane.shape)} for frame {batch_id}, not H x W x 3")
        if device.is_cuda and self.host.device == "cpu":
            raise HostError(
                "the frames are in CUDA memory, which device=cpu cannot read", hint=f"use device=cuda:{device.index}"
            )
        height, width = int(plane.shape[0]), int(plane.shape[1])
        return Image("RGB", (plane,), width, height, ColorInfo("rgb", True), device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sizes = {batch_id: frame.image.size for batch_id, frame in self.frames.items()}
        devices = {frame.image.device.index for frame in self.frames.values() if frame.image.device.is_cuda}
        for frame in self.frames.values():
            frame.close()
        for index in devices:
            _finish_reads(index)
        try:
            if kind is None:
                self._write(sizes)
        finally:
            # What holds the buffer makes GStreamer copy it for the next element that writes.
            self.wrapped = None

    def _write(self, sizes: dict[int, tuple[int, int]]) -> None:
        host, owned = self.host, Owned()
        plans: dict[int, FramePlan] = {}
        facts: list[tuple[int, bool | None, str]] = []
        model = ""
        try:
            for batch_id, frame in self.frames.items():
                if frame.changed:
                    now = frame.results
                    if host.writer is None:
                        now = _carried(now)
                    plans[batch_id] = host.planner.plan(self.readers[batch_id], now, sizes[batch_id], owned)
                    facts.append((batch_id, now.inferred, now.stream_id or frame.stream_id))
                    model = model or now.model
            if not plans:
                return
            host.planner.finish(list(plans.values()), owned)
            users = [host.writer.facts(model, tuple(facts), owned)] if host.writer is not None else []
            if host.writer is not None:
                # Whatever happens from here on, nothing is freed twice.
                owned.hand_over()
            meta = self.wrapped.batch_meta
            for item in meta.frame_items:
                batch_id = int(item.batch_id)
                if batch_id in plans:
                    for objects in plans[batch_id].new:
                        self._append(meta, item, plans[batch_id].frame, objects)
            if host.writer is not None:
                for plan in plans.values():
                    plan.new = []
                address = host.lib.batch_meta(hash(self.buffer))
                host.writer.write(address, list(plans.values()), users, owned)
        finally:
            owned.free()

    def _append(self, meta: Any, item: Any, frame: int, objects: NewObjects) -> None:
        writer, made = self.host.writer, []
        for place, record in enumerate(objects.records):
            obj = meta.acquire_object_meta()
            _fill(self.host.bindings.osd, obj, record)
            item.append(obj)
            if writer is not None:
                # Appending puts it first.
                address = links(FrameMeta.from_address(frame).objects)[0]
                made.append(address)
                parent = objects.parents[place]
                writer.complete(address, record, made[-1 - parent] if parent < 0 else parent)
                writer.attach(address, objects.classifiers.get(place, ()), objects.users.get(place, ()))


def _fill(osd: Any, obj: Any, record: Any) -> None:
    """All that the bindings let one set, from an object's record."""
    obj.unique_component_id, obj.class_id = int(record["component_id"]), int(record["class_id"])
    obj.object_id, obj.confidence = int(record["object_id"]), float(record["confidence"])
    obj.label = bytes(record["label"]).decode()
    rect, wanted = obj.rect_params, record["rect"]
    rect.left, rect.top = float(wanted["left"]), float(wanted["top"])
    rect.width, rect.height = float(wanted["width"]), float(wanted["height"])
    rect.border_width, rect.border_color = int(wanted["border_width"]), osd.Color(*map(float, wanted["border_color"]))
    rect.has_bg_color = 0
    if "rotation_angle" in wanted.dtype.names:
        rect.rotation_angle = float(wanted["rotation_angle"])
    text, wanted = obj.text_params, record["text"]
    text.display_text = C.string_at(int(wanted["display_text"])).decode("utf-8", "replace")
    text.x_offset, text.y_offset = int(wanted["x_offset"]), int(wanted["y_offset"])
    text.font_params.name, text.font_params.size = osd.FontFamily.Serif, int(wanted["font_size"])
    text.font_params.color = osd.Color(*map(float, wanted["font_color"]))
    text.set_bg_clr, text.text_bg_clr = 1, osd.Color(*map(float, wanted["text_bg_clr"]))


def _carried(now: FrameResults) -> FrameResults:
    """What the bindings alone can write: objects, plain."""
    found = now.detections
    if found is not None:
        found = found.with_columns(mask=None, keypoints=None, attributes=None, parent=None, data={OBJECT: [0] * len(found)})
    return FrameResults(now.model, now.inferred, found, stream_id=now.stream_id)


def _torch_view(tensor: Any) -> Any:
    try:
        from torch.utils.dlpack import from_dlpack
    except ImportError as error:
        raise MissingDependencyError("torch", extra="torch", purpose="frames of pyservicemaker on the GPU") from error
    convert: Callable[[Any], Any] = from_dlpack
    return convert(tensor)


def _finish_reads(index: int) -> None:
    """Waits for what was asked of the GPU to read a frame, on the stream where torch works by default."""
    import torch

    torch.cuda.default_stream(index).synchronize()
