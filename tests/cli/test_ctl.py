"""``gstinfer run`` with a control socket, and ``gstinfer ctl``, each in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]

LIVE = "width=64&height=48&live=1&fps=25"


def start(folder, env, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gstinfer.cli.main", "run", *arguments],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def listed(gstinfer, want, seconds: float = 60) -> list[dict]:
    """``ctl list`` once a condition holds."""
    deadline = time.monotonic() + seconds
    while True:
        done = gstinfer("ctl", "-s", "run.sock", "--json", "list")
        streams = json.loads(done.stdout) if done.returncode == 0 else None
        if streams is not None and want(streams):
            return streams
        assert time.monotonic() < deadline, done.stderr or streams
        time.sleep(0.2)


def test_a_session_is_controlled_and_ends_with_its_files(gstinfer, folder, clean_env):
    arguments = ["--model", "models:box", "--output", "made/", "--control", "run.sock", "--stay"]
    process = start(folder, clean_env, f"test:red?{LIVE}", *arguments)
    try:
        listed(gstinfer, lambda s: s[0]["state"] == "playing" and s[0]["frames"] > 5)
        second = gstinfer("run", "test:blue", "--model", "models:box", "--control", "run.sock")
        assert second.returncode == 1 and "another run listens on 'run.sock'" in second.stderr
        added = gstinfer("ctl", "-s", "run.sock", "add", f"test:blue?{LIVE}", "--name", "door")
        assert added.returncode == 0 and "door" in added.stdout, added.stderr
        listed(gstinfer, lambda s: s[-1]["name"] == "door" and s[-1]["frames"] > 5)
        swapped = gstinfer("ctl", "-s", "run.sock", "swap", "models:halves")
        assert swapped.stdout == "running models:halves\n", swapped.stderr
        for command, words in (
            (("add", "gone.mp4"), "no such file"),
            (("add", "gopher://x"), "no kind of input"),
            (("remove", "nope"), "no stream 'nope'; available: door, red"),
            (("swap", "gone.onnx"), "gone.onnx"),
        ):
            done = gstinfer("ctl", "-s", "run.sock", *command)
            assert done.returncode == 1 and words in done.stderr and len(done.stderr.splitlines()) == 1
        assert gstinfer("ctl", "-s", "run.sock", "remove", "door").returncode == 0
        listed(gstinfer, lambda s: s[-1]["state"] == "ended" and s[0]["state"] == "playing")
        stats = json.loads(gstinfer("ctl", "-s", "run.sock", "stats").stdout)
        assert stats["model"] == "models:halves" and len(stats["streams"]) == 2
        table = gstinfer("ctl", "-s", "run.sock", "list").stdout
        assert re.search(r"^red +playing", table, re.M) and re.search(r"^door +ended", table, re.M)
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "wrote made/red.mp4" in out and "wrote made/door.mp4" in out
    assert sorted(p.name for p in (folder / "made").iterdir()) == ["door.mp4", "red.mp4"]
    assert not (folder / "run.sock").exists()
    gone = gstinfer("ctl", "-s", "run.sock", "list")
    assert gone.returncode == 1 and "no running session answers on 'run.sock'" in gone.stderr
    assert gstinfer("ctl", "list").returncode == 2


def test_rest_and_metrics_of_a_run(folder, clean_env):
    arguments = ["--model", "models:box", "--rest", "0", "--metrics", "127.0.0.1:0", "--stay"]
    process = start(folder, {**clean_env, "GSTINFER_TOKEN": "sesame"}, f"test:red?{LIVE}", *arguments)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = re.match(r"REST API at (http://127\.0\.0\.1:\d+), token is GSTINFER_TOKEN", line)
        assert url is not None, line
        request = urllib.request.Request(f"{url[1]}/v1/streams", headers={"Authorization": "Bearer sesame"})
        with urllib.request.urlopen(request, timeout=60) as response:
            assert [s["name"] for s in json.load(response)] == ["red"]
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "sesame" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--stay"], 2, "--stay needs --control or --rest"),
        (["test:red", "--rest", "0.0.0.0:0"], 1, "needs a token of your own"),
        (["test:red", "--rest", "x"], 1, "no address to listen on"),
        (["test:red", "--control", "gone/run.sock"], 1, "must be there"),
        (["test:red", "--tile"], 1, "no --output"),
    ],
)
def test_options_that_do_not_fit(gstinfer, arguments, code, words):
    done = gstinfer("run", *arguments, "--model", "models:box")
    assert done.returncode == code and words in done.stderr, done.stderr


def test_one_failed_input_is_named_and_the_others_are_done(gstinfer, folder):
    (folder / "empty.mp4").touch()
    inputs = ["test:red?frames=8&width=64&height=48", "empty.mp4", "test:blue?frames=4&width=64&height=48"]
    done = gstinfer("run", *inputs, "--model", "models:box", "--output", "wall.mp4", "--tile")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: empty.mp4: the file is empty (0 bytes)"]
    assert "wrote wall.mp4" in done.stdout


def test_bench(gstinfer):
    done = gstinfer("bench", "models:slow", "--seconds", "0.1", "--size", "64x48", "--streams", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # The model sleeps 20 ms a batch, so the largest batch is the best, and the model is what takes longest.
    assert found["best_batch"] == 16 and set(found["batches"]) == {"1", "2", "4", "8", "16"}
    assert 10 < found["batches"]["1"] < 51 and found["pipeline"] < 51 and found["bare"] < 51
    assert found["fill"] > 1 and found["latency"][0] > 19 and found["decode"] > found["bare"]
    done = gstinfer("bench", "models:slow", "--seconds", "0.1", "--size", "64x48")
    assert "The bound is " in done.stdout and "model alone, batch 16" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "no model 'nope'"),
        (["models:slow", "--size", "huge"], "is no even size"),
        (["models:slow", "--input", "gone.mp4"], "no such file"),
        (["models:slow", "--set", "pytrack.tracker-args=a=1"], "only properties of pyinfer"),
        (["models:third_fails", "--size", "64x48"], "the third frame is bad"),
    ],
)
def test_bench_says_what_is_wrong(gstinfer, arguments, words):
    done = gstinfer("bench", *arguments)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr
