"""Prompts, their placeholders, and the file that holds more of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.vlm.prompts import Prompt, Prompts
from gstinfer.vlm.segments import Cut

CUT = Cut(0, 10**9, tuple((n * 500_000_000, np.zeros((1, 1, 3), np.uint8)) for n in range(3)), Counter(car=1, person=4), True)


def test_placeholders_are_filled_in() -> None:
    prompt = Prompt("{stream_id}: {num_frames} frames at {timestamps} show {objects} ({labels}); answer as {{}}")
    filled = prompt.fill("gate", CUT)
    assert filled == ("gate: 3 frames at 0.00 s, 0.50 s, 1.00 s show 4 person, 1 car (car, person); answer as {}", "")
    empty = Cut(0, 0, (), Counter(), True)
    assert Prompt("{objects} {labels}").fill("x", empty)[0] == "nothing nothing"


@pytest.mark.parametrize("text", ["{object}", "{}", "{0}", "{stream_id.x}", "{stream_id!r}", "{num_frames:3}"])
def test_an_unknown_placeholder_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown placeholder .*known are {stream_id}"):
        Prompt(text)
    with pytest.raises(ConfigError, match="system-prompt"):
        Prompt("fine", text)


def test_a_lone_brace_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"write {{ and }}"):
        Prompt('answer as {"a": 1')


def load(tmp_path: Path, text: str, default: str = "base?") -> Prompts:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return Prompts.load(Prompt(default), path)


def test_streams_take_what_they_do_not_say_from_the_default(tmp_path: Path) -> None:
    prompts = load(
        tmp_path,
        '[default]\nsystem-prompt = "Be brief."\n[streams.gate]\nprompt = "Open?"\nonly-on = "car"\n'
        '[streams."cam 2"]\nid = "two"',
    )
    assert prompts.of("elsewhere") == prompts.default and prompts.default.prompt == "base?"
    gate, two = prompts.of("gate"), prompts.of("cam 2")
    assert (gate.prompt, gate.system_prompt, gate.prompt_id) == ("Open?", "Be brief.", "gate")
    assert gate.condition is not None and gate.condition.text == "car"
    assert (two.prompt, two.prompt_id, two.condition) == ("base?", "two", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\nprompt = What?", "is not TOML: .*line 2"),
        ("[stream.gate]\nprompt = 'x'", "no table in .*'stream'.*did you mean 'streams'"),
        ("[streams.gate]\npromt = 'x'", "no key in .*streams.gate.*'promt'.*did you mean 'prompt'"),
        ("[streams.gate]\nprompt = 3", "must be text, got 3"),
        ("[streams.gate]\nprompt = '{frames}'", "streams.gate.*unknown placeholder {frames}"),
        ("[streams.gate]\nonly-on = 'car>'", "streams.gate.*only-on.*expected a number"),
        ("streams = 1", "must be a table"),
    ],
)
def test_a_typo_in_the_file_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, text)


def test_a_missing_file_and_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Prompts.load(Prompt("x"), tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="no prompt is set"):
        Prompts.load(Prompt(""), None)
    with pytest.raises(UnknownNameError):
        load(tmp_path, "[defaults]\nprompt='x'")
