"""Regions of interest for elements that are not ours."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
from gst_buffers import Gst, GstVideo, blank, caps_for

from gstinfer import Detections, FrameResults
from gstinfer.hosts.metas import MetaCodec, roi

pytestmark = pytest.mark.gst

CAPS = caps_for("I420", 320, 240)
OBJECTS = Detections([[10.4, 20.6, 30.5, 40.5], [300, 200, 400, 300]], [0.75, 0.5], [2, 7], [5, -1], ["cär", ""])


def regions(buffer, ours=True):
    return [
        (r.label, r.id, r.x, r.y, r.w, r.h) for r in roi.read(buffer) if (r.parent_id == roi.FRAME_ID) is ours
    ]


@pytest.fixture
def buffer():
    made = blank(CAPS)
    MetaCodec("roi").write(made, FrameResults(detections=OBJECTS), (320, 240))
    return made


def test_objects_become_regions(buffer):
    assert regions(buffer) == [("cär", 1, 10, 21, 20, 19), ("object", 2, 300, 200, 20, 40)]
    assert regions(buffer, ours=False) == [("gstinfer-frame", roi.FRAME_ID, 0, 0, 320, 240)]


def test_gstreamer_sees_label_and_parameters(buffer):
    meta = GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 1)
    assert (meta.x, meta.y, meta.w, meta.h, meta.parent_id) == (10, 21, 20, 19, roi.FRAME_ID)
    text = parameters(meta)
    assert "confidence=(double)0.75" in text and "label_id=(int)2" in text and "tracker_id=(gint64)5" in text


def test_writing_again_replaces_ours_and_keeps_others(buffer):
    GstVideo.buffer_add_video_region_of_interest_meta(buffer, "theirs", 1, 2, 3, 4)
    MetaCodec("roi").write(buffer, FrameResults(detections=OBJECTS[1]), (320, 240))
    assert regions(buffer) == [("object", 1, 300, 200, 20, 40)]
    assert [label for label, *_ in regions(buffer, ours=False)] == ["gstinfer-frame", "theirs"]
    MetaCodec("roi").write(buffer, FrameResults(), (320, 240))
    assert regions(buffer) == []


def parameters(meta):
    to_string = ctypes.CDLL("libgstreamer-1.0.so.0").gst_structure_to_string
    to_string.restype, to_string.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    structure = meta.get_param("detection")
    return to_string(hash(structure)).decode()


def test_regions_are_changed_in_place_with_their_parameters(buffer):
    found = [ctypes.addressof(r) for r in roi.read(buffer)]
    moved = Detections([[1, 2, 4, 6], [5, 5, 9, 9], [7, 8, 9, 10]], [0.25, 0.5, 1], [3, 4, 2**31 - 1], [2**40, 6, 7])
    MetaCodec("roi").write(buffer, FrameResults(detections=moved), (320, 240))
    assert regions(buffer) == [("3", 1, 1, 2, 3, 4), ("4", 2, 5, 5, 4, 4), ("2147483647", 3, 7, 8, 2, 2)]
    assert [ctypes.addressof(r) for r in roi.read(buffer)][:3] == found
    first, last = (GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, number) for number in (1, 3))
    assert "confidence=(double)0.25, label_id=(int)3, tracker_id=(gint64)1099511627776" in parameters(first)
    assert "confidence=(double)1, label_id=(int)2147483647, tracker_id=(gint64)7" in parameters(last)


def test_threads_that_write_as_many_regions_do_not_mix_them():
    def write(seed):
        rows = [[seed, seed + row, seed + 5, seed + row + 7] for row in range(9)]
        kept = []
        for _ in range(200):
            made = blank(CAPS)
            MetaCodec("roi").write(made, FrameResults(detections=Detections(rows, [seed / 8] * 9, [seed] * 9)), (320, 240))
            kept.append(regions(made))
        return kept == [[(str(seed), row + 1, seed, seed + row, 5, 7) for row in range(9)]] * 200

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write, range(1, 5)))


def test_changing_a_copy_leaves_the_original_as_it_was(buffer):
    copy = buffer.copy_deep()
    MetaCodec("roi").write(copy, FrameResults(detections=OBJECTS[1]), (320, 240))
    meta = GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, 1)
    assert len(regions(copy)) == 1 and len(regions(buffer)) == 2
    assert "confidence=(double)0.75" in parameters(meta)


def test_regions_follow_a_scaler(buffer, through):
    buffers = [buffer]
    del buffer
    (sample,) = through(CAPS, buffers, "videoscale ! video/x-raw,width=160,height=120")
    assert regions(sample.get_buffer())[1] == ("object", 2, 150, 100, 10, 20)
    assert roi.witness(sample.get_buffer()) == (0, 0, 160, 120)


def test_the_carrier_alone_writes_no_objects():
    buffer = blank(CAPS)
    MetaCodec("carrier").write(buffer, FrameResults(detections=OBJECTS), (320, 240))
    assert regions(buffer) == [] and roi.witness(buffer) == (0, 0, 320, 240)


@pytest.mark.parametrize("told", ["roi", "carrier"])
def test_auto_does_what_the_element_before_was_told(told):
    buffer = blank(CAPS)
    MetaCodec(told).write(buffer, FrameResults(detections=OBJECTS), (320, 240))
    MetaCodec("auto").write(buffer.copy_deep(), FrameResults(detections=OBJECTS[1]), (320, 240))
    MetaCodec("auto").write(buffer, FrameResults(detections=OBJECTS[1]), (320, 240))
    assert regions(buffer) == ([("object", 1, 300, 200, 20, 40)] if told == "roi" else [])


def test_no_witness_on_a_bare_buffer():
    assert roi.witness(Gst.Buffer.new()) is None and list(roi.read(Gst.Buffer.new())) == []
