"""One picture of many streams."""

from __future__ import annotations

import gc
import os

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")

import numpy as np
from sessions import free_port, running, wait_for

from gstinfer.app.mosaic import HEIGHT, WIDTH, grid
from gstinfer.app.session import Job, Session
from gstinfer.errors import ConfigError
from gstinfer.testing import run_pipeline

SMALL = "width=64&height=48&fps=25"


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 3, 2), (10, 4, 3)])
def test_tiles_do_not_overlap_and_fill_the_grid(count, columns, rows):
    places = grid(count)
    covered = np.zeros((HEIGHT, WIDTH), int)
    for x, y, width, height in places:
        assert width % 2 == height % 2 == 0
        covered[y : y + height, x : x + width] += 1
    assert covered.max() == 1 and len(places) == count
    assert {p[2:] for p in places} == {(WIDTH // columns // 2 * 2, HEIGHT // rows // 2 * 2)}


def pictures(path) -> np.ndarray:
    """All frames of a file as RGB, one in eight pixels each way."""
    caps = f"video/x-raw,format=RGB,width={WIDTH // 8},height={HEIGHT // 8}"
    run = run_pipeline(
        f"filesrc location={path} ! decodebin ! videoconvert ! videoscale ! {caps} ! fakesink name=sink", keep_data=True
    )
    return np.stack([np.frombuffer(d, np.uint8).reshape(HEIGHT // 8, WIDTH // 8, 3) for d in run.data])


def test_files_side_by_side_frame_by_frame(model, tmp_path):
    inputs = [f"test:red?{SMALL}&frames=50", f"test:green?{SMALL}&frames=25", f"test:blue?{SMALL}&frames=50", "gone.mp4"]
    session = Session(Job(inputs, f"{model}:box", output=f"{tmp_path}/wall.mp4", tile=True, track="none"))
    assert not session.run()
    assert [b.state for b in session.branches] == ["ended"] * 3 + ["failed"]
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".mp4"] == ["wall.mp4"]
    frames = pictures(tmp_path / "wall.mp4")
    assert abs(len(frames) - 50) <= 1
    # Three streams make a grid of two by two; each keeps its shape inside its place.
    centres = [frames[12, 25, 40], frames[12, 25, 120], frames[12, 70, 40], frames[12, 70, 120]]
    assert [int(c.argmax()) for c in centres[:3]] == [0, 1, 2] and all(c.max() > 200 for c in centres[:3])
    assert centres[3].max() < 30
    # The stream that ended first leaves its place black, the others go on.
    assert frames[40, 25, 120].max() < 30 and frames[40, 25, 40][0] > 200


def test_a_live_picture_goes_on_when_streams_come_and_go_and_a_camera_is_dead(model, tmp_path):
    inputs = [f"test:red?{SMALL}&live=1", f"rtsp://127.0.0.1:{free_port()}/dead"]
    job = Job(inputs, f"{model}:box", output=f"{tmp_path}/wall.mp4", tile=True, stay=True, attempts=0)
    session = Session(job)

    def seconds(count: float) -> None:
        """Waits for so many seconds of picture."""
        before = session.mosaic.frames
        wait_for(lambda: session.mosaic.frames > before + 25 * count, 60)

    with running(session) as outcome:
        red = session.branches[0]
        wait_for(lambda: red.counts.frames > 20)
        seconds(2)
        blue = session.add_source(f"test:blue?{SMALL}&live=1", "blue")
        wait_for(lambda: blue.counts.frames > 20)
        seconds(2)
        session.remove_source("red")
        wait_for(lambda: red.state == "ended")
        seconds(2)
    assert outcome == [True] and session.mosaic.written
    frames = pictures(tmp_path / "wall.mp4")
    middle, left, right = frames[:, 45, 80], frames[:, 45, 40], frames[:, 45, 120]
    assert (middle[:, 0] > 200).sum() > 5, "red alone fills the picture"
    assert ((left[:, 0] > 200) & (right[:, 2] > 200)).sum() > 5, "both side by side"
    assert (middle[:, 2] > 200).sum() > 5, "blue alone at the end"


def test_one_picture_needs_an_output_that_is_no_input(model, tmp_path):
    with pytest.raises(ConfigError, match="--output"):
        Session(Job(["test:red"], f"{model}:box", tile=True))
    (tmp_path / "a.mp4").write_bytes(b"x")
    with pytest.raises(ConfigError, match="is an input and the output"):
        Session(Job([f"{tmp_path}/a.mp4"], f"{model}:box", tile=True, output=f"{tmp_path}/a.mp4"))


def test_nothing_stays_open_when_the_picture_is_written(model, tmp_path):
    def once() -> int:
        job = Job([f"test:red?{SMALL}&frames=5", f"test:blue?{SMALL}&frames=5"], f"{model}:box", tile=True, track="none")
        job.output = f"{tmp_path}/wall.mp4"
        assert Session(job).run()
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    first = once()
    counts = [once() for _ in range(4)]
    assert max(counts) <= first, counts
