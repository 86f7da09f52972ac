"""Models, and cameras in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MODELS = """
import time
import numpy as np
from gstinfer import Detections, Model, option

def box(batch):
    return [Detections(np.array([[4, 4, 20, 20]], np.float32), label=["thing"]) for _ in batch]

def other(batch):
    return [Detections(np.array([[8, 8, 30, 30]], np.float32), label=["other"]) for _ in batch]

def crowd(batch):
    boxes = np.tile(np.array([[4, 4, 20, 20]], np.float32), (300, 1))
    return [Detections(boxes, label=["a thing with a long name"] * 300) for _ in batch]

class Slow(Model):
    ms = option(float, 100.0, "Milliseconds a batch")
    def predict(self, batch):
        time.sleep(self.ms / 1e3)
        return box(batch)

class NoLoad(Model):
    def load(self, device):
        raise RuntimeError("weights are gone")
    def predict(self, batch):
        return [None] * len(batch)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Path of a file of models."""
    (tmp_path / "m.py").write_text(MODELS)
    return f"{tmp_path}/m.py"


@pytest.fixture
def camera(clean_env: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts an RTSP server: ``camera(port, name, pattern, login="")``; all are killed at the end."""
    check = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    python = "/usr/bin/python3"
    if not Path(python).exists() or subprocess.run([python, "-c", check], capture_output=True, check=False).returncode:
        pytest.skip("gir1.2-gst-rtsp-server-1.0 is not installed")
    started: list[subprocess.Popen[bytes]] = []

    def start(port: int, name: str, pattern: str, login: str = "") -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("rtsp_server.py")
        command = [python, str(script), str(port), name, pattern, *([login] if login else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_env)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
