"""What is promised to those who install the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, distribution, requires

import pytest

from gstinfer import registry

OURS = [e for e in distribution("gstinfer").entry_points if e.group.startswith("gstinfer.")]
HEAVY = ("torch", "onnxruntime", "cv2")


def test_the_groups_are_those_of_the_registry() -> None:
    assert {e.group for e in OURS} <= set(registry.GROUPS.values())
    assert OURS


@pytest.mark.parametrize("entry", OURS, ids=lambda e: f"{e.group}:{e.name}")
def test_every_entry_point_loads(entry: EntryPoint) -> None:
    assert callable(entry.load())


def test_requirements_are_ranges() -> None:
    for requirement in requires("gstinfer") or []:
        version = requirement.partition(";")[0]
        assert ">=" in version, requirement
        assert not re.search(r"==|~=|<", version), requirement


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh Python of this environment has imported after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_the_package_imports_neither_gstreamer_nor_heavy_libraries() -> None:
    assert modules_after("import gstinfer") & {"gi", *HEAVY} == set()


@pytest.mark.gst
def test_inspecting_an_element_imports_no_heavy_library() -> None:
    """What gst-inspect-1.0 does: it registers, makes the element and reads each property."""
    code = """
import gi; gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
import gstinfer; gstinfer.register()
for name in ("pyinfer", "pytrack", "pyoverlay", "pypublish"):
    element = Gst.ElementFactory.make(name, None)
    for spec in element.list_properties():
        element.get_property(spec.name)
"""
    seen = modules_after(code)
    assert "gstinfer" in seen and seen & set(HEAVY) == set()
