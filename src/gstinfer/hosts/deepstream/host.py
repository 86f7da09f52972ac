"""Batches in NVMM memory: every frame of the batch in place, and results as DeepStream's own metadata."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from gstinfer.errors import HostError
from gstinfer.frames import FrameBatch
from gstinfer.hosts import caps_of
from gstinfer.hosts.deepstream import abi
from gstinfer.hosts.deepstream.libs import libraries
from gstinfer.hosts.deepstream.plan import FramePlan, Owned
from gstinfer.hosts.deepstream.planner import Planner
from gstinfer.hosts.deepstream.reader import BatchReader, FrameReader
from gstinfer.hosts.deepstream.surface import Surface
from gstinfer.hosts.deepstream.writer import MetaWriter
from gstinfer.hosts.frame import BufferFrame

if TYPE_CHECKING:
    from gstinfer.hosts import HostStream

__all__ = ["DeepStreamHost"]

_NO_TIME = (1 << 64) - 1


class DeepStreamHost:
    """Opens batches that nvstreammux, old or new, made.

    Attributes:
        sources: Streams that were seen so far.

    Args:
        caps: Fixed ``Gst.Caps`` with the ``memory:NVMM`` feature.
        stream: Facts about the pad's stream.
        device: Where the element works: ``"auto"``, ``"cpu"`` or ``"cuda:N"``.
        gpu_id: The GPU that the element wants, or None for the frames' own.
        tensor_metas: Whether raw outputs become nvinfer's tensor metas.

    Raises:
        HostError: DeepStream's libraries are missing, or of a layout that is not known.
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
        self.stream, self.device, self.gpu_id = stream, device, gpu_id
        self.lib, self.layout = libraries(), abi.layout()
        self.writer = MetaWriter(self.lib, self.layout)
        self.tensor_metas = tensor_metas
        self.sources: set[str] = set()
        self._planner: Planner | None = None

    def open(self, buffer: Any, *, write: bool = False) -> _Opened:
        """The frames of a batch, see ``Host.open``; an empty batch where it has no video."""
        if write:
            raise HostError(
                "frames in NVMM memory are not drawn on by this element",
                hint="nvdsosd draws the objects, masks and display metas that pyinfer writes: put it in this place",
            )
        return _Opened(self, buffer)

    def close(self) -> None:
        """Holds nothing between buffers."""

    def planner(self, reader: BatchReader, gpu_id: int) -> Planner:
        """Made with the first batch, which knows its GPU."""
        if self._planner is None:
            self._planner = Planner(self.layout, reader.result_type, tensor_metas=self.tensor_metas, gpu_id=gpu_id)
        return self._planner


class _Opened:
    """One batch while a stage works on it."""

    __slots__ = ("batch", "buffer", "frames", "host", "readers", "surface")

    def __init__(self, host: DeepStreamHost, buffer: Any) -> None:
        self.host, self.buffer = host, buffer

    def __enter__(self) -> FrameBatch:
        host = self.host
        address = host.lib.batch_meta(hash(self.buffer))
        if not address:
            raise HostError(
                "a buffer under memory:NVMM caps has no batch meta",
                hint="put nvstreammux before this element, also for a single source",
            )
        self.batch = BatchReader(host.lib, host.layout, address)
        self.readers: list[FrameReader] = [self.batch.frame(frame) for frame in self.batch.frames]
        self.frames: list[BufferFrame] = []
        self.surface = Surface(self.buffer, host.device, host.gpu_id) if self.readers else None
        for reader in self.readers:
            self.frames.append(self._frame(reader))
        return FrameBatch(tuple(self.frames))

    def _frame(self, reader: FrameReader) -> BufferFrame:
        meta, stream = reader.meta, self.host.stream
        assert self.surface is not None
        stream_id = str(meta.source_id)
        self.host.sources.add(stream_id)
        return BufferFrame(
            self.surface.image(meta.batch_id),
            reader.results,
            stream_id=stream_id,
            pts=None if meta.buf_pts == _NO_TIME else int(meta.buf_pts),
            sequence=int(meta.frame_num),
            time=int(meta.ntp_timestamp) or None,
            source=stream.source,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sizes = [frame.image.size for frame in self.frames]
        for frame in self.frames:
            frame.close()
        if self.surface is not None:
            self.surface.finish_reads()
        if kind is None:
            self._write(sizes)

    def _write(self, sizes: list[tuple[int, int]]) -> None:
        host, owned = self.host, Owned()
        try:
            plans: list[FramePlan] = []
            facts: list[tuple[int, bool | None, str]] = []
            model, told = "", False
            for frame, reader, size in zip(self.frames, self.readers, sizes):
                if not frame.changed:
                    continue
                now, known = frame.results, reader.known
                planner = host.planner(self.batch, self.surface.gpu_id if self.surface else 0)
                plans.append(planner.plan(reader, now, size, owned))
                facts.append((int(reader.meta.batch_id), now.inferred, now.stream_id or frame.stream_id))
                model = model or now.model
                told |= known is None or (known.model, known.inferred) != (now.model, now.inferred)
            if plans:
                planner.finish(plans, owned)
                users = [host.writer.facts(model, tuple(facts), owned)] if told else []
                host.writer.write(self.batch.address, plans, users, owned)
        finally:
            owned.free()
