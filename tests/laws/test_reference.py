"""The public interface of the elements: a golden file, and a page that is made from the same."""

from __future__ import annotations

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sources import ROOT

pytestmark = pytest.mark.gst
HOW = "if the change is meant, run .venv/bin/python tools/reference and commit what it writes"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    loader = SourceFileLoader("reference_tool", str(ROOT / "tools/reference"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_interface_is_the_golden_one(reference: ModuleType) -> None:
    golden = json.loads((ROOT / "tests/golden/elements.json").read_text())
    found = json.loads(json.dumps(reference.describe()))
    assert sorted(found) == sorted(golden), HOW
    for name, element in found.items():
        gone = set(golden[name]["properties"]) - set(element["properties"])
        assert not gone, f"{name} has lost {gone}; {HOW}"
        assert element == golden[name], HOW


def test_the_page_is_current(reference: ModuleType) -> None:
    text = (ROOT / "docs/reference.md").read_text()
    assert text == reference.page(reference.describe()), HOW


def test_every_property_says_what_it_does(reference: ModuleType) -> None:
    for name, element in reference.describe().items():
        assert element["title"] and element["class"] and element["description"], name
        for key, entry in element["properties"].items():
            about = f"{name}.{key}"
            assert len(entry["help"].split()) >= 2 or key == "stats", about
            assert not entry["help"].endswith("."), about
            if "unset" in entry:
                assert f"{entry['unset']:g}" in entry["help"], f"{about} does not say what {entry['unset']:g} means"


def test_defaults_are_what_gstreamer_says() -> None:
    from gstinfer.elements import factories, register
    from gstinfer.elements.compat import Gst

    register()
    for name, _, cls in factories():
        element = Gst.ElementFactory.make(name, None)
        for spec in cls.list_properties():
            if spec.owner_type == cls.__gtype__ and spec.name != "stats":
                assert element.get_property(spec.name) == spec.default_value, f"{name}.{spec.name}"
