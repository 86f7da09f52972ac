"""GstAnalytics, where this GStreamer has it."""

from __future__ import annotations

import numpy as np
import pytest
from gst_buffers import Gst, blank, caps_for

from gstinfer import Attribute, Classifications, ConfigError, Detections, FrameResults, SegmentationMap
from gstinfer.hosts.metas import MetaCodec, analytics

pytestmark = pytest.mark.gst

CAPS = caps_for("I420", 320, 240)
SIZE = (320, 240)
needed = pytest.mark.skipif(not analytics.available(), reason="this GStreamer has no GstAnalytics")


@pytest.mark.skipif(analytics.available(), reason="this GStreamer has GstAnalytics")
def test_without_the_library_it_is_refused_and_auto_takes_regions():
    with pytest.raises(ConfigError, match="GstAnalytics") as caught:
        MetaCodec("analytics")
    assert "roi" in caught.value.hint
    assert MetaCodec("auto").mode == "roi"
    assert analytics.length(blank(CAPS)) == 0


def test_an_incomplete_library_counts_as_none(monkeypatch):
    """Symbols decide: a library without the functions, here GLib under another name, is not used."""
    real = analytics.library
    monkeypatch.setattr(
        analytics, "library", lambda name: real("libglib-2.0.so.0" if "analytics" in name else name)
    )
    analytics._functions.cache_clear()
    try:
        assert not analytics.available()
    finally:
        monkeypatch.undo()
        analytics._functions.cache_clear()


def entries(buffer):
    import gi

    gi.require_version("GstAnalytics", "1.0")
    from gi.repository import GLib, GstAnalytics

    found = []
    for mtd in GstAnalytics.buffer_get_analytics_relation_meta(buffer) or ():
        kind = type(mtd).__name__
        if kind == "ODMtd":
            oriented = mtd.get_oriented_location()
            found.append((GLib.quark_to_string(mtd.get_obj_type()), *tuple(oriented)[1:]))
        elif kind == "TrackingMtd":
            found.append(("track", mtd.get_info()[1]))
        elif kind == "ClsMtd":
            found.append(tuple(GLib.quark_to_string(mtd.get_quark(i)) for i in range(mtd.get_length())))
        else:
            found.append((kind, mtd.get_region_count()))
    return found


@needed
def test_every_kind_is_written_and_replaced():
    results = FrameResults(
        detections=Detections(
            [[10, 20, 30, 50], [1, 1, 2, 2]], [0.5, 1], [2, 3], [7, -1], ["car", "person"],
            attributes=[(Attribute("red", 1, 0.5),), ()],
        ),
        classifications=[Classifications([1, 2], [0.75, 0.25], ["day", "night"])],
        segmentation=SegmentationMap(np.array([[-1, 0], [1, 1]]), ["road", "sky"]),
    )  # fmt: skip
    want = [
        ("car", 10, 20, 20, 30, 0.0, 0.5),
        ("track", 7),
        ("red",),
        ("person", 1, 1, 1, 1, 0.0, 1.0),
        ("day", "night"),
        ("SegmentationMtd", 3),
        ("background", "road", "sky"),
    ]
    buffer, codec = blank(CAPS), MetaCodec("auto")
    assert codec.mode == "analytics"
    for _ in range(2):
        codec.write(buffer, results, SIZE)
        assert entries(buffer) == want
    codec.write(buffer, FrameResults(), SIZE)
    assert entries(buffer) == []


@needed
def test_rotated_boxes_keep_their_angle():
    buffer = blank(CAPS)
    MetaCodec("analytics").write(buffer, FrameResults(detections=Detections(None, obb=[[50, 60, 40, 20, 0.5]])), SIZE)
    assert entries(buffer) == [("0", 30, 50, 40, 20, 0.5, 1.0)]


@needed
def test_others_entries_are_kept():
    import gi

    gi.require_version("GstAnalytics", "1.0")
    from gi.repository import GLib, GstAnalytics

    buffer = blank(CAPS)
    theirs = GstAnalytics.buffer_add_analytics_relation_meta(buffer)
    theirs.add_od_mtd(GLib.quark_from_string("theirs"), 1, 2, 3, 4, 0.5)
    results = FrameResults(detections=Detections([[10, 20, 30, 50]], label=["ours"]))
    MetaCodec("analytics").write(buffer, results, SIZE)
    assert [name for name, *_ in entries(buffer)] == ["theirs", "ours"]


@needed
def test_the_overlay_of_gstreamer_draws_ours(through):
    if Gst.ElementFactory.find("objectdetectionoverlay") is None:
        pytest.skip("no objectdetectionoverlay")
    caps = caps_for("RGB", *SIZE)

    def picture(*boxes):
        buffers = [blank(caps)]
        MetaCodec("analytics").write(buffers[0], FrameResults(detections=Detections(boxes)), SIZE)
        # In front of it 1.26 wants an element that answers allocation queries.
        (sample,) = through(caps, buffers, "videoconvert ! objectdetectionoverlay ! videoconvert ! video/x-raw,format=RGB")
        return np.frombuffer(sample.get_buffer().extract_dup(0, 240 * 960), np.uint8).reshape(240, 960)

    changed = (picture((40, 40, 200, 200)) != picture()).reshape(240, 320, 3).any(2)
    assert changed[38:43, 100].any() and changed[100, 38:43].any() and not changed[230:].any()
