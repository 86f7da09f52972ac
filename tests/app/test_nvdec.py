"""Sessions on GPUs, with stand-ins for nvcodec: the same pipelines, their CUDA memory being system memory."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")
sys.path.insert(0, str(Path(__file__).parent))

from nvcodec_standin import Nvdec0, Nvdec1, Nvdec444, NvdecBroken, nvcodec
from sessions import free_port, running, wait_for

from gstinfer import captures
from gstinfer.app import entry, sources
from gstinfer.app.branch import Branch
from gstinfer.app.placement import Decoder
from gstinfer.app.session import Job, Session
from gstinfer.elements.compat import Gst
from gstinfer.errors import ConfigError, ModelLoadError
from gstinfer.hosts.cuda import CudaHost
from gstinfer.image import Device

MODELS = """
import numpy as np
from gstinfer import Detections, Model

class Where(Model):
    def load(self, device):
        self.label = str(device)
    def predict(self, batch):
        assert all(np.asarray(plane).any() for frame in batch for plane in frame.image.planes)
        return [Detections(np.array([[4, 4, 20, 20]], np.float32), label=[self.label]) for _ in batch]

class There(Where):
    def load(self, device):
        self.label = f"there {device}"

class OnlyFirst(There):
    def load(self, device):
        if device.index:
            raise RuntimeError("no room on this one")
        super().load(device)
"""


@pytest.fixture
def models(tmp_path):
    (tmp_path / "m.py").write_text(MODELS)
    return f"{tmp_path}/m.py"


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs with NVDEC; ``gpus(name=class)`` has other decoders."""
    if Gst.ElementFactory.find("avdec_h264") is None:
        pytest.skip("gstreamer1.0-libav is not installed")
    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 2)
    monkeypatch.setattr(entry, "find_spec", lambda name: True)
    monkeypatch.setattr(CudaHost, "__init__", functools.partialmethod(CudaHost.__init__, cuda=False))
    return lambda **decoders: nvcodec(decoders or {"nvh264dec": Nvdec0, "nvh264device1dec": Nvdec1})


def elements(pipeline) -> list[str]:
    found, iterator = [], pipeline.iterate_recurse()
    while (item := iterator.next())[0] == Gst.IteratorResult.OK:
        if factory := item[1].get_factory():
            found.append(factory.get_name())
    return found


class Look:
    """Notes, when a stream ends, its elements and the caps that reached pyinfer, by stream."""

    def __init__(self, monkeypatch):
        self.elements, self.caps = {}, {}
        end = Branch._end

        def look(branch, error):
            if branch.element is not None:
                caps = branch.element.get_static_pad("sink").get_current_caps()
                self.elements[branch.source.stream_id] = elements(branch.pipeline)
                self.caps[branch.source.stream_id] = caps.to_string() if caps else ""
            end(branch, error)

        monkeypatch.setattr(Branch, "_end", look)


@pytest.fixture
def look(monkeypatch):
    return Look(monkeypatch)


def drawn(branch) -> int | None:
    """How many objects pyoverlay drew, one of which is on every frame; None without pyoverlay."""
    return branch.report()["elements"].get("pyoverlay", {}).get("objects")


