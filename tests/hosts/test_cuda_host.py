"""The CUDA host: views, pitches, offsets, ownership and order of events, on system memory where no GPU is."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

gi = pytest.importorskip("gi")
gi.require_version("Gst", "1.0")
from gi.repository import Gst

Gst.init(None)

from gstinfer.errors import ConfigError, HostError
from gstinfer.hosts.cuda import CudaHost, Plane, _CudaMemory, own, planes_of
from gstinfer.hosts.video import VideoFormat
from gstinfer.image import ColorInfo
from gstinfer.results import Detections, FrameResults

pytestmark = pytest.mark.gst


def stream():
    return SimpleNamespace(stream_id="a", source="", component_id=15, sequence=0)


def pull(caps, pattern="smpte"):
    """One buffer of videotestsrc under caps, with the caps."""
    pipeline = Gst.parse_launch(f"videotestsrc num-buffers=1 pattern={pattern} ! {caps} ! appsink name=sink sync=false")
    pipeline.set_state(Gst.State.PLAYING)
    sample = pipeline.get_by_name("sink").emit("pull-sample")
    assert sample is not None
    buffer, fixed = sample.get_buffer(), sample.get_caps()
    pipeline.set_state(Gst.State.NULL)
    return buffer, fixed


@pytest.mark.parametrize("name", ["NV12", "RGB", "RGBA", "BGRx"])
def test_planes_are_the_buffers_own(name):
    buffer, caps = pull(f"video/x-raw,format={name},width=161,height=121")
    host = CudaHost(caps, stream(), cuda=False)
    with host.open(buffer) as batch:
        image = batch[0].image
        assert image.format == name and image.size == (161, 121)
        planes = [np.asarray(plane) for plane in image.planes]
        shapes = image.layout.plane_shapes(161, 121)
        assert [plane.shape for plane in planes] == [tuple(shape) for shape in shapes]
        data = np.frombuffer(buffer.extract_dup(0, buffer.get_size()), np.uint8)
        for plane, offset, stride in zip(planes, host.format.offsets, host.format.strides):
            first = data[offset : offset + plane[0].size].reshape(plane[0].shape)
            second = data[offset + stride : offset + stride + plane[1].size].reshape(plane[1].shape)
            assert np.array_equal(plane[0], first) and np.array_equal(plane[1], second)
            assert not plane.flags.writeable


def test_p010_becomes_its_upper_bytes():
    buffer, caps = pull("video/x-raw,format=P010_10LE,width=64,height=48,colorimetry=bt709")
    host = CudaHost(caps, stream(), cuda=False)
    with host.open(buffer) as batch:
        image = batch[0].image
        assert image.format == "NV12" and image.color == ColorInfo("bt709")
        luma, chroma = (np.asarray(plane) for plane in image.planes)
        data = np.frombuffer(buffer.extract_dup(0, buffer.get_size()), np.uint16)
        words = data[: 48 * host.format.strides[0] // 2].reshape(48, -1)[:, :64]
        assert np.array_equal(luma, words >> 8)
        assert chroma.shape == (24, 32, 2)


def test_other_formats_are_refused():
    with pytest.raises(ConfigError, match="YUY2"):
        CudaHost(Gst.Caps.from_string("video/x-raw,format=YUY2,width=64,height=48,framerate=1/1"), stream(), cuda=False)


def test_a_plane_that_does_not_fit_is_an_error():
    video = VideoFormat("NV12", 64, 48, ColorInfo(), (0, 64 * 48), (64, 64))
    mapping = SimpleNamespace(size=64 * 48, __array_interface__={"data": (4096, True)})
    with pytest.raises(HostError, match="plane 1"):
        planes_of(SimpleNamespace(mapping=mapping), video, video.offsets, video.strides, 0, True)


def test_leaving_waits_for_the_readers_before_the_map_ends():
    buffer, caps = pull("video/x-raw,format=NV12,width=64,height=48")
    order = []
    host = CudaHost(caps, stream(), cuda=False)
    with host.open(buffer) as batch:
        for number in range(2):
            batch[0].image.planes[0].keep_until(SimpleNamespace(synchronize=lambda n=number: order.append(n)))
        assert order == []
    assert order == [0, 1]


def test_a_buffer_that_is_closed_has_its_memory_for_itself():
    buffer, caps = fresh()
    memory = _CudaMemory.from_address(memory_of(buffer))
    assert memory.refcount == 1
    opened = CudaHost(caps, stream(), cuda=False).open(buffer)
    with opened as batch:
        assert memory.refcount == 2
    assert len(batch) and memory.refcount == 1, "a decoder could not have it back before this is gone"


def test_an_array_that_is_kept_keeps_the_map():
    buffer, caps = pull("video/x-raw,format=NV12,width=64,height=48", "white")
    host = CudaHost(caps, stream(), cuda=False)
    with host.open(buffer) as batch:
        kept = np.asarray(batch[0].image.planes[0])
    del buffer, batch, host
    assert kept.min() > 200
    assert sys.getrefcount(kept) >= 2


def test_device_planes_speak_the_cuda_array_interface():
    plane = Plane(SimpleNamespace(events=[]), 0x7000, (4, 6), (256, 1), 1, True)
    face = plane.__cuda_array_interface__
    assert face["data"] == (0x7000, False) and face["strides"] == (256, 1) and face["version"] == 3
    assert plane.__dlpack_device__() == (2, 1)
    assert not hasattr(plane, "__array_interface__")


def test_results_are_written_once_and_only_without_an_error():
    buffer, caps = pull("video/x-raw,format=NV12,width=64,height=48")
    host = CudaHost(caps, stream(), cuda=False)
    found = Detections(np.array([[1, 2, 30, 40]], np.float32))
    with pytest.raises(RuntimeError, match="stop"), host.open(buffer) as batch:
        batch[0].results = FrameResults(detections=found)
        raise RuntimeError("stop")
    with host.open(buffer) as batch:
        assert batch[0].results.detections is None or not len(batch[0].results.detections)
        batch[0].results = FrameResults(detections=found)
    with host.open(buffer) as batch:
        assert np.array_equal(batch[0].results.detections.xyxy, found.xyxy)


def test_without_a_driver_cuda_caps_are_an_error():
    from gstinfer.hosts import cuda

    try:
        cuda._library()
    except HostError as error:
        assert "cpu" in error.hint or "GStreamer" in error.hint
    else:
        pytest.skip("a driver is here")
    caps = Gst.Caps.from_string("video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=48,framerate=1/1")
    with pytest.raises(HostError):
        CudaHost(caps, stream())


def shell(buffer):
    """Another buffer of the same memory, as an element in place gets behind a tee."""
    made = Gst.Buffer.new()
    flags = Gst.BufferCopyFlags
    made.copy_into(buffer, flags.FLAGS | flags.TIMESTAMPS | flags.META | flags.MEMORY, 0, buffer.get_size())
    return made


def memory_of(buffer):
    return hash(buffer.peek_memory(0))


def fresh(width=64, height=48):
    buffer = Gst.Buffer.new_allocate(None, width * height * 3 // 2, None)
    buffer.memset(0, 7, buffer.get_size())
    return buffer, Gst.Caps.from_string(f"video/x-raw,format=NV12,width={width},height={height},framerate=1/1")


def test_memory_of_its_own_is_not_copied():
    buffer, _ = fresh()
    before = memory_of(buffer)
    assert not own(buffer) and memory_of(buffer) == before
    assert not own(buffer, lambda memory: 0) and memory_of(buffer) == before


def test_what_another_buffer_holds_too_is_copied_before_it_is_written():
    buffer, caps = fresh()
    second = shell(buffer)
    assert memory_of(second) == memory_of(buffer)
    host = CudaHost(caps, stream(), cuda=False)
    with host.open(second) as batch:
        assert memory_of(second) == memory_of(buffer)
        assert not np.asarray(batch[0].image.planes[0]).flags.writeable
    del batch
    with host.open(second, write=True) as batch:
        np.asarray(batch[0].image.planes[0])[...] = 9
    assert memory_of(second) != memory_of(buffer)
    size = 64 * 48
    assert set(buffer.extract_dup(0, buffer.get_size())) == {7}
    assert set(second.extract_dup(0, size)) == {9} and set(second.extract_dup(size, size // 2)) == {7}
    # The first is alone now.
    assert not own(buffer)


def test_wrapped_memory_is_copied_even_where_nobody_shares_it():
    """A decoder's own surface."""
    buffer, _ = fresh()
    asked, before = [], memory_of(buffer)
    assert own(buffer, lambda memory: asked.append(memory) or 0x1000)
    assert asked == [before] and memory_of(buffer) != before
    assert set(buffer.extract_dup(0, buffer.get_size())) == {7}


