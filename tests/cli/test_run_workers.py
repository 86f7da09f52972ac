"""``gstinfer run --workers`` as a user meets it: signals, standard output, processes that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(180)]

SMALL = "?width=64&height=48&fps=25"


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)
    return value


def streams(text: str) -> dict[str, list[int]]:
    """Sequence numbers by stream; every line must be whole."""
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        message = json.loads(line)
        found.setdefault(message["stream_id"], []).append(message["sequence"])
    return found


def in_order(found: dict[str, list[int]]) -> bool:
    return all(numbers == list(range(len(numbers))) for numbers in found.values())


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Ended; one that nobody waited for counts too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def job(folder, clean_env):
    """Starts two slow streams in two workers, in a process group of their own as a terminal makes one."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gstinfer.cli.main", "run", f"test:ball{SMALL}", f"test:red{SMALL}", "--workers", "2"]
        process = subprocess.Popen(
            [*command, "--model", "models:slow", *arguments], cwd=folder, env=clean_env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def both(path: Path, length: int = 4000):
    return lambda: path.exists() and path.stat().st_size > length and len(streams(path.read_text().rpartition("\n")[0])) == 2


def test_messages_on_standard_output_stand_alone(gstinfer):
    sources = [f"test:{name}{SMALL}&frames=6" for name in ("red", "blue", "green")]
    done = gstinfer("run", *sources, "--model", "models:box", "--workers", "3", "--jsonl", "-")
    assert done.returncode == 0, done.stderr
    assert streams(done.stdout) == {name: list(range(6)) for name in ("red", "blue", "green")}
    assert "chatter" in done.stderr and "frames" in done.stderr


def test_standard_input_goes_to_the_worker_that_reads_it(gstinfer, folder):
    made = gstinfer("run", f"test:ball{SMALL}&frames=9", "--model", "models:box", "--output", "in.mp4")
    assert made.returncode == 0, made.stderr
    with (folder / "in.mp4").open("rb") as video:
        done = gstinfer(
            "run", f"test:red{SMALL}&frames=4", "-", "--model", "models:box", "--workers", "2", "--jsonl", "-", stdin=video
        )
    assert done.returncode == 0, done.stderr
    assert streams(done.stdout) == {"red": list(range(4)), "stdin": list(range(9))}


def test_one_summary_and_one_exit_code(gstinfer, folder):
    done = gstinfer(
        "run", f"test:red{SMALL}", "gone.mp4", f"test:blue{SMALL}", "--model", "models:box", "--workers", "2",
        "--max-frames", "3", "--output", "out/",
    )  # fmt: skip
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "error" in line] == ["error: gone.mp4: no such file"]
    shown = [line.split() for line in done.stdout.splitlines()]
    assert ["red", "blue"] in shown and ["frames", "3", "3"] in shown and ["thing", "3", "3"] in shown
    assert [line for line in done.stdout.splitlines() if "wrote" in line] == ["wrote out/red.mp4", "wrote out/blue.mp4"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [True, False])
