"""Inputs: how they are named, and what is known of them before they run."""

from __future__ import annotations

import struct

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app import sources
from gstinfer.errors import ConfigError, HostError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "path", "stream"),
    [
        ("a/b c.mp4", "a/b c.mp4", "b c"),
        ("-x.mp4", "-x.mp4", "-x"),
        ("file:///a/b%20c.mp4", "/a/b c.mp4", "b c"),
        ("file://localhost/a.b.mp4", "/a.b.mp4", "a.b"),
        ("./test:white", "./test:white", "test:white"),
    ],
)
def test_files(text, path, stream):
    source = sources.parse(text)
    assert (source.kind, source.target, source.stream_id) == ("file", path, stream)


def test_patterns_are_videotestsrcs():
    source = sources.parse("test:zone-plate?width=8&frames=3")
    assert (source.kind, source.target, dict(source.options)) == ("test", "zone-plate", {"width": 8, "frames": 3})
    with pytest.raises(UnknownNameError, match=r"'zone'; available: .*smpte.*zone-plate"):
        sources.parse("test:zone")


@pytest.mark.parametrize("text", ["", "test:white?width=0", "test:white?width=x"])
def test_what_is_no_input(text):
    with pytest.raises(ConfigError):
        sources.parse(text)


def test_streams_of_one_name_are_told_apart():
    texts = ["a/x.mp4", "b/x.mp4", "x-2.mp4", "c/x.mkv"]
    assert [s.stream_id for s in sources.parse_all(texts)] == ["x", "x-2", "x-2-2", "x-3"]


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(HostError, match="no such file"):
        sources.probe(sources.parse(str(tmp_path / "a.mp4")))
    with pytest.raises(HostError, match="folder"):
        sources.probe(sources.parse(str(tmp_path)))
    (tmp_path / "a.mp4").touch()
    with pytest.raises(HostError, match="empty"):
        sources.probe(sources.parse(str(tmp_path / "a.mp4")))


def test_facts_of_a_real_file(bikes):
    facts = sources.probe(sources.parse(str(bikes)))
    assert facts.frames == 250 and facts.fps == 25 and not facts.cut_off


def box(kind: bytes, size: int, length: int | None = None) -> bytes:
    return struct.pack(">I", size if length is None else length) + kind + b"\0" * (size - 8)


@pytest.mark.parametrize(
    ("data", "complete"),
    [
        (box(b"ftyp", 16) + box(b"mdat", 40), True),
        (box(b"ftyp", 16) + box(b"mdat", 40, 0), True),
        (box(b"ftyp", 16) + box(b"mdat", 40, 41), False),
        (box(b"ftyp", 16) + box(b"mdat", 40)[:5], False),
        (box(b"ftyp", 16) + struct.pack(">I4sQ", 1, b"mdat", 24) + b"\0" * 8, True),
        (box(b"ftyp", 16) + struct.pack(">I4sQ", 1, b"mdat", 25) + b"\0" * 8, False),
        (b"RIFF" + b"\0" * 40, None),
    ],
)
def test_whether_an_mp4_is_complete(tmp_path, data, complete):
    path = tmp_path / "a.mp4"
    path.write_bytes(data)
    assert sources._mp4_complete(str(path)) is complete
