# SPDX-License-Identifier: Apache-2.0
"""pyinfer in nvinfer's place, on the stand-in: batches, streams, events, other elements, wrong inputs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support import balanced, run, source

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]
UNTRACKED = 2**64 - 1
MEAN = "pyinfer device=cpu model=deepstream_models:Mean"
DETECT = "pyinfer device=cpu model=deepstream_models:Detect"
END = "standinprobe ! fakesink name=sink"


def objects(told, batch=0, frame=0):
    """Objects of one frame in the order in which they were written."""
    return told.dumps()[batch]["batch"]["frames"][frame]["objects"][::-1]


# Pixels


@pytest.mark.parametrize(
    ("form", "red", "blue"),
    [
        ("NV12", 255, 0),
        ("NV12,colorimetry=bt709", 255, 0),
        ("NV12,colorimetry=1:4:0:0", 238, 16),
        ("RGBA", 255, 0),
        ("RGB", 255, 0),
    ],
)
def test_formats_and_padded_rows(make_standin, form, red, blue):
    """The padding bytes, 0xCD, would show in the mean of red. videotestsrc paints 16..235 whatever the range says."""
    pipeline = f"standinmux name=m batch-size=2 ! {MEAN} ! {END} " + source(1, form, 162, 122) + source(
        1, form, 162, 122, 1, "blue"
    )
    told = run(make_standin(), pipeline)
    assert told.error is None
    classes = [objects(told, 0, k)[0]["class_id"] for k in (0, 1)]
    assert abs(classes[0] - red) <= 2 and abs(classes[1] - blue) <= 2


@pytest.mark.parametrize("memory", ["system", "pinned", "unified", "surface-array"])
def test_memory_the_cpu_reads(make_standin, memory):
    told = run(make_standin(), f"standinmux name=m mem-type={memory} gpu-id=1 ! {MEAN} ! {END} {source(2)}")
    assert told.error is None and objects(told)[0]["class_id"] >= 253


def test_new_mux_frames_of_different_size(standin):
    """Partial batches, no pipeline size, two frames of one source in a batch."""
    pipeline = (
        f"standinmux name=m mode=new batch-size=4 fill=3 frames-per-source=2 source-id-offset=7 ! {MEAN} ! {END} "
        + source(2, "RGBA", 100, 50)
        + source(2, "RGBA", 64, 48, 1)
    )
    told = run(standin, pipeline, read="[f.stream_id, f.detections.xyxy.tolist(), f.inferred, f.model]")
    assert told.error is None
    assert [len(d["batch"]["frames"]) for d in told.dumps()] == [3, 1]
    assert told.frames[0] == [
        ["7", [[0, 0, 50, 25]], True, "deepstream_models:Mean"],
        ["8", [[0, 0, 32, 24]], True, "deepstream_models:Mean"],
        ["7", [[0, 0, 50, 25]], True, "deepstream_models:Mean"],
    ]
    balanced(told)


# Batches


@pytest.mark.parametrize(("setting", "sizes"), [("", [3, 3, 3]), ("batch-size=2", [2, 2, 1]), ("batch-size=8", [3, 3, 3])])
def test_batches_are_split_at_batch_size(make_standin, setting, sizes):
    pipeline = f"standinmux name=m batch-size=3 ! {MEAN} {setting} batch-timeout=0 ! {END} " + "".join(
        source(2, pad=k) for k in range(3)
    )
    told = run(make_standin(), pipeline)
    assert told.error is None
    frames = told.dumps()[0]["batch"]["frames"]
    assert [round(f["objects"][0]["confidence"] * 100) for f in frames] == sizes


def test_interval_leaves_frames_to_the_tracker(standin):
    told = run(standin, f"standinmux name=m ! {DETECT} name=infer interval=2 ! standintracker ! {END} {source(6)}")
    assert told.error is None
    frames = [line["frames"][0] for line in told.run.kind("tracker")]
    assert [f["detection_done"] for f in frames] == [True, False, False] * 2
    assert [f["tracked"] for f in frames] == [2, 0, 0] * 2
    assert [f["predicted"] for f in frames] == [0, 2, 2] * 2
    assert all(f["already_tracked"] == 0 and sorted(f["ids"]) == [1, 2] for f in frames)
    assert told.stats["infer"]["skipped"] == 4


def test_nothing_found_is_still_inferred(standin):
    element = "pyinfer device=cpu model=deepstream_models:Nothing"
    told = run(standin, f"standinmux name=m ! {element} ! standintracker ! {END} {source(2)}")
    assert [line["frames"][0]["detection_done"] for line in told.run.kind("tracker")] == [True, True]


def test_several_batches_in_flight(standin):
    pipeline = f"standinmux name=m batch-size=2 ! {DETECT} frames-in-flight=3 ! {END} " + source(20) + source(20, pad=1)
    told = run(standin, pipeline)
    assert told.error is None
    dumps = told.dumps()
    assert [f["frame_num"] for d in dumps for f in d["batch"]["frames"]] == [n for n in range(20) for _ in (0, 1)]
    assert all(f["infer_done"] and len(f["objects"]) == 2 for d in dumps for f in d["batch"]["frames"])
    balanced(told)
    assert told.run.counters["batch_copied"] == 0
    lines = [(line["kind"], line.get("number")) for line in told.run.lines if line["kind"] in ("dump", "event", "eos")]
    assert lines[-3:] == [("event", 402), ("event", 402), ("eos", None)] and lines[-4][0] == "dump"


# Streams

STREAMS = """
    element = pipeline.get_by_name("infer")
    seen = []
    class Watcher:
        def __init__(self, stage): self.stage = stage
    start = element.make_stage
    def make(settings):
        stage = start(settings)
        reset = stage.reset
        def told(stream):
            frames.append(stream)
            reset(stream)
        stage.reset = told
        return stage
    element.make_stage = make