def test_one_signal_finishes_the_files(job, folder, number, group):
    process = job("--output", "out/", "--jsonl", "all.jsonl")
    wait_for(both(folder / "all.jsonl"))
    (os.killpg if group else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err and "wrote out/ball.mp4" in out and "wrote out/red.mp4" in out
    found = streams((folder / "all.jsonl").read_text())
    assert in_order(found) and all(len(numbers) > 3 for numbers in found.values())
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["ball.mp4", "red.mp4"]


@pytest.mark.parametrize("seconds", [0.3, 0.8])
def test_a_signal_while_workers_start_is_a_clean_stop_too(job, seconds):
    process = job("--jsonl", "all.jsonl")
    wait_for(lambda: len(children(process.pid)) == 2)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in err, err


def test_a_second_signal_ends_all_at_once(job, folder):
    process = job("--jsonl", "all.jsonl", "--control", "run.sock", "--stay")
    wait_for(both(folder / "all.jsonl"))
    workers = children(process.pid)
    # One that cannot stop.
    os.kill(workers[0], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: gone(workers[1]))
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    wait_for(lambda: gone(workers[0]), 10)


def test_a_worker_that_is_killed_is_named_and_the_others_go_on(job, folder):
    process = job("--output", "out/", "--jsonl", "all.jsonl", "--max-frames", "150")
    wait_for(both(folder / "all.jsonl"))
    os.kill(children(process.pid)[1], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"error: test:red{SMALL}: its process, worker 2 of 2, was killed by SIGKILL" in err.splitlines()
    assert "wrote out/ball.mp4" in out and "wrote out/red.mp4" not in out
    assert [path.name for path in (folder / "out").iterdir()] == ["ball.mp4"]
    found = streams((folder / "all.jsonl").read_text())
    assert found["ball"] == list(range(150)) and in_order(found) and len(found["red"]) < 150


def test_a_worker_that_a_model_ends_gives_its_exit_code(job, folder):
    (folder / "fatal.py").write_text(
        "import os\ndef leave(batch):\n    if batch[0].sequence == 3 and batch[0].stream_id == 'red':\n        os._exit(7)\n"
        "    return [None] * len(batch)\n"
    )
    process = job("--model", "fatal:leave", "--max-frames", "9")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "its process, worker 2 of 2, ended with exit code 7" in err


def test_no_process_stays_when_the_parent_is_killed(job, folder):
    process = job("--output", "out/", "--jsonl", "all.jsonl")
    wait_for(both(folder / "all.jsonl"))
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: all(map(gone, workers)), 30)
    # They finish their files nevertheless.
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["ball.mp4", "red.mp4"]
    assert in_order(streams((folder / "all.jsonl").read_text().rpartition("\n")[0]))


def test_no_process_stays_when_the_parent_is_killed_while_workers_start(job):
    process = job()
    workers = wait_for(lambda: len(found := children(process.pid)) == 2 and found)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: all(map(gone, workers)), 30)


def test_a_reader_that_goes_away_is_a_failure(job):
    process = job("--jsonl", "-")
    assert json.loads(process.stdout.readline())["sequence"] == 0
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(30) == 1
    assert "standard output cannot be written for messages: Broken pipe" in err
    assert "Traceback" not in err and "/dev/fd" not in err


def test_a_reader_that_stops_reading_loses_nothing_and_does_not_stop_a_signal(job, folder):
    # Nobody reads standard error meanwhile: a model that says nothing.
    (folder / "quick.py").write_text("def quick(batch):\n    return [None] * len(batch)\n")
    process = job("--jsonl", "-", "--model", "quick:quick", "--track", "none")
    first = process.stdout.readline()
    time.sleep(3)
    os.killpg(process.pid, signal.SIGINT)
    # Not communicate(), which leaves out what readline() had read ahead.
    found = streams(first + process.stdout.read())
    assert process.wait(60) == 0, process.stderr.read()
    assert set(found) == {"ball", "red"} and in_order(found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tile", "-o", "o.mp4"], "--tile needs all pictures in one process"),
        (["--show"], "--show needs all pictures in one process"),
        (["--jsonl", "gone/o.jsonl"], "make it first"),
        (["--jsonl", "/dev/full"], "No space left"),
        (["--model", "models:nope"], "has no 'nope'"),
        (["--control", "gone/s"], "must be there"),
    ],
)
def test_bad_input_is_said(job, arguments, words):
    process = job("--max-frames", "3", *arguments)
    _, err = process.communicate(timeout=60)
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert process.returncode == 1 and errors and all(words in line for line in errors), err
    # What each stream meets by itself is said of each.
    assert len(errors) == (2 if {"/dev/full", "models:nope"} & set(arguments) else 1) and "Traceback" not in err


def test_wrong_number_of_workers(gstinfer):
    assert gstinfer("run", "test:red", "--model", "models:box", "--workers", "0").returncode == 2