def test_read_only_memory_is_copied():
    buffer, _ = fresh()
    before = memory_of(buffer)
    _CudaMemory.from_address(before).flags |= int(Gst.MemoryFlags.READONLY)
    assert own(buffer) and memory_of(buffer) != before
    assert set(buffer.extract_dup(0, 4608)) == {7} and not own(buffer)


def test_a_buffer_that_somebody_else_holds_is_no_place_for_a_copy():
    buffer, caps = fresh()
    second = shell(buffer)
    held = Gst.Sample.new(second, caps, None, None)
    with pytest.raises(HostError, match="not writable"):
        own(second)
    del held


def test_drawing_is_waited_for_before_the_buffer_goes_on():
    """From caps to pixels with the oracle in the kernel's place: written, waited for, and the map has ended."""
    from gstinfer.overlay import Overlay, Style
    from gstinfer.overlay import draw as draw_module
    from gstinfer.overlay.cuda import CudaEngine, Slot
    from gstinfer.overlay.cuda_canvas import CudaCanvas
    from gstinfer.overlay.cuda_table import emulate

    order = []

    class Late:
        """The picture is written only when the event is waited for."""

        def slot(self, size):
            table = np.zeros(size, np.uint8)
            return Slot(table, table, table)

        def run(self, slot, size, samples, height, planes):
            order.append("run")
            table = slot.table[: -(-size // 8) * 8].copy()
            return SimpleNamespace(synchronize=lambda: (order.append("done"), emulate(table)))

    engine = CudaEngine(Late())
    buffer, caps = fresh()
    found = FrameResults(detections=Detections(np.array([[8, 8, 40, 40]], np.float32), label=["a"]))
    host = CudaHost(caps, stream(), cuda=False)
    patch = pytest.MonkeyPatch()
    patch.setattr(draw_module, "canvas_of", lambda image: CudaCanvas(image, engine))
    try:
        with host.open(buffer, write=True) as batch:
            Overlay().draw(batch[0].image, found, Style())
            assert order == ["run"]
        assert order == ["run", "done"]
    finally:
        patch.undo()
    del batch
    drawn = np.frombuffer(buffer.extract_dup(0, 64 * 48), np.uint8).reshape(48, 64)
    assert (drawn[8:40, 8] != 7).all() and (drawn[44:] == 7).all()
