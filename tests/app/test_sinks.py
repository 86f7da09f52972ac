"""Names of outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app.sinks import output_paths
from gstinfer.app.sources import parse_all
from gstinfer.errors import ConfigError

ONE, TWO = parse_all(["a.mp4"]), parse_all(["a.mp4", "x/a.mp4"])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_none():
    assert output_paths(None, TWO) == [None, None]


def test_a_file_or_a_folder():
    assert output_paths("o.mp4", ONE) == [Path("o.mp4")]
    Path("there").mkdir()
    assert output_paths("there", ONE) == [Path("there/a.mp4")]
    assert output_paths("new/", ONE) == [Path("new/a.mp4")]
    assert output_paths("new", TWO) == [Path("new/a.mp4"), Path("new/a-2.mp4")]


@pytest.mark.parametrize(
    ("output", "sources", "words"),
    [
        ("o.avi", ONE, "only MP4"),
        ("o.mp4", TWO, "one file for 2 inputs"),
        ("gone/o.mp4", ONE, "does not exist"),
        ("gone/deep/", ONE, "cannot be made"),
    ],
)
def test_refused(output, sources, words):
    with pytest.raises(ConfigError, match=words):
        output_paths(output, sources)


def test_an_input_is_never_overwritten():
    Path("a.mp4").touch()
    with pytest.raises(ConfigError, match="input and the output"):
        output_paths("./a.mp4", ONE)
    with pytest.raises(ConfigError, match="input and the output"):
        output_paths(".", ONE)
