"""Results on real buffers through real elements."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from gst_buffers import Gst, blank, caps_for

import gstinfer
from gstinfer import Classifications, Detections, FrameResults, HostError, Mask, SegmentationMap, Text
from gstinfer.hosts.gstbuffer import Mapping
from gstinfer.hosts.metas import MetaCodec, carrier, roi
from gstinfer.hosts.system import SystemHost

pytestmark = pytest.mark.gst

SIZE = (320, 240)
CAPS = caps_for("I420", *SIZE)
BOX = [32.5, 48.25, 160.75, 120.0]


def found() -> FrameResults:
    results = FrameResults("m", True, stream_id="door")
    results.detections = Detections(
        [BOX], [0.75], [2], [-1], ["cär"], [15], [Mask(40, 60, np.ones((40, 80), bool))],
        [[96, 84, 60, 30, 0.25]], [[[40, 60, 0.5]]],
    )  # fmt: skip
    results.add(Classifications([1], [0.5], ["day"]))
    results.add(Text("a car"))
    return results


def labelled(size=SIZE, format="I420", results=None, aspect=1.0):
    buffer = blank(caps_for(format, *size))
    carrier.write(buffer, results or found(), *size, aspect)
    return buffer


@pytest.fixture(autouse=True)
def fresh_warnings():
    carrier._warned.clear()


@pytest.mark.parametrize(
    "elements",
    [
        "identity",
        "queue",
        "tee name=t t. ! queue ! fakesink t. ! queue",
        "videoconvert ! video/x-raw,format=RGB",
        "videoconvert ! video/x-raw,format=RGB ! videoconvert ! video/x-raw,format=NV12",
        "videobalance saturation=0.5",
        "videorate ! video/x-raw,framerate=15/1",
        "x264enc tune=zerolatency ! avdec_h264",
        "x264enc tune=zerolatency ! h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format=RGB",
        "jpegenc ! jpegdec",
        "vp8enc deadline=1 ! vp8dec",
    ],
)
def test_results_survive(through, caplog, elements):
    for sample in through(CAPS, [labelled() for _ in range(3)], elements):
        for results in (gstinfer.read(sample), gstinfer.read(sample.get_buffer())):
            assert results.detections.xyxy.tolist() == [BOX]
            assert results.detections.tracker_id.tolist() == [-1] and results.detections.label == ["cär"]
            assert (results.model, results.stream_id, results.texts[0].text) == ("m", "door", "a car")
            assert results.classifications[0].label == ["day"]
    assert not caplog.records


@pytest.mark.parametrize("size", [(160, 120), (640, 480), (333, 249), (321, 241)])
def test_boxes_follow_a_scaler(through, caplog, size):
    elements = f"videoconvert ! videoscale ! video/x-raw,format=RGB,width={size[0]},height={size[1]}"
    (sample,) = through(CAPS, [labelled()], elements)
    sx, sy = size[0] / SIZE[0], size[1] / SIZE[1]
    for results in (gstinfer.read(sample), gstinfer.read(sample.get_buffer())):
        found = results.detections
        np.testing.assert_allclose(found.xyxy, [np.array(BOX) * [sx, sy, sx, sy]], rtol=1e-5)
        np.testing.assert_allclose(found.keypoints[0, 0], [40 * sx, 60 * sy, 0.5], rtol=1e-5)
        np.testing.assert_allclose(found.obb[0, :2], [96 * sx, 84 * sy], rtol=1e-5)
        full = found.mask[0].to_frame(*size)
        assert full[int(80 * sy), int(80 * sx)] and not full[int(55 * sy), int(80 * sx)]
    assert not caplog.records


def test_a_scaler_that_keeps_the_shape_by_the_pixels(through):
    (sample,) = through(CAPS, [labelled()], "videoscale ! video/x-raw,width=160,height=160")
    np.testing.assert_allclose(
        gstinfer.read(sample).detections.xyxy, [np.array(BOX) * [0.5, 160 / 240, 0.5, 160 / 240]], rtol=1e-5
    )


def test_borders_are_noticed_where_the_caps_are_known(through, caplog):
    elements = "videoscale ! video/x-raw,width=160,height=160,pixel-aspect-ratio=1/1"
    (sample,) = through(CAPS, [labelled()], elements)
    assert gstinfer.read(sample).detections is None
    assert "borders" in caplog.text


@pytest.mark.parametrize(
    "elements",
    [
        "videocrop left=20",
        "videocrop left=20 ! videoscale ! video/x-raw,width=320,height=240",
        "videobox left=-20",
        "videoflip video-direction=horiz",
        "videoflip video-direction=90r",
    ],
)
def test_a_crop_or_flip_gives_no_boxes_and_one_warning(through, caplog, elements):
    results = found()
    results.add(SegmentationMap(np.zeros((2, 2))))
    with caplog.at_level(logging.WARNING):
        samples = through(CAPS, [labelled(results=results) for _ in range(3)], elements)
        seen = [gstinfer.read(sample) for sample in samples]
    assert [r.detections for r in seen] == [None] * 3 and seen[0].segmentation is None
    assert [r.texts[0].text for r in seen] == ["a car"] * 3
    assert len(caplog.records) == 1 and "320x240" in caplog.text and "crop" in caplog.text
    # Nothing is known, which is not that nothing was found.
    assert [r.inferred for r in seen] == [None] * 3


def test_a_region_that_no_longer_spans_the_frame(caplog):
    buffer = labelled()
    roi.mark_frame(buffer, 300, 240)
    assert carrier.read(buffer, SIZE).detections is None
    assert "300x240" in caplog.text


def test_an_element_behind_a_scaler_reads_scaled_results(stream, through):
    (sample,) = through(CAPS, [labelled()], "videoscale ! video/x-raw,width=160,height=120")
    host = SystemHost(sample.get_caps(), stream)
    buffer = sample.get_buffer().copy_deep()
    with host.open(buffer) as batch:
        results = batch[0].results
        assert results.detections.xyxy.tolist() == [[v / 2 for v in BOX]]
        results.detections.tracker_id = np.array([5])
    again = carrier.read(buffer, (160, 120))
    assert again.detections.xyxy.tolist() == [[v / 2 for v in BOX]] and again.detections.tracker_id.tolist() == [5]


def test_a_pad_probe_reads(through):
    seen = []
    pipeline = Gst.parse_launch("appsrc name=src format=time ! queue ! fakesink name=sink")
    pipeline.get_by_name("src").set_property("caps", CAPS)

    def probe(pad, info):
        seen.append(gstinfer.read(info.get_buffer()))
        return Gst.PadProbeReturn.OK

    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    pipeline.set_state(Gst.State.PLAYING)
    for buffer in (labelled(), blank(CAPS)):
        pipeline.get_by_name("src").emit("push-buffer", buffer)
    pipeline.get_by_name("src").emit("end-of-stream")
    pipeline.get_bus().timed_pop_filtered(5 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    assert seen[0].detections.xyxy.tolist() == [BOX] and seen[1] is None


def test_a_read_map_behind_a_tee_copies_nothing():
    places: dict[str, set[int]] = {"a": set(), "b": set()}
    pipeline = Gst.parse_launch(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64 ! tee name=t "
        "t. ! queue ! fakesink name=a t. ! queue ! fakesink name=b"
    )

    def probe(pad, info, name):
        buffer = info.get_buffer()
        places[name].add((buffer.pts, Mapping(buffer).__array_interface__["data"][0]))
        return Gst.PadProbeReturn.OK

    for name in places:
        pipeline.get_by_name(name).get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe, name)
    pipeline.set_state(Gst.State.PLAYING)
    pipeline.get_bus().timed_pop_filtered(5 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    assert len(places["a"]) == 3 and places["a"] == places["b"]


def test_writing_again_replaces(stream):
    buffer = labelled()
    carrier.write(buffer, FrameResults("second"), *SIZE)
    assert gstinfer.read(buffer) == FrameResults("second")


def test_a_copy_keeps_its_own_results():
    buffer = labelled()
    copy = buffer.copy_deep()
    carrier.write(copy, FrameResults("second"), *SIZE)
    assert (gstinfer.read(buffer).model, gstinfer.read(copy).model) == ("m", "second")


def test_what_cannot_be_written_leaves_the_buffer_as_it_is():
    buffer = labelled()
    bad = FrameResults("bad", detections=Detections([[1, 2, 3, 4]], data={"x": [object()]}))
    with pytest.raises(HostError):
        MetaCodec().write(buffer, bad, SIZE)
    assert gstinfer.read(buffer).model == "m"


def test_a_shared_buffer_is_refused():
    buffer = blank(CAPS)
    holder = Gst.Sample.new(buffer, None, None, None)
    with pytest.raises(HostError, match="not writable"):
        carrier.write(buffer, found(), *SIZE)
    assert gstinfer.read(holder) is None


@pytest.mark.parametrize("mode", ["auto", "carrier", "roi"])
def test_three_hundred_objects(mode):
    boxes = np.random.default_rng(3).uniform(0, 100, (300, 4)).astype(np.float32)
    buffer = blank(CAPS)
    results = FrameResults(detections=Detections(boxes, label=[f"c{n}" for n in range(300)], tracker_id=range(300)))
    MetaCodec(mode).write(buffer, results, SIZE)
    read = gstinfer.read(buffer).detections
    np.testing.assert_array_equal(read.xyxy, boxes)
    assert read.label[299] == "c299" and read.tracker_id[299] == 299


def test_nothing_is_leaked_over_many_writes():
    import resource

    buffer, results = blank(CAPS), found()
    results.detections.mask = [Mask(0, 0, np.ones((400, 800), bool))]

    def grown() -> int:
        for _ in range(1500):
            MetaCodec("roi").write(buffer, results, SIZE)
            carrier.read(buffer)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = grown()
    # A record has 40 kB: a leak of one in ten writes would show as 6 MB.
    assert grown() - before < 4000
