# SPDX-License-Identifier: Apache-2.0
"""gstinfer doctor on the stand-in."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]
ROWS = """
import json
from gstinfer.doctor import deepstream
rows = [*deepstream.check_layout(), *deepstream.check_bindings()]
print(json.dumps([row.as_dict() for row in rows]))
"""


def rows(standin, **env):
    run = standin.run([sys.executable, "-c", ROWS], **env)
    assert run.code == 0, run.stderr
    return {row["name"]: row for row in json.loads(run.stdout.splitlines()[-1])}


def test_layout_is_proved(standin):
    found = rows(standin)
    assert found["DeepStream layout"]["status"] == "ok"
    word = "with rotation_angle" if standin.rotation else "without rotation_angle"
    assert word in found["DeepStream layout"]["detail"]
    assert found["pyservicemaker"]["status"] == "ok"


def test_missing_bindings_have_a_line(make_standin):
    found = rows(make_standin(), PYTHONPATH="")
    assert found["pyservicemaker"]["status"] == "warn" and ".whl" in found["pyservicemaker"]["fix"]


def test_unknown_version(make_standin, tmp_path):
    (tmp_path / "lib").symlink_to(make_standin().directory / "lib")
    (tmp_path / "version").write_text("Version: 27.3\n")
    row = rows(make_standin(), DEEPSTREAM_DIR=str(tmp_path))["DeepStream layout"]
    assert row["status"] == "fail" and "27.3" in row["detail"] and "update gstinfer" in row["fix"]


def test_a_folder_without_libraries(make_standin, tmp_path):
    row = rows(make_standin(), DEEPSTREAM_DIR=str(tmp_path))["DeepStream layout"]
    assert row["status"] == "fail" and "DEEPSTREAM_DIR" in row["detail"]


def test_another_pyds(make_standin, tmp_path):
    folder = tmp_path / "pyds-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pyds\nVersion: 1.0\nSummary: Dempster-Shafer theory\n")
    found = rows(make_standin(), PYTHONPATH=str(tmp_path))
    assert found["pyds"]["status"] == "warn" and "Dempster" in found["pyds"]["detail"]
