"""The system host: what a frame says, what is written back and when."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from gst_buffers import Gst, GstVideo, blank, caps_for, default_layout, make_buffer, memory_planes, pattern

import gstinfer
from gstinfer import Attribute, ConfigError, Detections, FrameResults, HostError
from gstinfer.hosts import CAPS, caps_of, select, video
from gstinfer.hosts.system import SystemHost
from gstinfer.image import FORMATS

pytestmark = pytest.mark.gst


@pytest.fixture
def host(stream):
    return SystemHost(caps_for("RGB", 64, 48), stream)


def opened(host, results):
    buffer = blank(caps_for("RGB", 64, 48))
    with host.open(buffer) as batch:
        batch[0].results = results
    return buffer


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("size", [(427, 240), (1, 1), (161, 121)])
@pytest.mark.parametrize("wide", [False, True])
def test_a_model_sees_the_picture_and_no_padding(stream, format, size, wide):
    caps = caps_for(format, *size)
    offsets, strides, total = default_layout(caps)
    planes = pattern(format, *size)
    memory = memory_planes(format, planes)
    if wide:
        strides = [s + 128 for s in strides]
        offsets = [0, *np.cumsum([p.shape[0] * s for p, s in zip(memory, strides)]).tolist()][: len(memory)]
        total = sum(p.shape[0] * s for p, s in zip(memory, strides))
    buffer = make_buffer(memory, offsets, strides, total)
    if wide:
        GstVideo.buffer_add_video_meta_full(
            buffer, GstVideo.VideoFrameFlags.NONE, GstVideo.VideoFormat.from_string(format), *size, len(memory),
            offsets + [0] * (4 - len(memory)), strides + [0] * (4 - len(memory)),
        )  # fmt: skip
    host = select(caps, stream)
    with host.open(buffer) as batch:
        image = batch[0].image
        assert (image.format, image.size) == (format, size)
        for got, want in zip(image.planes, planes, strict=True):
            np.testing.assert_array_equal(got, want)


def test_rgb_columns_and_rows_are_where_they_belong(stream):
    caps = caps_for("RGB", 427, 240)
    offsets, strides, total = default_layout(caps)
    buffer = make_buffer(pattern("RGB", 427, 240), offsets, strides, total)
    with select(caps, stream).open(buffer) as batch:
        assert batch.images("rgb")[0][100, 0].tolist() == [0, 100, 7]


def test_what_a_frame_says(host, stream):
    buffer = blank(caps_for("RGB", 64, 48))
    buffer.pts = 40_000_000
    buffer.add_reference_timestamp_meta(Gst.Caps.from_string("timestamp/x-unix"), 99, Gst.CLOCK_TIME_NONE)
    for number in range(2):
        with host.open(buffer) as batch:
            (frame,) = batch
            assert (frame.stream_id, frame.source, frame.pts, frame.time) == ("door", "door.mp4", 40_000_000, 99)
            assert (frame.width, frame.height, frame.sequence) == (64, 48, number)
    assert stream.sequence == 2


def test_results_are_written_once_the_context_is_left(host):
    buffer = blank(caps_for("RGB", 64, 48))
    with host.open(buffer) as batch:
        batch[0].results.add(Detections([[1, 2, 30, 40]], [0.5], [3]))
        assert gstinfer.read(buffer) is None
    assert gstinfer.read(buffer).detections.xyxy.tolist() == [[1, 2, 30, 40]]


def test_nothing_is_written_after_an_exception(host):
    buffer = opened(host, FrameResults("first", detections=Detections([[1, 2, 3, 4]])))
    with pytest.raises(ZeroDivisionError), host.open(buffer) as batch:
        batch[0].results = FrameResults("second")
        raise ZeroDivisionError
    assert gstinfer.read(buffer).model == "first"


def test_a_second_element_reads_and_replaces(host):
    buffer = opened(host, FrameResults("m", True, Detections([[1, 2, 3, 4]])))
    with host.open(buffer) as batch:
        found = batch[0].results
        assert (found.model, found.inferred, len(found.detections)) == ("m", True, 1)
        found.detections.tracker_id = np.array([7])
    with host.open(buffer) as batch:
        assert batch[0].results.detections.tracker_id.tolist() == [7]


@pytest.fixture
def writes(host, monkeypatch):
    count = []
    write = host.metas.write
    monkeypatch.setattr(host.metas, "write", lambda *args: (count.append(1), write(*args)))
    return count


def _rich() -> FrameResults:
    results = FrameResults("m", True, Detections(
        [[1, 2, 3, 4]], label=["a"], attributes=[(Attribute("red", 1, 0.5),)], data={"speed": [1.5]},
        tracker_id=[-1], mask=np.ones((1, 48, 64), bool),
    ))  # fmt: skip
    results.add(gstinfer.Text("hello", data={"a": [1, 2]}))
    return results


def test_reading_alone_writes_nothing(host, writes):
    buffer = opened(host, _rich())
    del writes[:]
    for touch in (lambda r: None, lambda r: r.detections.xyxy.sum(), lambda r: setattr(r, "model", r.model)):
        with host.open(buffer) as batch:
            touch(batch[0].results)
    with host.open(buffer):
        pass
    assert not writes


def test_reading_many_objects_writes_nothing(host, writes):
    """Python has one object for each number up to 256 only."""
    found = Detections(np.tile(np.array([[4, 4, 20, 20]], np.float32), (300, 1)), label=["thing"] * 300)
    results = FrameResults()
    results.add(found)
    buffer = opened(host, results)
    del writes[:]
    with host.open(buffer) as batch:
        assert len(batch[0].results.detections.label) == 300
    assert not writes


@pytest.mark.parametrize(
    "change",
    [
        lambda f: setattr(f, "results", FrameResults()),
        lambda f: f.results.add(Detections([[5, 6, 7, 8]])),
        lambda f: setattr(f.results, "inferred", False),
        lambda f: setattr(f.results.detections, "tracker_id", np.array([3])),
        lambda f: f.results.detections.label.__setitem__(0, "b"),
        lambda f: f.results.detections.data.__setitem__("speed", [2.5]),
        lambda f: f.results.detections.data.__setitem__("more", [2]),
        lambda f: f.results.detections.attributes.__setitem__(0, ()),
        lambda f: f.results.texts.clear(),
        lambda f: f.results.texts[0].data["a"].append(3),
        lambda f: f.results.classifications.append(gstinfer.Classifications([1], [0.5])),
    ],
)
def test_every_change_is_noticed(host, writes, change):
    buffer = opened(host, _rich())
    del writes[:]
    with host.open(buffer) as batch:
        change(batch[0])
    assert len(writes) == 1


def test_arrays_from_a_buffer_cannot_change_unnoticed(host):
    buffer = opened(host, _rich())
    with host.open(buffer) as batch:
        found = batch[0].results.detections
        for array in (found.xyxy, found.confidence, found.tracker_id, found.mask[0].bitmap):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0


def test_a_shared_buffer_can_be_read_but_not_labelled(host):
    buffer = opened(host, _rich())
    sample = Gst.Sample.new(buffer, None, None, None)
    with host.open(buffer) as batch:
        assert batch[0].results.model == "m"
    with pytest.raises(HostError, match="not writable") as caught, host.open(buffer) as batch:
        batch[0].results = FrameResults()
    assert caught.value.hint
    with pytest.raises(HostError, match="not writable"), host.open(buffer, write=True):
        pass
    assert gstinfer.read(sample).model == "m"


def test_drawing_changes_the_buffer(host):
    buffer = blank(caps_for("RGB", 64, 48))
    with host.open(buffer, write=True) as batch:
        batch[0].image.planes[0][0, 0] = (1, 2, 3)
    assert buffer.extract_dup(0, 4) == bytes([1, 2, 3, 100])


def test_a_frame_kept_too_long_fails_cleanly_and_its_arrays_live(host):
    buffer = blank(caps_for("RGB", 64, 48))
    with host.open(buffer) as batch:
        frame, array = batch[0], batch.images("rgb")[0]
    del buffer
    assert (array == 100).all()
    with pytest.raises(HostError, match="pixels"):
        frame.image.planes[0]
    with pytest.raises(HostError, match="results"):
        frame.results  # noqa: B018


def test_a_buffer_that_is_too_small(host):
    with pytest.raises(HostError, match="9216 bytes needed, 100 in the buffer"), host.open(
        Gst.Buffer.new_allocate(None, 100, None)
    ):
        pass


@pytest.mark.parametrize("format", ["AYUV", "P010_10BE", "I420_12LE", "GRAY16_LE", "ARGB"])
def test_other_formats_name_the_remedy(stream, format):
    with pytest.raises(ConfigError, match=f"{format}.*NV12") as caught:
        select(caps_for(format, 64, 48), stream)
    assert "videoconvert" in caught.value.hint


@pytest.mark.parametrize("text", ["audio/x-raw,format=S16LE,rate=8000,channels=1,layout=interleaved", "video/x-h264"])
def test_what_is_no_raw_video_is_refused(stream, text):
    with pytest.raises(ConfigError, match="not raw video"):
        select(Gst.Caps.from_string(text), stream)


@pytest.mark.parametrize(
    ("format", "height", "colorimetry", "matrix", "full"),
    [
        ("I420", 480, "", "bt601", False),
        ("I420", 720, "", "bt709", False),
        ("NV12", 480, "bt709", "bt709", False),
        ("NV12", 720, "bt601", "bt601", False),
        ("NV12", 720, "bt2020", "bt2020", False),
        ("I420", 720, "1:4:0:0", "bt601", True),
        ("I420", 720, "1:0:0:0", "bt709", True),
        ("I420", 480, "1:0:0:0", "bt601", True),
        ("I420", 480, "2:0:0:0", "bt601", False),
        ("I420", 480, "0:3:0:0", "bt709", False),
        ("GRAY8", 480, "", "bt601", True),
        ("RGB", 720, "", "rgb", True),
    ],
)
def test_colour_follows_the_caps(stream, format, height, colorimetry, matrix, full):
    caps = caps_for(format, 64, height, f",colorimetry=(string){colorimetry}" if colorimetry else "")
    color = SystemHost(caps, stream).format.color
    assert (color.matrix, color.full_range) == (matrix, full)


@pytest.mark.parametrize(
    ("more", "word"), [(",interlace-mode=interleaved", "interlaced"), (",pixel-aspect-ratio=4/3", "square")]
)
def test_interlaced_and_non_square_are_said_once(stream, caplog, more, word):
    video._say.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            SystemHost(caps_for("I420", 64, 48, more), stream)
    assert len(caplog.records) == 1 and word in caplog.text


def test_single_fields_are_refused(stream):
    caps = Gst.Caps.from_string(
        "video/x-raw(format:Interlaced),format=I420,width=64,height=48,framerate=30/1,interlace-mode=alternate"
    )
    with pytest.raises(ConfigError, match="one field") as caught:
        SystemHost(caps, stream)
    assert "deinterlace" in caught.value.hint


def test_unknown_write_meta(stream):
    with pytest.raises(ConfigError, match="write-meta='json'"):
        select(caps_for("RGB", 8, 8), stream, write_meta="json")


def test_offered_caps_hold_every_format():
    caps = Gst.Caps.from_string(caps_of("system"))
    for format in FORMATS:
        assert caps_for(format, 64, 48).can_intersect(caps)
    assert not caps_for("AYUV", 64, 48).can_intersect(caps)
    assert caps_of("system", "cuda") == f"{CAPS['system']}; {CAPS['cuda']}"
    assert CAPS["system"] == SystemHost.CAPS
