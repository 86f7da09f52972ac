"""A small model and a small video for the command line's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MODELS = r'''
import numpy as np
from gstinfer import Classifications, Detections

calls = 0

def box(batch):
    print("chatter on standard output")
    return [Detections(np.array([[4, 4, 20, 20]], np.float32), [0.9], [f.sequence % 2], label=["thing"]) for f in batch]

def third_fails(batch):
    global calls
    calls += 1
    if calls == 3:
        raise ValueError("the third frame is bad")
    return [None] * len(batch)

def halves(batch):
    """The channel that is strongest in the upper and in the lower half, as classes of the frame."""
    def name(part):
        return ("red", "green", "blue")[int(part.reshape(-1, 3).mean(0).argmax())]

    pictures = batch.images("rgb")
    labels = [[name(p[: len(p) // 2]), name(p[len(p) // 2 :])] for p in pictures]
    return [Classifications([0, 1], [0.9, 0.8], label) for label in labels]

def dirty(batch):
    rows = np.array([[4, 4, np.nan, 20], [4, 4, 20, 20]], np.float32)
    return [Detections(rows, [0.9, 0.8], [0, 5]) for _ in batch]

def leaves(batch):
    raise SystemExit(3)

def slow(batch):
    import time
    time.sleep(0.02)
    return [None] * len(batch)
'''

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with ``models.py`` in it."""
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.fixture
def gstinfer(folder: Path, clean_env: dict[str, str]) -> Run:
    """Runs the command in that folder, from a clean environment."""

    def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
        settings = {"capture_output": True, "text": True, "timeout": 100, "cwd": folder, "env": clean_env, **options}
        return subprocess.run([sys.executable, "-m", "gstinfer.cli.main", *arguments], **settings)

    return run
