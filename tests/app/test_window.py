"""A window, on a display made for the test."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app import window
from gstinfer.app.session import Job, Session
from gstinfer.elements.compat import Gst
from gstinfer.errors import ConfigError

NOTHING = f"{__file__}:nothing"


def nothing(batch):
    return [None] * len(batch)


@pytest.fixture
def display(monkeypatch, tmp_path):
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    reader, writer = os.pipe()
    # A server starts over when its last client leaves, and refuses others meanwhile.
    command = ["Xvfb", "-noreset", "-displayfd", str(writer), "-screen", "0", "320x240x24"]
    server = subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    with open(reader) as file:
        name = f":{file.readline().strip()}"
    monkeypatch.setenv("DISPLAY", name)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    yield name
    server.terminate()
    server.wait(5)


def close_windows(name: str) -> int:
    """Asks every window to close, as a click on its cross does; how many there were."""
    x11 = ctypes.CDLL("libX11.so.6")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XInternAtom.restype = ctypes.c_ulong
    x11.XDefaultRootWindow.restype = ctypes.c_ulong
    shown = ctypes.c_void_p(x11.XOpenDisplay(name.encode()))
    root, parent, children, count = ctypes.c_ulong(), ctypes.c_ulong(), ctypes.POINTER(ctypes.c_ulong)(), ctypes.c_uint()
    top = ctypes.c_ulong(x11.XDefaultRootWindow(shown))
    x11.XQueryTree(shown, top, *map(ctypes.byref, (root, parent, children, count)))
    protocols, delete = (x11.XInternAtom(shown, atom, 0) for atom in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
    for child in children[: count.value]:
        # XClientMessageEvent in the 24 longs of an XEvent: type 33, window, message, format 32, data
        event = (ctypes.c_long * 24)(33, 0, 1, 0, child, protocols, 32, delete)
        x11.XSendEvent(shown, ctypes.c_ulong(child), 0, ctypes.c_long(0), event)
    x11.XCloseDisplay(shown)
    return int(count.value)


def test_no_display_is_said(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(ConfigError, match="neither DISPLAY nor WAYLAND_DISPLAY") as caught:
        window.find_sink()
    assert caught.value.hint


def test_a_display_that_does_not_answer(monkeypatch):
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":9999")
    if Gst.ElementFactory.find("ximagesink") is None:
        pytest.skip("ximagesink is not installed")
    with pytest.raises(ConfigError, match=r"cannot be opened.*DISPLAY=:9999"):
        window.find_sink()


@pytest.mark.parametrize("output", [False, True])
def test_every_frame_is_shown_and_written(display, tmp_path, output):
    path = str(tmp_path / "o.mp4") if output else None
    session = Session(Job(["test:ball?width=64&height=48&frames=10"], NOTHING, output=path, show=True, track="none"))
    assert session.run()
    assert session.branches[0].counts.frames == 10 and (tmp_path / "o.mp4").exists() == output


def test_closing_the_window_ends_the_stream_and_finishes_the_file(display, tmp_path):
    path = tmp_path / "o.mp4"
    job = Job(["test:ball?width=64&height=48&fps=10&frames=5000"], NOTHING, output=str(path), show=True, track="none")
    session, asked = Session(job), []

    def tick(_) -> None:
        if session.branches[0].counts.frames > 15 and not asked:
            asked.append(close_windows(display))

    began = time.monotonic()
    assert session.run(tick)
    assert asked[0] >= 1 and time.monotonic() - began < 30
    assert path.exists() and 15 < session.branches[0].counts.frames < 4000
