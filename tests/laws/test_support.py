"""The page on models: every runtime is on it, and its matrix names tests that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gstinfer import registry

sys.path.insert(0, str(Path(__file__).parent))
from sources import ROOT

PAGE = ROOT / "docs/models.md"


def test_every_runtime_is_on_the_page_and_in_the_matrix() -> None:
    text, _, matrix = PAGE.read_text().partition("<!-- written by tools/support -->")
    assert [name for name in registry.names("runtime") if f"`{name}:" not in text] == []
    assert [name for name in registry.names("runtime") if f"| `{name}` |" not in matrix] == []


def test_the_tests_of_the_matrix_are_there() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/support"), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_option_of_a_runtime_is_on_the_page() -> None:
    """Those that are not options of every network."""
    from gstinfer.models.network import NetworkModel

    text, missing = PAGE.read_text(), []
    for name in registry.names("runtime"):
        factory = registry.find("runtime", name)
        model = factory.__annotations__["return"]
        made = getattr(sys.modules[factory.__module__], model) if isinstance(model, str) else model
        own = set(made.options()) - set(NetworkModel.options())
        missing += [f"{name}: {made.options()[key].key}" for key in own if f"`{made.options()[key].key}`" not in text]
    assert missing == []
