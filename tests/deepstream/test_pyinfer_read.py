# SPDX-License-Identifier: Apache-2.0
"""``gstinfer.read`` gives back from a DeepStream buffer what the model said."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import deepstream_models as models
from support import balanced, run, source

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]
WIDTH, HEIGHT = 160, 120

DESCRIBE = """(lambda d: dict(
    xyxy=d.xyxy.tolist(), confidence=d.confidence.tolist(), class_id=d.class_id.tolist(), label=d.label,
    obb=None if d.obb is None else d.obb.tolist(), component=d.component_id.tolist(),
    keypoints=None if d.keypoints is None else d.keypoints.tolist(),
    mask=None if d.mask is None else [np.packbits(m.to_frame(160, 120)).tolist() for m in d.mask],
    data={k: [None if v is None else np.asarray(v).tolist() for v in c] for k, c in d.data.items() if k != "ds_object"},
))(f.detections)"""


def said(name):
    found = getattr(models, name)().say(WIDTH, HEIGHT)
    return found


def read(standin, name, expression, settings=""):
    element = f"pyinfer device=cpu model=deepstream_models:{name} {settings}"
    pipeline = f"standinmux name=m batch-size=2 ! {element} ! fakesink name=sink "
    pipeline += source(2) + source(2, pad=1)
    told = run(standin, pipeline, read=" ".join(expression.split()))
    assert told.error is None
    balanced(told)
    assert told.frames[0] == told.frames[1] and told.frames[0][0] == told.frames[0][1]
    return told.frames[0][0]


@pytest.mark.parametrize("name", ["Detect", "Rotated", "Pose", "Chinese", "Crowd"])
def test_objects(standin, name):
    model = getattr(models, name)()
    want, got = said(name).named(model.labels), read(standin, name, DESCRIBE)
    bounds = [WIDTH, HEIGHT, WIDTH, HEIGHT]
    assert np.allclose(got["xyxy"], np.clip(want.xyxy, 0, bounds), atol=1e-4)
    assert np.allclose(got["confidence"], want.confidence) and got["class_id"] == want.class_id.tolist()
    assert got["label"] == want.label and got["component"] == [15] * len(want)
    for key in ("obb", "keypoints"):
        column = getattr(want, key)
        assert (got[key] is None) == (column is None)
        if column is not None:
            assert np.allclose(got[key], column, atol=1e-5)
    if want.data:
        assert got["data"]["embedding"] == [[0, 1, 2, 3], None]


def test_masks(standin):
    want, got = said("Masked"), read(standin, "Masked", DESCRIBE)
    for mask, box, bits in zip(want.mask, want.xyxy, got["mask"]):
        x1, y1 = np.floor(box[:2]).astype(int)
        x2, y2 = np.ceil(box[2:]).astype(int)
        inside = np.zeros((HEIGHT, WIDTH), bool)
        inside[y1:y2, x1:x2] = mask.to_frame(WIDTH, HEIGHT)[y1:y2, x1:x2]
        assert np.array_equal(np.unpackbits(np.array(bits, np.uint8)).reshape(HEIGHT, WIDTH).astype(bool), inside)


def test_classes_of_a_frame(standin):
    got = read(
        standin,
        "Classify",
        """[f.detections is None,
        [[c.class_id.tolist(), c.confidence.tolist(), c.label, c.component_id] for c in f.classifications]]""",
    )
    assert got == [True, [[[3, 1], [0.75, 0.125], ["sun|ny", "rain"], 15]]]


def test_segmentation(standin):
    got = read(
        standin,
        "Segment",
        "(lambda s: [s.class_map.tolist(), s.label, s.component_id, s.confidence.tolist()])(f.segmentation)",
    )
    want = said("Segment")
    assert got[:3] == [want.class_map.tolist(), want.label, 15]
    # where there is no class, DeepStream's map has no probability
    assert np.allclose(np.array(got[3])[want.class_map >= 0], 0.5) and got[3][0][0] == 0


def test_text(standin):
    got = read(standin, "Caption", "[vars(t) for t in f.texts]")
    want = {**vars(said("Caption")), "component_id": 15}
    assert got == [json.loads(json.dumps(want))]


@pytest.mark.parametrize("settings", ["", "output-tensor-meta=true"])
def test_tensors(standin, settings):
    got = read(
        standin,
        "Raw",
        "[[{n: [a.tolist(), a.dtype.name] for n, a in t.outputs.items()}, t.component_id] for t in f.tensors]",
        settings,
    )
    outputs = {name: [array.tolist(), array.dtype.name] for name, array in said("Raw").outputs.items()}
    assert got == [[outputs, 15]]


def test_read_of_one_frame_and_of_several(make_standin):
    prepare = """
    def probe(pad, info):
        try:
            found = gstinfer.read(info.get_buffer())
            frames.append(found.detections.label)
        except gstinfer.HostError as error:
            frames.append(str(error))
        return Gst.PadProbeReturn.OK
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)
    """
    pipeline = "standinmux name=m batch-size=2 ! pyinfer device=cpu model=deepstream_models:Detect ! fakesink name=sink "
    told = run(make_standin(), pipeline + source(1), prepare=prepare)
    assert told.frames == [["car", "person"]]
    told = run(make_standin(), pipeline + source(1) + source(1, pad=1), prepare=prepare)
    assert "read_frames" in told.frames[0]


def test_a_copied_buffer_keeps_payloads(make_standin):
    """The copy, which the probe makes, shares them: they are released when both are gone, on whatever thread."""
    pipeline = "standinmux name=m ! pyinfer device=cpu model=deepstream_models:Caption ! queue ! "
    pipeline += "standinprobe copy=true ! fakesink name=sink "
    told = run(make_standin(), pipeline + source(3), read="[t.text for t in f.texts]")
    assert told.error is None
    assert told.frames == [[["两只猫 on a | sofa"]]] * 3
    counters = told.run.counters
    # one of the frame and one of the batch
    assert counters["user_copied"] == 3 * 2 and counters["acquired"]["user"] == counters["released"]["user"]


def test_degrees(make_standin):
    pipeline = "standinmux name=m ! pyinfer device=cpu model=deepstream_models:Rotated ! standinprobe ! fakesink name=sink "
    told = run(make_standin(), pipeline + source(1))
    angles = [o["rect_params"]["rotation_angle"] for o in told.first()["objects"][::-1]]
    assert math.isclose(angles[0], math.degrees(0.5), rel_tol=1e-6) and angles[1] == 0
