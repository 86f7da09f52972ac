"""A shell of one's own for the checks: this process has a HOME with nothing in it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def registry(clean_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry that knows every plugin but those in Python, so that each test need not read them all."""
    folder = tmp_path_factory.mktemp("registry")
    variables = {**clean_env, "HOME": str(folder), "GST_REGISTRY": str(folder / "registry.bin")}
    subprocess.run(["gst-inspect-1.0", "fakesink"], env=variables, capture_output=True, timeout=120, check=False)
    return folder / "registry.bin"


@pytest.fixture
def home(clean_env: dict[str, str], registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME, PATH and registry of a clean shell; no other variable of GStreamer."""
    for name in ("GST_PLUGIN_PATH", "GST_PLUGIN_PATH_1_0", "GST_REGISTRY_1_0", "XDG_CACHE_HOME", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    for name, value in {**clean_env, "HOME": str(folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GST_REGISTRY")
    cache = folder / ".cache/gstreamer-1.0"
    cache.mkdir(parents=True)
    shutil.copyfile(registry, cache / f"registry.{platform.machine()}.bin")
    return folder
