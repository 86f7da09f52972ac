# SPDX-License-Identifier: Apache-2.0
"""Every field that pyinfer writes, read by the stand-in's C side: golden dumps for each kind of result and each layout."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support import balanced, golden, run, source

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]

READERS = "standinosd ! standinmsgconv ! standinprobe payload=GSTINFER.BATCH:size64 copy=true ! fakesink name=sink"
CASES = {
    "detection": "model=deepstream_models:Detect",
    "rotated": "model=deepstream_models:Rotated",
    "masks": "model=deepstream_models:Masked",
    "classification": "model=deepstream_models:Classify",
    "segmentation": "model=deepstream_models:Segment",
    "caption": "model=deepstream_models:Caption",
    "nothing": "model=deepstream_models:Nothing",
    "crowd": "model=deepstream_models:Crowd",
    "chinese": "model=deepstream_models:Chinese",
    "edges": "model=deepstream_models:Edges",
    "pose": "model=deepstream_models:Pose",
    "tensors": "model=deepstream_models:Raw output-tensor-meta=true",
    "several": "model=deepstream_models:Several",
    "cascade": "model=deepstream_models:Detect ! pyinfer device=cpu process-mode=2 unique-id=20 infer-on-gie-id=15 "
    "model=deepstream_models:Color ! pyinfer device=cpu process-mode=2 unique-id=21 infer-on-class-ids=1 "
    "infer-on-gie-id=15 model=deepstream_models:Plate",
}


def shortened(frame):
    """A crowd as its size, its ends and a digest of the rest."""
    objects = frame["objects"]
    if len(objects) > 20:
        digest = hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()
        return {**frame, "objects": [objects[0], objects[-1]], "count": len(objects), "digest": digest}
    return frame


@pytest.mark.parametrize("case", CASES)
def test_golden(standin, case):
    told = run(standin, f"standinmux name=m ! pyinfer device=cpu {CASES[case]} ! {READERS} {source(2)}")
    assert told.error is None and told.eos
    balanced(told)
    dump = told.dumps()[0]
    (frame,) = dump["batch"]["frames"]
    assert frame["infer_done"]
    golden(
        f"{case}-{'rotation' if standin.rotation else 'plain'}",
        {"frame": shortened(frame), "users": dump["batch"]["users"], "msgconv": shortened_lines(told)},
    )
    for kind in ("osd", "msgconv"):
        assert [line["problems"] for line in told.run.kind(kind)] == [[], []]
    assert all(line["never_appended"] == 0 for line in told.run.kind("osd"))


def shortened_lines(told):
    lines = told.run.kind("msgconv")[0]["frames"][0]["objects"]
    return lines if len(lines) < 20 else len(lines)
