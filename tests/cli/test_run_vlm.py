"""``gstinfer run --vlm``: answers in the messages and in the picture."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gst
sys.path.insert(0, str(Path(__file__).parents[1] / "vlm"))
from standin import StandIn, question

SMALL = "?width=64&height=48&fps=25"
ARGUMENTS = ("--model", "models.py:box", "--track", "none")


def test_every_segment_of_a_file_is_answered_in_the_messages(gstinfer: Any, folder: Path) -> None:
    with StandIn(delay=0.2) as standin:
        done = gstinfer(
            "run", f"test:blue{SMALL}&frames=110", f"test:red{SMALL}&frames=110", *ARGUMENTS,
            "--vlm", standin.spec, "--prompt", "What about {stream_id} and {labels}?",
            "--set", "pyvlm.segment=1", "--set", "pyvlm.queue-size=1", "--jsonl", "out.jsonl",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    for color in ("blue", "red"):
        texts = [text for m in messages if m["stream_id"] == color for text in m.get("texts", ())]
        assert sorted(text["start"] for text in texts) == [n * 10**9 for n in range(5)]
        assert {word for text in texts for word in text["text"].split()} == {color}
    assert {question(request) for request in standin.requests} == {
        "What about blue and thing?", "What about red and thing?"
    }  # fmt: skip


def test_answers_are_drawn(gstinfer: Any, folder: Path) -> None:
    import cv2

    with StandIn(answer=lambda colors, request: "█" * 60) as standin:
        done = gstinfer(
            "run", "test:blue?width=320&height=240&fps=25&frames=80", *ARGUMENTS, "--vlm", standin.spec, "--prompt", "?",
            "--set", "pyvlm.segment=1", "-o", "out.mp4",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    video = cv2.VideoCapture(str(folder / "out.mp4"))
    bottoms = []
    while (got := video.read())[0]:
        bottoms.append(float(got[1][-14:, :, 2].mean()))
    assert len(bottoms) == 80 and bottoms[0] < 60 < bottoms[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompt", "hi"), "--prompt asks nobody"),
        (("--set", "pyvlm.fps=2"), "no vision-language model without --vlm"),
        (("--vlm", "{0}", "--prompt", "{{x}}"), "unknown placeholder {x}"),
        (("--vlm", "{0}"), "no prompt is set"),
        (("--vlm", "{0}y", "--prompt", "hi"), "no model at"),
        (("--vlm", "{0}", "--prompt", "hi", "--set", "pyvlm.model=x"), "use --vlm"),
    ],
)
def test_what_is_wrong_is_one_line(gstinfer: Any, arguments: tuple[str, ...], words: str) -> None:
    with StandIn() as standin:
        done = gstinfer(
            "run", "test:blue?frames=3", *ARGUMENTS, *(argument.format(standin.spec) for argument in arguments)
        )
    assert done.returncode != 0 and words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_run_does_not_wait_for_a_model_that_hangs(folder: Path, clean_env: dict[str, str]) -> None:
    with StandIn(lambda number: "hang") as standin:
        child = subprocess.Popen(
            [sys.executable, "-m", "gstinfer.cli.main", "run", "test:blue?width=64&height=48", *ARGUMENTS,
             "--vlm", standin.spec, "--prompt", "hi", "--set", "pyvlm.segment=0.2", "--jsonl", "out.jsonl"],
            cwd=folder, env=clean_env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        limit = time.monotonic() + 30
        while len(standin.requests) < 4 and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(0.5)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=30)
    assert child.returncode == 0, stderr
    assert time.monotonic() - began < 8
    assert all(json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines())
