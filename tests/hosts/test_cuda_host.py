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
from gstinfer.hosts.cuda import CudaHost, Plane, planes_of
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
