"""Parts of the DeepStream host that need no DeepStream: labels, layouts, payloads of the user metas, colours."""

from __future__ import annotations

import ctypes as C
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("gi")

from gstinfer.errors import HostError
from gstinfer.hosts.cuda import Plane
from gstinfer.hosts.deepstream import abi, libs, payload, surface
from gstinfer.hosts.deepstream.extras import cut, extra_of
from gstinfer.image import Device
from gstinfer.results import Detections, FrameResults, SegmentationMap, Tensors, Text

pytestmark = pytest.mark.gst


@given(st.text(max_size=200))
def test_labels_fit_and_stay_whole(label):
    raw = cut(label)
    assert len(raw) < abi.LABEL_SIZE and b"|" not in raw and b"\0" not in raw
    whole = label.replace("|", "/").replace("\0", "").encode("utf-8", "replace")
    assert whole.startswith(raw) and raw.decode() is not None
    # nothing is cut that would have fitted
    assert raw == whole or (len(whole) >= abi.LABEL_SIZE and len(raw) > abi.LABEL_SIZE - 5)


@pytest.mark.parametrize(("rotation", "sizes"), [(True, (552, 112)), (False, (544, 104))])
def test_sizes_of_structs(rotation, sizes):
    layout = abi.LAYOUTS[rotation]
    assert (layout.object.itemsize, layout.rect.itemsize) == sizes
    moved = 0 if rotation else 8
    offsets = {name: layout.object.fields[name][1] for name in ("box", "mask", "text", "label", "classifiers", "users")}
    assert offsets == {
        "box": 104,
        "mask": 216 - moved,
        "text": 240 - moved,
        "label": 344 - moved,
        "classifiers": 472 - moved,
        "users": 480 - moved,
    }
    assert C.sizeof(abi.FrameMeta) == 232 and abi.FrameMeta.infer_done.offset == 100
    assert C.sizeof(surface._Params) == 416 and surface._Params.data.offset == 40 and surface._Surface.frames.offset == 24


@pytest.mark.parametrize(("text", "want"), [("Version: 9.1", (True,)), ("7.1", (False,)), ("DeepStream 8.0", (False, True))])
def test_version_decides_what_is_expected(tmp_path, monkeypatch, text, want):
    (tmp_path / "version").write_text(text)
    monkeypatch.setenv("DEEPSTREAM_DIR", str(tmp_path))
    assert abi.expected() == want


def test_unknown_version(tmp_path, monkeypatch):
    (tmp_path / "version").write_text("Version: 31.0")
    monkeypatch.setenv("DEEPSTREAM_DIR", str(tmp_path))
    with pytest.raises(HostError, match=r"31\.0.*not known"):
        abi.expected()


def test_missing_library_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSTREAM_DIR", str(tmp_path))
    with pytest.raises(HostError, match="DEEPSTREAM_DIR"):
        libs.open_library("libnot_there_at_all.so")


class Box:
    """Stands for an NvDsUserMeta."""

    def __init__(self, data):
        self.meta = abi.UserMeta()
        self.meta.data = data

    @property
    def address(self):
        return C.addressof(self.meta)


def call(address, meta):
    return C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_void_p)(address)(meta.address, None)


def test_copies_share_a_payload_until_the_last_goes():
    copy, release = payload.functions()
    first = Box(payload.pack(FrameResults(texts=[Text("a cat")]), 4, 3))
    second = Box(call(copy, first))
    assert second.meta.data == first.meta.data
    call(release, first)
    assert not first.meta.data, "released: the field is cleared"
    assert payload.unpack(second.meta.data).texts[0].text == "a cat"
    call(release, second)
    call(release, second)  # a second release finds nothing


def test_payloads_on_many_threads():
    copy, release = payload.functions()
    first = Box(payload.pack(FrameResults(texts=[Text("x")]), 4, 3))

    def work():
        for _ in range(2000):
            mine = Box(call(copy, first))
            call(release, mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert payload.unpack(first.meta.data).texts[0].text == "x"
    call(release, first)


def test_class_maps_and_tensors_in_one_block():
    class_map = np.array([[0, 1], [2, -1]], np.int32)
    address = payload.segmentation(SegmentationMap(class_map, None, np.full((2, 2), 0.5, np.float32), 7))
    back = payload.read_segmentation(address)
    assert np.array_equal(back.class_map, class_map) and back.component_id == 7
    assert np.allclose(back.confidence[class_map >= 0], 0.5)
    payload.free(address)
    outputs = {"a": np.arange(5, dtype=np.float16), "b": np.zeros((0, 3), np.int32), "c": np.ones((1, 2, 2), np.uint8)}
    address = payload.tensors(Tensors(outputs, 9))
    back = payload.read_tensors(address)
    assert back.component_id == 9
    assert {k: (v.dtype, v.shape, v.tolist()) for k, v in back.outputs.items()} == {
        k: (v.dtype, v.shape, v.tolist()) for k, v in outputs.items()
    }
    payload.free(address)


def test_tensors_that_do_not_fit_are_refused():
    with pytest.raises(HostError, match="complex64"):
        payload.tensors(Tensors({"z": np.zeros(3, np.complex64)}))


def test_extras_are_what_no_struct_holds():
    plain = Detections([[0, 0, 5, 5]], label=["a"])
    assert extra_of(plain, 0) is None
    seen = Detections([[0, 0, 5, 5]], keypoints=[[[1, 1, 0.5]]], data={"e": [[1, 2]], "ds_object": [4]})
    extra = extra_of(seen, 0)
    assert extra.keypoints.shape == (1, 1, 3) and list(extra.data) == ["e"]
    unseen = Detections([[0, 0, 5, 5]], keypoints=[[[0, 0, -1]]])
    assert extra_of(unseen, 0) is None


def test_reads_are_finished_before_the_buffer_goes_on():
    """Kernels leave an event with the plane they read; the host waits for each once."""
    waited = []

    class Event:
        def synchronize(self):
            waited.append(self)

    hold = surface.Hold(None)
    plane = Plane(hold, 4096, (2, 2), (2, 1), 0, True)
    first, second = Event(), Event()
    plane.keep_until(first)
    plane.keep_until(second)
    hold.wait()
    hold.wait()
    assert waited == [first, second]


@pytest.mark.parametrize(("events", "want"), [(False, [3]), (True, [])])
def test_a_model_that_read_the_planes_itself_is_waited_for(monkeypatch, events, want):
    """Without an event of ours the default stream of the surface's own GPU is waited for, and no other."""
    waited = []

    def default_stream(index):
        return SimpleNamespace(synchronize=lambda: waited.append(index))

    cuda = SimpleNamespace(is_initialized=lambda: True, default_stream=default_stream)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = object.__new__(surface.Surface)
    found.hold, found.device = surface.Hold(None), Device("cuda", 3)
    if events:
        found.hold.events.append(SimpleNamespace(synchronize=lambda: None))
    found.finish_reads()
    assert waited == want


@pytest.mark.skipif(sys.maxsize < 2**32, reason="64-bit layouts")
def test_colour_formats_name_matrix_and_range():
    assert surface.COLOR_FORMATS[6][1].matrix == "bt601" and not surface.COLOR_FORMATS[6][1].full_range
    assert surface.COLOR_FORMATS[33][1].matrix == "bt709" and surface.COLOR_FORMATS[7][1].full_range