def labels(path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for message in map(json.loads, path.read_text().splitlines()):
        found.setdefault(message["stream_id"], set()).update(o["label"] for o in message.get("objects", []))
    return found


def test_frames_stay_in_cuda_memory_from_nvdec_to_the_sink(bikes, models, gpus, tmp_path, look):
    with gpus():
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", publish=[f"file:{tmp_path}/o.jsonl"]))
        assert session.run(), session.branches[0].error
    branch = session.branches[0]
    assert branch.counts.frames == 250 and branch.warnings == [] and branch.report()["device"] == "cuda:0"
    found = look.elements["bikes"]
    assert "nvh264dec" in found and "memory:CUDAMemory" in look.caps["bikes"]
    assert not {"videoflip", "cudaupload", "cudadownload", "nvh264device1dec"} & set(found)
    # The stand-in's own decoder and converter are inside of it.
    assert found.count("videoconvert") == found.count("avdec_h264") == 1
    assert labels(tmp_path / "o.jsonl") == {"bikes": {"cuda:0"}}


def test_streams_are_spread_over_gpus_and_added_ones_too(bikes, models, gpus, tmp_path, look):
    job = Job(
        [str(bikes), "test:red?live=1", "test:blue?live=1"], f"{models}:Where", "cuda:0,cuda:1",
        stay=True, publish=[f"file:{tmp_path}/o.jsonl"], track="none",
    )  # fmt: skip
    with gpus():
        session = Session(job)
        with running(session) as outcome:
            wait_for(lambda: all(b.counts.frames for b in session.branches))
            session.remove_source("blue")
            wait_for(lambda: session.find("blue").state == "ended")
            wait_for(lambda: session.find("bikes").state == "ended")
            # cuda:1 has red, cuda:0 none.
            added = [session.add_source(str(bikes), f"more-{n}") for n in range(3)]
            wait_for(lambda: all(b.counts.frames for b in added))
            session.swap(f"{models}:There")
            wait_for(lambda: labels(tmp_path / "o.jsonl")["red"] == {"cuda:1", "there cuda:1"})
            with pytest.raises(ModelLoadError, match=r"cuda:1: .*no room on this one"):
                session.swap(f"{models}:OnlyFirst")
            assert session.model == f"{models}:There"
            assert {seat.infer["model"] for seat in session.seats} == {f"{models}:There"}
        assert outcome == [True], [b.error for b in session.branches]
    devices = {b.source.stream_id: str(b.seat.device) for b in session.branches}
    assert devices == {
        "bikes": "cuda:0", "red": "cuda:1", "blue": "cuda:0", "more-0": "cuda:0", "more-1": "cuda:0", "more-2": "cuda:1",
    }  # fmt: skip
    assert "nvh264device1dec" in look.elements["more-2"] and "nvh264dec" in look.elements["more-0"]
    assert [s["device"] for s in session.report()["streams"]] == list(devices.values())
    seen = labels(tmp_path / "o.jsonl")
    assert seen["bikes"] == {"cuda:0"} and all(set(v) <= {devices[k], f"there {devices[k]}"} for k, v in seen.items())


@pytest.mark.parametrize("output", [None, "o.mp4"])
def test_a_turned_video_comes_upright_through_system_memory(cases, models, gpus, tmp_path, output, look):
    target = f"{tmp_path}/{output}" if output else None
    video = cases / "media" / "rot90.mp4"
    plain = sources.probe(sources.parse(str(video)))
    assert plain.orientation == "rotate-90"
    with gpus():
        session = Session(Job([str(video)], f"{models}:Where", "cuda:0", output=target))
        assert session.run(), session.branches[0].error
    branch = session.branches[0]
    assert branch.counts.frames == plain.frames
    assert len(branch.warnings) == 1 and "turned (rotate-90) on the CPU" in branch.warnings[0]
    found, caps = look.elements["rot90"], look.caps["rot90"]
    assert {"nvh264dec", "cudadownload", "videoflip", "cudaupload"} <= set(found)
    assert "memory:CUDAMemory" in caps and "width=(int)128, height=(int)96" in caps
    assert branch.written == bool(output)
    assert drawn(branch) == (plain.frames if output else None)


def test_other_sources_are_copied_to_the_gpu_with_one_warning(cases, models, gpus, look):
    inputs = ["test:red?frames=5", str(cases / "media" / "exo_bear-vp9-odd-dimensions.webm")]
    with gpus():
        session = Session(Job(inputs, f"{models}:Where", "cuda:0", max_frames=5))
        assert session.run(), [b.error for b in session.branches]
    assert [b.counts.frames for b in session.branches] == [5, 5]
    assert [b.warnings for b in session.branches] == [
        ["its frames are made on the CPU; each frame is copied to cuda:0"],
        ["cuda:0 has no decoder for video/x-vp9; each frame is copied to cuda:0"],
    ]
    assert all("memory:CUDAMemory" in caps for caps in look.caps.values())


def test_a_format_that_is_not_read_is_converted(bikes, models, gpus):
    with gpus(nvh264dec=Nvdec444):
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", max_frames=5))
        assert session.run(), session.branches[0].error
    assert session.branches[0].counts.frames == 5 and "converted from Y444" in session.branches[0].warnings[0]


def test_what_nvdec_refuses_is_decoded_on_the_cpu(bikes, models, gpus, tmp_path):
    with gpus(nvh264dec=NvdecBroken):
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", output=f"{tmp_path}/o.mp4"))
        assert session.run(), session.branches[0].error
    branch = session.branches[0]
    assert branch.counts.frames == drawn(branch) == 250 and branch.written
    assert "NVDEC (nvh264dec) does not decode it" in branch.warnings[0] and "no decoder" in branch.warnings[1]


@pytest.mark.parametrize("more", [{"output": "o.mp4"}, {"output": "o.mp4", "tile": True}])
def test_pictures_are_drawn_and_written(bikes, models, gpus, tmp_path, more, look):
    more = {**more, "output": f"{tmp_path}/{more['output']}"}
    with gpus():
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", max_frames=30, **more))
        assert session.run(), session.branches[0].error or session.error
    assert session.branches[0].counts.frames == drawn(session.branches[0]) == 30
    assert (tmp_path / "o.mp4").stat().st_size > 1000
    assert "cudadownload" in look.elements["bikes"] and "cudaupload" not in look.elements["bikes"]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_the_cpu_never_touches_nvcodec(bikes, models, gpus, device, monkeypatch, look):
    made = []

    def note(self):
        made.append(self)
        raise AssertionError("NVDEC was made")

    with gpus():
        monkeypatch.setattr(Nvdec0, "__init__", note)
        monkeypatch.setattr(Nvdec1, "__init__", note)
        session = Session(Job([str(bikes)], f"{models}:Where", device, max_frames=5))
        assert session.run(), session.branches[0].error
    assert not made and not [name for name in look.elements["bikes"] if name.startswith(("nv", "cuda"))]
    assert session.branches[0].report()["device"] == "cpu"


def test_a_first_look_starts_no_nvdec(bikes, gpus, monkeypatch):
    seen, select = [], entry._select_cpu

    def note(device, decodebin, pad, caps, factory):
        answer = select(device, decodebin, pad, caps, factory)
        seen.append((factory.get_name(), answer))
        return answer

    monkeypatch.setattr(entry, "_select_cpu", note)
    with gpus():
        Gst.Registry.get().find_feature("nvh264dec", Gst.ElementFactory).set_rank(Gst.Rank.PRIMARY + 1)
        assert sources.probe(sources.parse(str(bikes)), Device("cuda")).frames == 250
    assert ("nvh264dec", entry.SKIP) in seen and ("avdec_h264", entry.TRY) in seen


def test_a_first_look_uses_nvdec_only_where_nothing_else_decodes(gpus, monkeypatch):
    caps = Gst.Caps.from_string("video/x-h264,stream-format=avc,alignment=au,profile=high")
    with gpus():
        nvdec, libav = map(Gst.ElementFactory.find, ("nvh264dec", "avdec_h264"))

        def tried(device):
            return [not entry._select_cpu(device, None, None, caps, factory) for factory in (nvdec, libav)]

        assert tried(Device("cuda")) == tried(Device()) == [False, True]
        monkeypatch.setattr(entry, "decoders_for", lambda caps, device: [Decoder("nvh264dec", 0)])
        assert tried(Device("cuda")) == [True, False] and tried(Device()) == [False, False]


def test_an_element_that_is_missing_on_the_way_is_named(cases, models, gpus, monkeypatch):
    def make(bin, factory, **values):
        raise ConfigError(f"GStreamer has no element {factory!r}")

    monkeypatch.setattr(entry, "make", make)
    with gpus():
        session = Session(Job([str(cases / "media" / "rot90.mp4")], f"{models}:Where", "cuda:0"))
        assert not session.run()
    assert session.branches[0].error == "GStreamer has no element 'cudadownload'"


@pytest.mark.parametrize(("settings", "room"), [((), 20), (("frames-in-flight=6",), 18)])
def test_a_decoder_with_surfaces_of_its_own_gets_enough_for_all_frames_that_wait(bikes, models, gpus, settings, room):
    before = len(Nvdec1.surfaces)
    with gpus():
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:1", settings, max_frames=20))
        assert session.run(), session.branches[0].error
    assert session.branches[0].counts.frames == 20 and Nvdec1.surfaces[before:] == [room]


def test_without_nvcodec_the_model_copies_frames_itself(bikes, models, gpus):
    session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", max_frames=5))
    assert session.run(), session.branches[0].error
    assert session.branches[0].counts.frames == 5
    assert "no nvcodec elements" in session.branches[0].warnings[0]


def test_without_torch_and_cupy_nothing_could_read_what_nvdec_gives(bikes, models, gpus, monkeypatch, look):
    monkeypatch.setattr(entry, "find_spec", lambda name: name == "torch")
    with gpus():
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", max_frames=5))
        assert session.run(), session.branches[0].error
    assert session.branches[0].counts.frames == 5 and "avdec_h264" in look.elements["bikes"]
    assert "gstinfer[torch]" in session.branches[0].warnings[0]


def test_a_camera_that_returns_is_decoded_by_nvdec_again(camera, models, gpus, look):
    port = free_port()
    server = camera(port, "door", "ball")
    with gpus():
        session = Session(Job([f"rtsp://127.0.0.1:{port}/door"], f"{models}:Where", "cuda:1"))
        with running(session) as outcome:
            branch = session.branches[0]
            wait_for(lambda: branch.counts.frames > 5)
            server.kill()
            wait_for(lambda: branch.state == "connecting")
            frames = branch.counts.frames
            camera(port, "door", "ball")
            wait_for(lambda: branch.counts.frames > frames + 5)
            found = elements(branch.pipeline)
        assert outcome == [True], branch.error
    assert branch.report()["reconnects"] == 1 and branch.report()["device"] == "cuda:1"
    # A camera's backlog of 30 is more than a file's, after a reconnect as before.
    assert Nvdec1.surfaces[-2:] == [39, 39]
    assert "nvh264device1dec" in found and "cudaupload" not in found and "memory:CUDAMemory" in look.caps["door"]


def test_no_graph_is_captured_while_a_decoder_opens_or_closes(bikes, models, gpus, monkeypatch):
    seen = []

    def noted(name, function):
        def call(*arguments):
            result = function(*arguments)
            seen.append((name, len(captures._changing)))
            return result

        return call

    for name in ("begin_change", "end_change"):
        monkeypatch.setattr(captures, name, noted(name, getattr(captures, name)))
    monkeypatch.setattr(captures, "_changing", {})
    with gpus():
        session = Session(Job([str(bikes)], f"{models}:Where", "cuda:0", max_frames=20))
        assert session.run(), session.branches[0].error
    # It opens, gives its first frame, and closes.
    assert [name for name, _ in seen] == ["begin_change", "end_change"] * 2
    assert [count for _, count in seen] == [1, 0, 1, 0]


def test_a_decoder_waits_until_a_graph_is_captured(bikes, models, gpus):
    with gpus(), running(session := Session(Job(["test:ball?live=1"], f"{models}:Where", "cuda:0", stay=True))) as outcome:
        wait_for(lambda: session.find("ball").counts.frames > 3)
        with captures.capture():
            added = session.add_source(str(bikes), "added")
            frames = session.find("ball").counts.frames
            # The others go on, and it does not.
            wait_for(lambda: session.find("ball").counts.frames > frames + 15)
            assert not added.counts.frames
        wait_for(lambda: added.counts.frames == 250)
    assert outcome == [True]