"""


def test_events_reset_their_source(make_standin):
    pipeline = (
        f"standinmux name=m batch-size=2 source-id-offset=5 ! {DETECT} name=infer ! {END} "
        + source(3)
        + source(1, pad=1)
    )
    told = run(make_standin(), pipeline, prepare=STREAMS)
    assert told.error is None
    # pad added twice; the shorter source ends; the longer; then EOS resets what was seen
    sources = [s for s in told.frames if s in ("5", "6")]
    assert sources[:2] == ["5", "6"] and sources[2] == "6" and sources[3] == "5" and set(sources[4:]) == {"5", "6"}


# Other elements


def test_tracker_display_and_messages(standin):
    pipeline = (
        f"standinmux name=m batch-size=2 ! {DETECT} ! standintracker ! standinosd ! standinmsgconv ! {END} "
        + source(4)
        + source(4, pad=1)
    )
    told = run(standin, pipeline)
    assert told.error is None
    balanced(told)
    assert [o["text_params"]["display_text"] for o in objects(told)] == ["car 2", "person 1"]
    assert all(line["problems"] == [] for kind in ("osd", "msgconv") for line in told.run.kind(kind))


def test_pytrack_writes_ids(standin):
    told = run(standin, f"standinmux name=m ! {DETECT} interval=1 ! pytrack ! standinosd ! {END} {source(4)}")
    assert told.error is None
    balanced(told)
    assert [[o["object_id"] for o in objects(told, k)] for k in range(4)] == [[1, 2]] * 4
    first, second = objects(told)[0], objects(told, 1)[0]
    assert first["text_params"]["display_text"] == "car 1"
    assert first["tracker_bbox"] == first["detector_bbox"] == [10, 20, 40, 40]
    assert not told.dumps()[1]["batch"]["frames"][0]["infer_done"]
    assert abs(second["rect_params"]["left"] - 10) < 1


def test_pypublish_speaks_of_every_frame(make_standin, tmp_path):
    import json

    path = tmp_path / "out.jsonl"
    pipeline = f"standinmux name=m batch-size=2 ! {DETECT} interval=1 ! pypublish url=file:{path} ! {END} "
    pipeline += source(2) + source(2, pad=1)
    told = run(make_standin(), pipeline)
    assert told.error is None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(m["stream_id"], m["inferred"]) for m in lines] == [("0", True), ("1", True), ("0", False), ("1", False)]
    assert [len(m.get("objects", ())) for m in lines] == [2, 2, 0, 0]
    assert lines[0]["objects"][0]["bbox"] == [10, 20, 50, 60] and lines[0]["objects"][0]["tracker_id"] is None
    assert lines[0]["model"] == "deepstream_models:Detect" and lines[2]["sequence"] == 1


def test_pyoverlay_names_nvdsosd(make_standin):
    told = run(make_standin(), f"standinmux name=m ! {DETECT} ! pyoverlay ! {END} {source(2)}")
    assert told.error and "nvdsosd" in told.error


def test_objects_of_another_element_are_read(standin):
    """nvinfer's objects, as the reference writer makes them, with a tracker's ids, get attributes of ours."""
    pipeline = (
        "standinmux name=m ! standindetector objects=2 ! standintracker ! pyinfer device=cpu process-mode=2 unique-id=3 "
        f"infer-on-gie-id=15 input-object-min-width=2 model=deepstream_models:Color ! {END} {source(3)}"
    )
    read = "[f.detections.tracker_id.tolist(), f.detections.label, [[a.label for a in w] for w in f.detections.attributes]]"
    told = run(standin, pipeline, read=read)
    assert told.error is None
    balanced(told)
    ids, labels, words = told.frames[0][0]
    assert (sorted(ids), labels, words) == ([1, 2], ["thing", "thing"], [["red"], ["red"]])
    classifier = objects(told)[0]["classifiers"][0]
    assert (classifier["unique_component_id"], classifier["labels"][0]["result_label"]) == (3, "red")
    assert objects(told)[0]["object_id"] in (1, 2)


def test_two_detectors_join(standin):
    second = DETECT.replace("Detect", "Pose")
    pipeline = f"standinmux name=m ! {DETECT} ! {second} unique-id=16 ! standinosd ! {END} {source(2)}"
    told = run(standin, pipeline, read="[f.detections.component_id.tolist(), f.model]")
    assert told.error is None
    balanced(told)
    assert told.frames[0][0] == [[15, 15, 16, 16], "deepstream_models:Pose"]
    assert [o["label"] for o in objects(told)] == ["car", "person", "person", "person"]


REPLACED = """
    from dataclasses import replace
    from types import SimpleNamespace
    from gstinfer.hosts.deepstream import DeepStreamHost
    from gstinfer.results import Attribute
    steps = ["dark", "light", None]
    def probe(pad, info):
        stream = SimpleNamespace(stream_id="0", source="", component_id=15, sequence=0)
        host = DeepStreamHost(pad.get_current_caps(), stream, device="cpu")
        for word in steps:
            with host.open(info.get_buffer()) as batch:
                for frame in batch:
                    found = frame.results.detections
                    words = [tuple(a for a in row if a.component_id != 20) for row in found.attributes]
                    if word:
                        words = [(*row, Attribute(word, 1, 0.5, 20)) for row in words]
                    frame.results = replace(frame.results, detections=found.with_columns(attributes=words))
            if word == "light":
                frames.append([[a.label for a in row] for f in gstinfer.read_frames(info.get_buffer())
                               for row in f.detections.attributes])
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("after").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
"""


@pytest.mark.parametrize("last", ["light", "gone"])
def test_replaced_attributes_take_the_old_classifier_with_them(standin, last):
    """Words of component 20 are written, written anew and, the second time, removed; those of 21 stay."""
    prepare = REPLACED if last == "gone" else REPLACED.replace(', None]', "]")
    pipeline = (
        f"standinmux name=m ! {DETECT} ! pytrack ! pyinfer device=cpu process-mode=2 unique-id=21 infer-on-gie-id=15 "
        f"model=deepstream_models:Color ! identity name=after ! {END} {source(2)}"
    )
    told = run(standin, pipeline, prepare=prepare)
    assert told.error is None
    balanced(told)
    assert told.frames == [[["red", "light"]] * 2] * 2
    for found in objects(told):
        words = [(c["unique_component_id"], [x["result_label"] for x in c["labels"]]) for c in found["classifiers"][::-1]]
        assert words == [(21, ["red"])] + ([(20, ["light"])] if last == "light" else [])
    # behind the tracker's number, as nvinfer's classifier writes it
    tail = " light" if last == "light" else ""
    assert [o["text_params"]["display_text"] for o in objects(told)] == [f"car 1 red{tail}", f"person 2 red{tail}"]


def test_nothing_is_left_of_an_earlier_batch(standin):
    """Records are filled in memory that is used again: masks, angles and ids of one batch must not show in the next."""
    pipeline = f"standinmux name=m ! pyinfer device=cpu model=deepstream_models:{{}} ! {END} {source(6)}"
    mixed, plain = (run(standin, pipeline.format(model)) for model in ("Alternate", "Detect"))
    several = run(standin, pipeline.format("Several"))
    assert not (mixed.error or plain.error or several.error)
    for number in (1, 4):
        assert objects(mixed, number) == objects(plain, number)
    for number in (2, 5):
        assert objects(mixed, number) == objects(several, number)
    assert objects(mixed, 0) == objects(mixed, 3)


# Wrong inputs: one clear error each

WRONG = {
    "no-meta": ("standinmux name=m fault=no-meta ! {e} ! {end} {s}", "nvstreammux"),
    "system-memory": ("standinmux name=m fault=system-memory ! {e} ! {end} {s}", "not an NvBufSurface"),
    "short-list": ("standinmux name=m batch-size=2 fault=short-list ! {e} ! {end} {s} {t}", "surface list holds 1"),
    "device-memory": ("standinmux name=m mem-type=device ! {e} ! {end} {s}", "nvvideoconvert nvbuf-memory-type"),
    "another-gpu": (
        "standinmux name=m mem-type=device gpu-id=1 ! pyinfer device=cuda:0 model=deepstream_models:Nothing ! {end} {s}",
        "GPU 1",
    ),
    "gpu-id": (
        "standinmux name=m mem-type=device gpu-id=1 ! pyinfer device=cuda gpu-id=2 model=deepstream_models:Nothing ! {end} {s}",
        "GPU 2",
    ),
    "surface-array": (
        "standinmux name=m mem-type=surface-array ! pyinfer device=cuda model=deepstream_models:Nothing ! {end} {s}",
        "nvvideoconvert compute-hw=GPU nvbuf-memory-type=2",
    ),
    "format": ("standinmux name=m color-format=2 ! {e} ! {end} {s}", "does not fit|planes"),
    "format-unknown": ("standinmux name=m color-format=99 ! {e} ! {end} {s}", "surface list holds 0|ColorFormat"),
}


GPUS = """
    from gstinfer import gpu
    gpu.device_count = lambda: 4
