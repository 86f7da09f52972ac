# SPDX-License-Identifier: Apache-2.0
"""frame-access=pyservicemaker: the same results through NVIDIA's bindings, their traps avoided."""

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
BINDINGS = "pyinfer name=infer device=cpu frame-access=pyservicemaker model=deepstream_models"
END = "standinosd ! standinmsgconv ! standinprobe ! fakesink name=sink"
TRAPS = {"STANDIN_TRAPS": "raise"}
LIVE = """
    import pyservicemaker
    def probe(pad, info):
        frames.append(pyservicemaker.live_buffers())
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("infer").get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, probe)
"""


def both(standin, model, form="RGB", **options):
    def one(access):
        pipeline = (
            f"standinmux name=m batch-size=2 ! {BINDINGS.replace('pyservicemaker', access)}:{model} ! {END} "
            + source(3, form)
            + source(3, form, pad=1, pattern="blue")
        )
        return run(standin, pipeline, shared=True, **TRAPS, **options)

    return one("surface"), one("pyservicemaker")


@pytest.mark.parametrize("model", ["Mean", "Rotated", "Masked", "Classify", "Pose", "Chinese", "Nothing", "Caption"])
def test_same_metas_both_ways(standin, model):
    surface, bindings = both(standin, model)
    assert surface.error is None and bindings.error is None and not bindings.warnings
    assert [d["batch"]["frames"] for d in surface.dumps()] == [d["batch"]["frames"] for d in bindings.dumps()]
    counters = bindings.run.counters
    for kind in ("acquired", "appended"):
        assert counters[kind] == counters["released"]
    assert not any(counters["never_appended"].values())
    for kind in ("osd", "msgconv"):
        assert all(line["problems"] == [] for line in bindings.run.kind(kind))


def test_no_wrapper_survives(make_standin):
    pipeline = f"standinmux name=m ! {BINDINGS}:Detect ! {END} {source(4, 'RGB')}"
    told = run(make_standin(), pipeline, prepare=LIVE, **TRAPS)
    assert told.error is None and told.frames == [0] * 4
    assert told.run.counters["batch_copied"] == 0


@pytest.mark.parametrize("form", ["NV12", "RGBA"])
def test_other_formats_are_refused_by_name(make_standin, form):
    pipeline = f"standinmux name=m ! {BINDINGS}:Detect ! {END} {source(2, form)}"
    told = run(make_standin(), pipeline, **TRAPS)
    assert told.error and "RGB alone" in told.error and "nvvideoconvert" in told.error


def test_a_surface_of_another_format_than_the_caps(make_standin):
    """extract gives a falsy tensor, which crashes when asked anything."""
    pipeline = f"standinmux name=m color-format=28 ! {BINDINGS}:Detect ! {END} {source(2, 'RGB')}"
    told = run(make_standin(), pipeline, **TRAPS)
    assert told.error and "no pixels of frame 0" in told.error


def test_no_batch_meta(make_standin):
    pipeline = f"standinmux name=m fault=no-meta ! {BINDINGS}:Detect ! {END} {source(2, 'RGB')}"
    told = run(make_standin(), pipeline, **TRAPS)
    assert told.error and "nvstreammux" in told.error


def test_without_a_known_layout_it_writes_what_it_can_and_says_so(make_standin, tmp_path):
    """On a version that nothing is known of, the bindings are the only way: one loud warning, plain objects."""
    standin = make_standin()
    (tmp_path / "lib").symlink_to(standin.directory / "lib")
    (tmp_path / "version").write_text("Version: 27.3\n")
    pipeline = f"standinmux name=m ! {BINDINGS}:Masked ! standintracker ! {END} {source(3, 'RGB')}"
    told = run(standin, pipeline, DEEPSTREAM_DIR=str(tmp_path), **TRAPS)
    assert told.error is None
    assert len(told.warnings) == 1 and "nvtracker" in told.warnings[0] and "27.3" in told.warnings[0]
    frames = [line["frames"][0] for line in told.run.kind("tracker")]
    assert all(not f["detection_done"] and f["ignored"] == 2 for f in frames)
    balanced_but_unlocked(told)


def test_another_layout_than_the_version_says(make_standin, tmp_path):
    """The proof fails: nothing is written into structs, the bindings go on and say so once."""
    standin = make_standin(rotation=False)
    (tmp_path / "lib").symlink_to(standin.directory / "lib")
    (tmp_path / "version").write_text("Version: 9.1\n")
    pipeline = f"standinmux name=m ! {BINDINGS}:Detect ! {END} {source(3, 'RGB')}"
    told = run(standin, pipeline, DEEPSTREAM_DIR=str(tmp_path), **TRAPS)
    assert told.error is None
    assert len(told.warnings) == 1 and "544 bytes" in told.warnings[0] and "nvtracker" in told.warnings[0]
    frames = [d["batch"]["frames"][0] for d in told.dumps()]
    assert [(f["infer_done"], [o["label"] for o in f["objects"]]) for f in frames] == [(False, ["person", "car"])] * 3
    balanced_but_unlocked(told)


TEXTS = """
    import ctypes
    from gstinfer.hosts.deepstream.abi import BatchMeta, FrameMeta, layout, links
    from gstinfer.hosts.deepstream.libs import glib, libraries
    strdupv, made = glib().strdupv, set()
    def duplicate(given):
        place = listed = strdupv(given)
        while text := ctypes.c_uint64.from_address(place).value:
            made.add(text)
            place += 8
        return listed
    glib().strdupv = duplicate
    def probe(pad, info):
        batch = BatchMeta.from_address(libraries().batch_meta(hash(info.get_buffer())))
        for frame in links(batch.frames):
            for address in links(FrameMeta.from_address(frame).objects):
                at = layout().object.fields["text"][1]
                frames.append(ctypes.c_uint64.from_address(address + at).value in made)
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
"""


def test_texts_that_were_made_go_with_the_objects(make_standin):
    """Each string that a plan allocated is in a meta, which frees it; the bindings' own copy is not left beside it."""
    pipeline = f"standinmux name=m ! {BINDINGS}:Detect ! {END} {source(3, 'RGB')}"
    told = run(make_standin(), pipeline, prepare=TEXTS, **TRAPS)
    assert told.error is None and told.frames == [True] * 6


def balanced_but_unlocked(told):
    counters = told.run.counters
    assert counters["acquired"] == counters["appended"] == counters["released"]


def test_missing_bindings(make_standin, tmp_path):
    (tmp_path / "pyservicemaker.py").write_text("raise ImportError('no such thing')\n")
    pipeline = f"standinmux name=m ! {BINDINGS}:Detect ! {END} {source(2, 'RGB')}"
    told = run(make_standin(), pipeline, PYTHONPATH=f"{tmp_path}:{Path(__file__).parent}")
    assert told.error and "pyservicemaker" in told.error and "not installed" in told.error


def test_the_first_way_is_balanced_too(make_standin):
    surface, _ = both(make_standin(), "Detect")
    balanced(surface)
