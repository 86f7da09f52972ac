# SPDX-License-Identifier: Apache-2.0
"""The examples as they are written, with stand-ins in the place of NVIDIA's elements."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples" / "deepstream"
FRAMES, PROOF = 4, 3
"""Frames of the clip, and objects of the batch with which the layout is proved."""

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "clip.avi"
    line = f"videotestsrc num-buffers={FRAMES} ! video/x-raw,width=160,height=120,framerate=25/1 ! jpegenc ! avimux ! "
    command = ["gst-launch-1.0", "-q", *f"{line} filesink location={path}".split()]
    made = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=False)
    if made.returncode:
        pytest.skip(f"no clip can be made here: {made.stderr}")
    return path


def shell(standin, tmp_path, name, *arguments):
    launch = tmp_path / "gst-launch-1.0"
    launch.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "standin_names.py"} "$@"\n')
    launch.chmod(0o755)
    command = ["sh", str(EXAMPLES / name), *map(str, arguments)]
    run = standin.run(command, PATH=f"{tmp_path}:/usr/bin:/bin", PYTHONPATH=str(HERE))
    assert run.code == 0, run.stderr
    return run


def python(standin, name, *arguments):
    run = standin.run([sys.executable, str(EXAMPLES / name), *map(str, arguments)], PYTHONPATH=str(HERE))
    assert run.code == 0, run.stderr
    return run


def test_one_stream(make_standin, tmp_path, video):
    run = shell(make_standin(), tmp_path, "one_stream.sh", video, "deepstream_models:Detect")
    frames = [line["frames"][0] for line in run.kind("tracker")]
    assert [(f["detection_done"], f["tracked"]) for f in frames] == [(True, 2)] * FRAMES
    assert [line["problems"] for line in run.kind("osd")] == [[]] * FRAMES


def test_four_streams(make_standin, tmp_path, video):
    run = shell(make_standin(), tmp_path, "four_streams.sh", "deepstream_models:Detect", *[video] * 4, "host;9092;topic")
    frames = [frame for line in run.kind("msgconv") for frame in line["frames"]]
    assert len(frames) == 4 * FRAMES and all(len(f["objects"]) == 2 for f in frames)
    assert all(line["problems"] == [] for kind in ("osd", "msgconv") for line in run.kind(kind))
    counters = run.counters
    assert counters["acquired"] == counters["appended"] == counters["released"]


def test_rgb_through_pyservicemaker(make_standin, tmp_path, video):
    run = shell(make_standin(), tmp_path, "rgb_pyservicemaker.sh", video, "deepstream_models:Detect")
    assert run.counters["appended"]["object"] == run.counters["released"]["object"] == 2 * FRAMES + PROOF


def test_pipeline_api(make_standin, video):
    """The operator behind pyinfer reads the objects through pyservicemaker's iterators."""
    run = python(make_standin(), "pipeline_api.py", video, "deepstream_models:Detect")
    told = [line for line in run.stdout.splitlines() if line.startswith("source")]
    assert told == [f"source 0 frame {n}: {{'person': 1, 'car': 1}}" for n in range(FRAMES)]


def test_flow_api(make_standin, video):
    run = python(make_standin(), "flow_api.py", "deepstream_models:Detect", video, video)
    told = [line for line in run.stdout.splitlines() if line.startswith("source")]
    assert sorted(told) == sorted(f"source {s} frame {n}: {{'person': 1, 'car': 1}}" for s in (0, 1) for n in range(FRAMES))


def test_read_results(make_standin):
    line = "standinmux name=m ! pyinfer name=infer device=cpu model=deepstream_models:Caption ! fakesink "
    line += "videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=160,height=120 ! m.sink_0"
    run = python(make_standin(), "read_results.py", line)
    assert run.stdout.splitlines() == ["stream 0: inferred True, 0 objects", "   两只猫 on a | sofa"]
