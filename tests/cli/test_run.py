"""``gstinfer run`` as a user meets it: real pipelines in a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.resources import files
from itertools import pairwise

import jsonschema
import pytest

pytestmark = pytest.mark.gst

SMALL = "?width=64&height=48&fps=25"


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def video(path) -> dict[str, object]:
    """Facts of the video in a file, and the PTS of its frames."""
    from gstinfer.elements.compat import Gst, structure_of

    text = (
        "filesrc name=file ! qtdemux ! h264parse ! video/x-h264,stream-format=byte-stream ! tee name=t "
        "t. ! queue ! fakesink name=coded t. ! queue ! avdec_h264 ! appsink name=sink sync=false"
    )
    pipeline = Gst.parse_launch(text)
    pipeline.get_by_name("file").set_property("location", str(path))
    pipeline.set_state(Gst.State.PLAYING)
    sink, times, caps = pipeline.get_by_name("sink"), [], None
    while (sample := sink.emit("try-pull-sample", 5 * Gst.SECOND)) is not None:
        times.append(sample.get_buffer().pts)
        caps = sample.get_caps()
    coded_caps = pipeline.get_by_name("coded").get_static_pad("sink").get_current_caps()
    coded = structure_of(coded_caps, 0)
    pipeline.set_state(Gst.State.NULL)
    assert caps is not None, f"{path} has no frame"
    raw = structure_of(caps, 0)
    return {
        "size": (raw.get_int("width")[1], raw.get_int("height")[1]),
        "format": raw.get_string("format"),
        "profile": coded.get_string("profile"),
        "frames": len(times),
    }


def test_messages_on_standard_output_stand_alone(gstinfer):
    done = gstinfer("run", f"test:red{SMALL}&frames=5", "--model", "models:box", "--jsonl", "-")
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    schema = (files("gstinfer.publish") / "gstinfer-1.schema.json").read_text()
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    for item in found:
        validator.validate(item)
    assert [m["sequence"] for m in found] == [0, 1, 2, 3, 4]
    assert [m["pts"] for m in found] == [n * 40_000_000 for n in range(5)]
    assert {(m["stream_id"], m["source"]) for m in found} == {("red", f"test:red{SMALL}&frames=5")}
    assert found[0]["objects"][0]["bbox"] == [4, 4, 20, 20]
    assert "chatter" in done.stderr and "frames" in done.stderr


def test_summary_alone(gstinfer, folder):
    done = gstinfer("run", "test:white", "--model", "models:box", "--max-frames", "4", "--track", "none")
    assert done.returncode == 0, done.stderr
    summary = done.stdout.split("\n")
    assert any(line.split() == ["frames", "4"] for line in summary)
    assert any(line.split() == ["thing", "4"] for line in summary)
    assert not any(line.startswith("tracks") for line in summary)
    assert sorted(p.name for p in folder.iterdir() if p.suffix != ".py" and p.name != "__pycache__") == []


def test_video_and_messages_of_a_file_with_the_files_own_times(gstinfer, folder):
    made = gstinfer("run", f"test:ball{SMALL}&frames=12", "--model", "models:box", "--output", "in put.mp4")
    assert made.returncode == 0, made.stderr
    assert video(folder / "in put.mp4") == {"size": (64, 48), "format": "I420", "profile": "high", "frames": 12}
    done = gstinfer("run", "in put.mp4", "--model", "models:box", "--output", "out.mp4", "--jsonl", "out.jsonl")
    assert done.returncode == 0, done.stderr
    found = lines((folder / "out.jsonl").read_text())
    assert len(found) == video(folder / "out.mp4")["frames"] == 12
    steps = {b["pts"] - a["pts"] for a, b in pairwise(found)}
    assert steps == {40_000_000}
    assert {m["stream_id"] for m in found} == {"in put"}
    data = (folder / "out.mp4").read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat"), "the index must come first"


@pytest.mark.parametrize(("size", "padded"), [((63, 47), (64, 48)), ((64, 47), (64, 48)), ((17, 16), (18, 16))])
def test_odd_sizes_are_padded_for_the_encoder_only(gstinfer, folder, size, padded):
    source = f"test:smpte?width={size[0]}&height={size[1]}&frames=3"
    done = gstinfer("run", source, "--model", "models:box", "--output", "o.mp4", "--jsonl", "o.jsonl")
    assert done.returncode == 0, done.stderr
    assert video(folder / "o.mp4")["size"] == padded
    assert {(m["width"], m["height"]) for m in lines((folder / "o.jsonl").read_text())} == {size}


def test_several_inputs_share_one_message_file_and_one_failure_fails_the_job(gstinfer, folder):
    (folder / "empty.mp4").touch()
    red, blue = f"test:red{SMALL}&frames=6", f"test:blue{SMALL}&frames=9"
    done = gstinfer(
        "run", red, "empty.mp4", blue, red, "--model", "models:box", "--jsonl", "all.jsonl", "--output", "made/"
    )
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("error:")] == [
        "error: empty.mp4: the file is empty (0 bytes)"
    ]
    found = lines((folder / "all.jsonl").read_text())
    for stream, count in (("red", 6), ("blue", 9), ("red-2", 6)):
        assert [m["sequence"] for m in found if m["stream_id"] == stream] == list(range(count))
        assert video(folder / "made" / f"{stream}.mp4")["frames"] == count
    assert len(found) == 21


@pytest.mark.parametrize("name", ["-dash.mp4", "[red] two  spaces.mp4", "naïve ü.mp4"])
def test_names_of_files(gstinfer, folder, name):
    made = gstinfer("run", f"test:ball{SMALL}&frames=3", "--model", "models:box", "--output", "a.mp4")
    assert made.returncode == 0, made.stderr
    (folder / "a.mp4").rename(folder / name)
    done = gstinfer("run", "--model", "models:box", "--jsonl", "-", "--", name)
    assert done.returncode == 0, done.stderr
    assert [m["source"] for m in lines(done.stdout)] == [name] * 3
    (folder / name).write_bytes(b"")
    done = gstinfer("run", "--model", "models:box", "--", name)
    assert (done.returncode, done.stderr) == (1, f"error: {name}: the file is empty (0 bytes)\n")


def test_a_model_that_raises_keeps_what_was_made_before(gstinfer, folder):
    source = f"test:red{SMALL}&frames=9"
    done = gstinfer("run", source, "--model", "models:third_fails", "--jsonl", "o.jsonl", "--output", "o.mp4")
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and source in errors[0] and "ValueError: the third frame is bad" in errors[0]
    assert [m["sequence"] for m in lines((folder / "o.jsonl").read_text())] == [0, 1]
    assert video(folder / "o.mp4")["frames"] == 2


def test_a_model_that_wants_to_end_the_program_ends_the_job_alone(gstinfer):
    done = gstinfer("run", f"test:red{SMALL}&frames=9", "--model", "models:leaves", timeout=60)
    assert done.returncode == 1 and "models:leaves.predict() raised SystemExit: 3" in done.stderr


def test_what_a_model_gets_wrong_is_said_once_and_the_rest_is_published(gstinfer):
    source = f"test:red{SMALL}&frames=5"
    done = gstinfer("run", source, "--model", "models:dirty", "--set", "labels=a,b", "--jsonl", "-")
    assert done.returncode == 0
    assert [[o["label"] for o in m["objects"]] for m in lines(done.stdout)] == [["5"]] * 5
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert len(warnings) == 2, done.stderr
    assert "models:dirty gave numbers that are not finite" in warnings[0] and "beyond the last" in warnings[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope.mp4", "--model", "models:box"], "nope.mp4: no such file"),
        ([".", "--model", "models:box"], "there is no picture in it"),
        (["models.py", "--model", "models:box"], "models.py: it cannot be decoded"),
        (["test:wite", "--model", "models:box"], "did you mean 'white'"),
        (["test:white?depth=3", "--model", "models:box"], "available: fps, frames, height, live, width"),
        (["*.gone", "--model", "models:box"], "no file matches"),
        (["v4l2:/dev/video99", "--model", "models:box"], "no such camera"),
        (["gopher://x", "--model", "models:box"], "no kind of input 'gopher'"),
        (["test:white", "--model", "nope"], "no model 'nope'"),
        (["test:white", "--model", "models:nope"], "has no 'nope'"),
        (["test:white", "--model", "models:box", "--track", "nope"], "no tracker 'nope'"),
        (["test:white", "--model", "models:box", "--set", "interval"], "has no '='"),
        (["test:white", "--model", "models:box", "--set", "interval=many"], "interval='many' is not a valid int"),
        (["test:white", "--model", "models:box", "--set", "intervall=1"], "did you mean 'interval'"),
        (["test:white", "--model", "models:box", "--set", "pyoverlap.x=1"], "no element 'pyoverlap'"),
        (["test:white", "--model", "models:box", "--output", "gone/o.mp4"], "does not exist"),
        (["test:white", "--model", "models:box", "--output", "o.avi"], "only MP4"),
        (["test:white", "test:red", "--model", "models:box", "--output", "o.mp4"], "one file for 2 inputs"),
        (["test:white", "--model", "models:box", "--jsonl", "gone/o.jsonl"], "make it first"),
        (["test:white", "--model", "models:box", "--publish", "pigeon:x"], "no publisher 'pigeon'"),
        (["test:white", "--model", "models:box", "--jsonl", "/dev/full"], "No space left"),
    ],
)
def test_bad_input_is_one_line_with_the_reason(gstinfer, arguments, words):
    done = gstinfer("run", *arguments, "--max-frames", "3") if "/dev/full" in arguments else gstinfer("run", *arguments)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and words in errors[0], done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_command_line_is_exit_code_2(gstinfer):
    assert gstinfer("run", "--model", "models:box").returncode == 2
    assert gstinfer("run", "test:white").returncode == 2
    assert gstinfer("run", "test:white", "--model", "models:box", "--max-frames", "0").returncode == 2


def test_a_file_cut_in_half(gstinfer, folder):
    made = gstinfer("run", "test:snow?width=320&height=240&frames=60", "--model", "models:box", "--output", "a.mp4")
    assert made.returncode == 0, made.stderr
    data = (folder / "a.mp4").read_bytes()
    (folder / "half.mp4").write_bytes(data[: len(data) // 2])
    done = gstinfer("run", "half.mp4", "--model", "models:box", "--output", "o.mp4", "--jsonl", "o.jsonl")
    assert done.returncode == 1 and "half.mp4: the file is cut off" in done.stderr
    count = len(lines((folder / "o.jsonl").read_text()))
    assert 0 < count < 60 and video(folder / "o.mp4")["frames"] == count
    (folder / "head.mp4").write_bytes(data[:300])
    done = gstinfer("run", "head.mp4", "--model", "models:box")
    assert done.returncode == 1 and "head.mp4: the file is cut off before its index" in done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("zero.mp4", "the file is empty"),
        ("trunc.mp4", "before its index"),
        ("exo_invalid-bitstream.webm", "cannot be decoded"),
        ("th_no_cover.mp3", "no video stream"),
    ],
)
def test_broken_media(gstinfer, cases, name, reason):
    begin = time.monotonic()
    done = gstinfer("run", str(cases / "media" / name), "--model", "models:box", "--output", "o.mp4")
    assert done.returncode == 1 and time.monotonic() - begin < 5
    assert len(done.stderr.splitlines()) == 1 and name in done.stderr and reason in done.stderr


@pytest.mark.parametrize(
    ("name", "size"), [("exo_bear-vp9-odd-dimensions.webm", (161, 121)), ("tc_h264_10bits.mp4", (200, 200))]
)
def test_odd_and_10_bit_files(gstinfer, cases, folder, name, size):
    done = gstinfer("run", str(cases / "media" / name), "--model", "models:box", "--output", "o.mp4", "--jsonl", "o.jsonl")
    assert done.returncode == 0, done.stderr
    found = lines((folder / "o.jsonl").read_text())
    assert len(found) == 30 and {(m["width"], m["height"]) for m in found} == {size}
    made = video(folder / "o.mp4")
    assert made["frames"] == 30 and made["profile"] == "high" and made["format"] == "I420"


@pytest.mark.parametrize(
    ("name", "size"),
    [*((f"rot{angle}.mp4", (128, 96)) for angle in (0, 90, 180, 270)), ("exif_P6.jpg", (1200, 1800))],
)
def test_pictures_are_upright(gstinfer, cases, folder, name, size):
    done = gstinfer("run", str(cases / "media" / name), "--model", "models:halves", "--jsonl", "-")
    assert done.returncode == 0, done.stderr
    (found,) = lines(done.stdout)
    assert (found["width"], found["height"]) == size
    if name.startswith("rot"):
        assert [c["label"] for c in found["classifications"]] == ["red", "green"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_finish_the_files(folder, clean_env, number):
    command = [sys.executable, "-m", "gstinfer.cli.main", "run", f"test:ball{SMALL}", "--model", "models:slow"]
    child = subprocess.Popen(
        [*command, "--output", "o.mp4", "--jsonl", "o.jsonl"],
        cwd=folder, env=clean_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    path = folder / "o.jsonl"
    while time.monotonic() < deadline and not (path.exists() and path.stat().st_size > 2000):
        time.sleep(0.05)
    # Twice, as by timeout(1), which signals the process and its group.
    os.kill(child.pid, number)
    time.sleep(0.02)
    os.kill(child.pid, number)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    count = len(lines(path.read_text()))
    assert count > 3 and video(folder / "o.mp4")["frames"] == count
    assert "wrote o.mp4" in out


def test_a_reader_that_goes_away_is_a_failure(folder, clean_env):
    command = [sys.executable, "-m", "gstinfer.cli.main", "run", f"test:ball{SMALL}", "--model", "models:slow"]
    child = subprocess.Popen(
        [*command, "--jsonl", "-"], cwd=folder, env=clean_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert json.loads(child.stdout.readline())["sequence"] == 0
    child.stdout.close()
    err = child.stderr.read()
    assert child.wait(30) == 1
    assert "standard output cannot be written for messages: Broken pipe" in err and "Traceback" not in err


def test_a_reader_that_stops_reading_loses_nothing_and_does_not_stop_a_signal(folder, clean_env):
    source = "test:ball?width=16&height=16"
    command = [sys.executable, "-m", "gstinfer.cli.main", "run", source, "--model", "models:box", "--track", "none"]
    child = subprocess.Popen(
        [*command, "--jsonl", "-"],
        cwd=folder, env=clean_env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
    )  # fmt: skip
    first = child.stdout.readline()
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    found = lines((first + out).decode())
    assert [m["sequence"] for m in found] == list(range(len(found))) and len(found) > 10
    assert child.returncode == 0


def test_a_second_model_looks_at_the_objects_of_the_first(gstinfer, folder):
    done = gstinfer(
        "run", f"test:red{SMALL}&frames=6", f"test:blue{SMALL}&frames=6", "--model", "models.py:box", "--track", "none",
        "--then", "models.py:halves", "--set", "then.infer-on-class-ids=1", "--set", "then.classes-per-object=2",
        "--jsonl", "out.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    messages = lines((folder / "out.jsonl").read_text())
    assert len(messages) == 12 and {m["model"] for m in messages} == {"models.py:box"}
    for message in messages:
        (item,) = message["objects"]
        said = [attribute["label"] for attribute in item.get("attributes", ())]
        assert said == ([message["stream_id"]] * 2 if item["class_id"] == 1 else [])
    assert "then model" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "then.interval=2"), "no second model without --then"),
        (("--then", "nothing-such"), "no model 'nothing-such'"),
        (("--then", "models.py:halves", "--set", "then.model=x"), "use --then"),
        (("--then", "models.py:halves", "--set", "then.intervall=2"), "intervall"),
    ],
)
def test_a_second_model_that_cannot_be_is_said_at_once(gstinfer, arguments, words):
    done = gstinfer("run", f"test:red{SMALL}&frames=2", "--model", "models.py:box", *arguments)
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr
