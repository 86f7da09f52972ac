"""Inputs other than files of video, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.gst


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def pictures(folder):
    place = folder / "-my pictures"
    place.mkdir()
    for number, size in ((1, (64, 48)), (2, (33, 21)), (10, (1, 1))):
        Image.new("RGB", size, (0, 255, 0)).save(place / f"p{number}.png")
    return place


def test_a_folder_whose_name_begins_with_a_dash(gstinfer, folder, pictures):
    done = gstinfer("run", "--model", "models:halves", "--jsonl", "-", "--output", "o.mp4", "--", "-my pictures")
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert [m["source"] for m in found] == [f"-my pictures/p{n}.png" for n in (1, 2, 10)]
    assert [(m["width"], m["height"]) for m in found] == [(64, 48), (33, 21), (1, 1)]
    assert [m["pts"] for m in found] == [0, 40_000_000, 80_000_000]
    assert {m["stream_id"] for m in found} == {"-my pictures"}
    assert all(m["classifications"][0]["label"] == "green" for m in found[:2])
    assert (folder / "o.mp4").stat().st_size > 500


def test_a_broken_picture_is_left_out_and_fails_the_job(gstinfer, pictures):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8))
    noise.save(pictures / "p3.png")
    whole = (pictures / "p3.png").read_bytes()
    (pictures / "p3.png").write_bytes(whole[: len(whole) // 2])
    done = gstinfer("run", f"{pictures}/*.png", "--model", "models:box", "--jsonl", "-")
    assert done.returncode == 1
    assert len(lines(done.stdout)) == 3
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "1 of 4 pictures" in errors[0] and "p3.png" in errors[0] and "truncated" in errors[0]


def test_a_folder_without_pictures(gstinfer, folder):
    (folder / "empty").mkdir()
    began = time.monotonic()
    done = gstinfer("run", "empty", "--model", "models:box")
    assert done.returncode == 1 and time.monotonic() - began < 10
    assert [s for s in done.stderr.splitlines() if s] == [s for s in done.stderr.splitlines() if s.startswith("error: empty: ")]
    assert "no picture in it" in done.stderr


def test_videos_and_pictures_of_one_pattern(gstinfer, folder, pictures):
    made = gstinfer("run", "test:ball?width=64&height=48&frames=4", "--model", "models:box", "--output", "-my pictures/v.mp4")
    assert made.returncode == 0, made.stderr
    done = gstinfer("run", f"{pictures}/*", "--model", "models:box", "--jsonl", "-")
    assert done.returncode == 0, done.stderr
    counts = [m["stream_id"] for m in lines(done.stdout)]
    assert (counts.count("-my pictures"), counts.count("v"), len(counts)) == (3, 4, 7)


def test_standard_input(gstinfer, folder):
    made = gstinfer("run", "test:ball?width=64&height=48&frames=4", "--model", "models:box", "--output", "v.mp4")
    assert made.returncode == 0, made.stderr
    with (folder / "v.mp4").open("rb") as video:
        done = gstinfer("run", "-", "--model", "models:box", "--jsonl", "-", stdin=video)
    assert done.returncode == 0, done.stderr
    assert [(m["stream_id"], m["source"]) for m in lines(done.stdout)] == [("stdin", "standard input")] * 4


def test_a_pipe(gstinfer, folder):
    made = gstinfer("run", "test:ball?width=64&height=48&frames=30", "--model", "models:box", "--output", "v.mp4")
    assert made.returncode == 0, made.stderr
    with subprocess.Popen(["cat", "v.mp4"], cwd=folder, stdout=subprocess.PIPE) as cat:
        done = gstinfer("run", "-", "--model", "models:box", "--jsonl", "-", stdin=cat.stdout)
    assert done.returncode == 0, done.stderr
    assert len(lines(done.stdout)) == 30


@pytest.mark.parametrize("data", [b"", b"this is no video", b"\0" * 5000])
@pytest.mark.parametrize("pipe", [False, True])
def test_standard_input_that_is_no_video(gstinfer, data, pipe, tmp_path):
    (tmp_path / "data").write_bytes(data)
    began = time.monotonic()
    command = ["cat", "data"] if pipe else ["true"]
    with (tmp_path / "data").open("rb") as file, subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as cat:
        done = gstinfer("run", "-", "--model", "models:box", stdin=cat.stdout if pipe else file)
    assert done.returncode == 1 and time.monotonic() - began < 20
    reason = "the file is empty" if not data and not pipe else "it cannot be decoded"
    if not data and pipe:
        reason += ": it is empty"
    assert done.stderr.startswith(f"error: standard input: {reason}") and len(done.stderr.splitlines()) == 1


def test_a_window_without_a_display(gstinfer):
    done = gstinfer("run", "test:ball", "--model", "models:box", "--show")
    assert done.returncode == 1 and "neither DISPLAY nor WAYLAND_DISPLAY" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_anything_on_the_standard_streams(gstinfer, folder):
    """As a service may be started: no input, no terminal, output closed."""
    done = gstinfer(
        "run", "test:ball?width=64&height=48&frames=3", "--model", "models:box", "--jsonl", "o.jsonl",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, capture_output=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert len(lines((folder / "o.jsonl").read_text())) == 3
