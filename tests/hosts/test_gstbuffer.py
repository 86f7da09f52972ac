"""Planes of real buffers, mapped in place: strides, bounds, lifetime."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from gst_buffers import Gst, GstVideo, blank, caps_for, default_layout, make_buffer, pattern

from gstinfer.errors import HostError
from gstinfer.hosts import gstbuffer
from gstinfer.hosts.gstbuffer import Mapping, capture_time, discontinuous, is_writable, plane_views, pts, video_meta

pytestmark = pytest.mark.gst


def planes_of(buffer, format, width, height, layout):
    return plane_views(Mapping(buffer), format, width, height, *layout)


@pytest.mark.parametrize(
    ("format", "width", "height", "strides", "offsets"),
    [
        ("RGB", 427, 240, [1284], [0]),
        ("RGB", 641, 480, [1924], [0]),
        ("BGR", 1918, 1079, [5756], [0]),
        ("GRAY8", 427, 240, [428], [0]),
        ("NV12", 161, 121, [164, 164], [0, 20008]),
        ("I420", 161, 121, [164, 84, 84], [0, 20008, 25132]),
        ("YV12", 161, 121, [164, 84, 84], [0, 20008, 25132]),
        ("RGB", 1, 1, [4], [0]),
        ("I420", 1, 1, [4, 4, 4], [0, 8, 12]),
        ("RGBA", 427, 3, [1708], [0]),
        ("BGRx", 427, 3, [1708], [0]),
    ],
)
def test_padded_rows_are_no_pixels(format, width, height, strides, offsets):
    caps = caps_for(format, width, height)
    found_offsets, found_strides, size = default_layout(caps)
    assert found_strides == strides and found_offsets == offsets, "GStreamer's own layout is what the case says"
    planes = pattern(format, width, height)
    buffer = make_buffer(planes, offsets, strides, size)
    for got, want in zip(planes_of(buffer, format, width, height, (offsets, strides)), planes, strict=True):
        np.testing.assert_array_equal(got, want)
    if width > 1 and format == "RGB":
        view = planes_of(buffer, format, width, height, (offsets, strides))[0]
        assert view[100, 0].tolist() == [0, 100, 7]


def test_the_last_row_may_lack_its_padding():
    planes = pattern("RGB", 427, 240)
    size = 239 * 1284 + 427 * 3
    buffer = make_buffer(planes, [0], [1284], size)
    np.testing.assert_array_equal(planes_of(buffer, "RGB", 427, 240, ([0], [1284]))[0], planes[0])


@pytest.mark.parametrize(
    ("offsets", "strides", "what"),
    [
        ([0], [1288], "needed"),
        ([8], [1284], "offset 8"),
        ([0], [1280], "stride 1280"),
        ([0], [-1284], "stride -1284"),
    ],
)
def test_planes_outside_of_the_buffer_are_refused(offsets, strides, what):
    buffer = make_buffer(pattern("RGB", 427, 240), [0], [1284], 240 * 1284)
    with pytest.raises(HostError, match=what) as caught:
        planes_of(buffer, "RGB", 427, 240, (offsets, strides))
    assert "308160 in the buffer" in str(caught.value)


def test_an_empty_buffer_is_refused():
    with pytest.raises(HostError, match="0 in the buffer"):
        planes_of(Gst.Buffer.new(), "GRAY8", 4, 4, ([0], [4]))


def test_a_read_map_cannot_be_written():
    view = planes_of(blank(caps_for("GRAY8", 8, 8)), "GRAY8", 8, 8, ([0], [8]))[0]
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1


def test_a_write_map_changes_the_buffer():
    buffer = blank(caps_for("GRAY8", 8, 8))
    view = plane_views(Mapping(buffer, write=True), "GRAY8", 8, 8, [0], [8])[0]
    view[0, 1] = 9
    del view
    assert buffer.extract_dup(0, 2) == bytes([100, 9])


def test_a_write_map_of_a_shared_buffer_is_refused():
    buffer = blank(caps_for("GRAY8", 8, 8))
    holder = Gst.Sample.new(buffer, None, None, None)
    assert not is_writable(buffer)
    with pytest.raises(HostError, match="not writable"):
        Mapping(buffer, write=True)
    del holder
    assert is_writable(buffer)


def test_a_view_outlives_its_buffer():
    buffer = blank(caps_for("GRAY8", 640, 480), 77)
    view = planes_of(buffer, "GRAY8", 640, 480, ([0], [640]))[0][10:20, 5:]
    del buffer
    gc.collect()
    others = [blank(caps_for("GRAY8", 640, 480), 5) for _ in range(20)]
    assert (view == 77).all() and len(others) == 20


def _write_lock_works(buffer) -> bool:
    """Whether GStreamer maps the buffer for writing without copying its memory first."""
    before = Mapping(buffer).__array_interface__["data"][0]
    after = Mapping(buffer, write=True).__array_interface__["data"][0]
    return before == after


def test_the_map_ends_with_the_last_view():
    buffer = blank(caps_for("GRAY8", 64, 64))
    assert _write_lock_works(buffer)
    view = planes_of(buffer, "GRAY8", 64, 64, ([0], [64]))[0]
    kept = view[1:3]
    del view
    assert not _write_lock_works(buffer), "a kept view must keep its pixels, so a writer gets a copy"
    assert (kept == 100).all()


def test_memory_does_not_grow_over_many_maps():
    buffer = blank(caps_for("RGB", 64, 64))
    memory = gstbuffer.BufferStruct.from_address(hash(buffer))
    count = memory.refcount
    for _ in range(1000):
        planes_of(buffer, "RGB", 64, 64, ([0], [192]))
    assert memory.refcount == count and _write_lock_works(buffer)


def test_video_meta_of_a_larger_stride():
    buffer = make_buffer(pattern("NV12", 161, 121), [64, 64 + 121 * 256], [256, 256], 64 + 256 * (121 + 61))
    GstVideo.buffer_add_video_meta_full(
        buffer, GstVideo.VideoFrameFlags.NONE, GstVideo.VideoFormat.NV12, 161, 121, 2,
        [64, 64 + 121 * 256, 0, 0], [256, 256, 0, 0],
    )  # fmt: skip
    meta = video_meta(buffer)
    assert (meta.width, meta.height, meta.n_planes, list(meta.stride[:2])) == (161, 121, 2, [256, 256])
    assert video_meta(Gst.Buffer.new()) is None
    for got, want in zip(planes_of(buffer, "NV12", 161, 121, (meta.offset, meta.stride)), pattern("NV12", 161, 121)):
        np.testing.assert_array_equal(got, want)


def test_times_and_flags():
    buffer = Gst.Buffer.new()
    assert pts(buffer) is None and capture_time(buffer) is None and not discontinuous(buffer)
    buffer.pts = 123_456_789
    buffer.set_flags(Gst.BufferFlags.DISCONT)
    assert pts(buffer) == 123_456_789 and discontinuous(buffer)


@pytest.mark.parametrize(("caps", "epoch"), [("timestamp/x-unix", 0), ("timestamp/x-ntp", 2_208_988_800)])
def test_capture_time(caps, epoch):
    buffer, time = Gst.Buffer.new(), 1_700_000_000_123_456_789
    buffer.add_reference_timestamp_meta(Gst.Caps.from_string(caps), time + epoch * 10**9, Gst.CLOCK_TIME_NONE)
    assert capture_time(buffer) == time


def test_the_structs_have_gstreamers_layout():
    assert ctypes.sizeof(gstbuffer.MapInfo) == 5 * 8 + 8 * 8
    buffer = Gst.Buffer.new_allocate(None, 4, None)
    buffer.offset, buffer.offset_end, buffer.duration, buffer.dts = 5, 6, 7, 8
    struct = gstbuffer.BufferStruct.from_address(hash(buffer))
    assert (struct.offset, struct.offset_end, struct.duration, struct.dts) == (5, 6, 7, 8)