"""


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_clear_error(make_standin, case):
    import re

    pipeline, words = WRONG[case]
    told = run(make_standin(), pipeline.format(e=DETECT, end=END, s=source(2), t=source(2, pad=1)), prepare=GPUS)
    if case == "format" and told.error is None:
        pytest.skip("the stand-in made a frame of that format")
    assert told.error is not None and re.search(words, told.error), told.error
    counters = told.run.counters
    assert counters["batch_created"] == counters["batch_destroyed"]


def test_an_empty_batch_passes(make_standin):
    told = run(make_standin(), f"standinmux name=m fault=empty ! {DETECT} ! {END} {source(2)}")
    assert told.error is None or "surface list holds 0" in told.error


@pytest.mark.parametrize("model", ["Raises", "Unwritable"])
def test_an_exception_leaves_the_batch_meta_as_it_came(standin, model):
    """With on-error=pass the failing batch goes on; results that cannot be written are an error of the element."""
    element = f"pyinfer device=cpu on-error=pass model=deepstream_models:{model}"
    pipeline = f"standinmux name=m batch-size=2 ! {element} ! {END} " + source(4) + source(4, pad=1)
    told = run(standin, pipeline)
    dumps = [d["batch"]["frames"] for d in told.dumps()]
    if model == "Raises":
        assert told.error is None and told.warnings
        assert [[(f["infer_done"], len(f["objects"])) for f in frames] for frames in dumps] == [
            [(True, 1)] * 2,
            [(True, 1)] * 2,
            [(False, 0)] * 2,
            [(True, 1)] * 2,
        ]
    else:
        assert told.error is not None and "data" in told.error
        assert dumps == []
    balanced(told)


def test_unknown_version(make_standin, tmp_path):
    """The version file is read from DEEPSTREAM_DIR; libraries of it are used all the same by the stand-in's plugins."""
    standin = make_standin()
    (tmp_path / "lib").symlink_to(standin.directory / "lib")
    (tmp_path / "version").write_text("Version: 27.3\n")
    told = run(standin, f"standinmux name=m ! {DETECT} ! {END} {source(2)}", DEEPSTREAM_DIR=str(tmp_path))
    assert told.error and "27.3" in told.error and "not known" in told.error


def test_version_and_layout_disagree(make_standin, tmp_path):
    standin = make_standin(rotation=False)
    (tmp_path / "lib").symlink_to(standin.directory / "lib")
    (tmp_path / "version").write_text("Version: 9.1\n")
    told = run(standin, f"standinmux name=m ! {DETECT} ! {END} {source(2)}", DEEPSTREAM_DIR=str(tmp_path))
    assert told.error and "NvDsObjectMeta has 544 bytes" in told.error
    assert objects_written(told) == 0


def test_no_version_file(standin, tmp_path):
    """The self-check alone decides."""
    (tmp_path / "lib").symlink_to(standin.directory / "lib")
    told = run(standin, f"standinmux name=m ! {DETECT} ! {END} {source(2)}", DEEPSTREAM_DIR=str(tmp_path))
    assert told.error is None
    assert [o["label"] for o in objects(told)] == ["car", "person"]


def objects_written(told):
    return sum(len(f["objects"]) for d in told.dumps() for f in d["batch"]["frames"])
