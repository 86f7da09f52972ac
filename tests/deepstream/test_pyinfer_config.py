# SPDX-License-Identifier: Apache-2.0
"""config-file-path, thresholds by class, topk and nvinfer's names in a running pipeline."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from support import run, source

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]
END = "standinprobe ! fakesink name=sink"


def objects(told):
    return told.first()["objects"][::-1]


def test_a_configuration_of_nvinfer(make_standin, cases, tmp_path):
    (tmp_path / "labels.txt").write_text("lamp\n")
    config = tmp_path / "pgie.txt"
    config.write_text(
        f"[property]\nonnx-file={cases / 'models/oracle_dyn.onnx'}\nnet-scale-factor=0.00392156862745098\n"
        "labelfile-path=labels.txt\n"
        "gie-unique-id=3\nnetwork-mode=1\nworkspace-size=100\nsnapshot=1\n[class-attrs-all]\npre-cluster-threshold=0.5\n"
    )
    pipeline = f"standinmux name=m batch-size=2 ! pyinfer device=cpu config-file-path={config} ! {END} "
    told = run(make_standin(), pipeline + source(1, "RGBA", 64, 64) + source(1, "RGBA", 64, 64, 1))
    assert told.error is None
    (found,) = objects(told)
    rect = found["rect_params"]
    assert [round(rect[k]) for k in ("left", "top", "width", "height")] == [4, 4, 48, 16]
    assert (found["label"], found["unique_component_id"]) == ("lamp", 3)
    assert len(told.warnings) == 1 and "snapshot=1" in told.warnings[0] and "workspace" not in told.warnings[0]


def test_properties_go_before_the_file(make_standin, tmp_path):
    config = tmp_path / "pgie.yml"
    config.write_text("property:\n  gie-unique-id: 3\n  interval: 1\n  onnx-file: nothing.onnx\n  net-scale-factor: 2\n")
    element = f"pyinfer device=cpu config-file-path={config} unique-id=9 model=deepstream_models:Detect"
    pipeline = f"standinmux name=m ! {element} ! {END} {source(2)}"
    told = run(make_standin(), pipeline)
    assert told.error is None
    assert [o["unique_component_id"] for o in objects(told)] == [9, 9]
    assert [d["batch"]["frames"][0]["infer_done"] for d in told.dumps()] == [True, False]
    assert "scale" in told.warnings[0]


def test_a_missing_configuration_is_an_error(make_standin):
    told = run(make_standin(), f"standinmux name=m ! pyinfer device=cpu config-file-path=nowhere.txt ! {END} {source(1)}")
    assert told.error and "nowhere.txt" in told.error


def test_thresholds_by_class_and_topk(make_standin):
    """A crowd of 300 in 80 classes, confidence rising from 0.3 to 0.9."""
    pipeline = "standinmux name=m ! pyinfer device=cpu model=deepstream_models:Crowd class-thresholds=*:0.8;3:0.5 topk=2 ! "
    told = run(make_standin(), pipeline + f"{END} {source(1)}")
    assert told.error is None
    found = [(o["class_id"], o["confidence"]) for o in objects(told)]
    assert all(score >= (0.5 if class_id == 3 else 0.8) for class_id, score in found)
    counts = {c: sum(1 for class_id, _ in found if class_id == c) for c, _ in found}
    assert max(counts.values()) <= 2 and counts[3] == 2


def test_model_engine_file_is_another_name(make_standin):
    told = run(
        make_standin(), f"standinmux name=m ! pyinfer device=cpu model-engine-file=deepstream_models:Detect ! {END} {source(1)}"
    )
    assert told.error is None and len(objects(told)) == 2
