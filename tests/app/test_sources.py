"""Inputs: how they are named, and what is known of them before they run."""

from __future__ import annotations

import os
import struct
from pathlib import Path

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
    with pytest.raises(HostError, match="no picture in it"):
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
    assert sources._mp4_boxes(str(path))[0] is complete


@pytest.fixture
def pictures(tmp_path):
    from PIL import Image

    folder = tmp_path / "my frames"
    folder.mkdir()
    for number in (1, 2, 10):
        Image.new("RGB", (8, 6), (number, 0, 0)).save(folder / f"f{number}.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


def names(source):
    return [Path(f).name for f in source.files]


def test_a_folder_of_pictures_is_one_stream_in_order_of_numbers(pictures):
    source = sources.parse(str(pictures))
    assert (source.kind, source.stream_id, names(source)) == ("pictures", "my frames", ["f1.png", "f2.png", "f10.png"])
    assert sources.probe(source) == sources.Facts(fps=25, frames=3)
    assert sources.probe(sources.parse(f"images:{pictures}?fps=4")) == sources.Facts(fps=4, frames=3)
    assert sources.parse(f"file://{pictures}").files == source.files


def test_patterns_of_names(pictures):
    (pictures / "clip.mp4").write_bytes(b"x")
    stills, clip = sources.parse_all([f"{pictures}/[fc]*"])
    assert (stills.kind, names(stills)) == ("pictures", ["f1.png", "f2.png", "f10.png"])
    assert (clip.kind, clip.stream_id, clip.target) == ("file", "clip", str(pictures / "clip.mp4"))
    assert names(sources.parse(f"images:{pictures}/f?.png?fps=3")) == ["f1.png", "f2.png"]
    (pictures / "f[1].png").write_bytes(b"x")
    (single,) = sources.parse_all([f"{pictures}/f[1].png"])
    assert names(single) == ["f[1].png"]
    with pytest.raises(ConfigError, match="no file matches"):
        sources.parse_all([f"{pictures}/*.webp"])


def test_files_without_a_suffix_are_known_by_their_first_bytes(pictures):
    still, video = pictures / "still", pictures / "video"
    still.write_bytes((pictures / "f1.png").read_bytes())
    video.write_bytes(b"\0\0\0\x18ftyp")
    assert sources.parse(str(still)).kind == "pictures" and sources.parse(str(video)).kind == "file"


def test_a_picture_that_is_none(pictures):
    (pictures / "text.png").write_text("no picture")
    with pytest.raises(HostError, match="it is no picture"):
        sources.probe(sources.parse(str(pictures / "text.png")))
    (pictures / "empty.jpg").touch()
    with pytest.raises(HostError, match="empty"):
        sources.probe(sources.parse(str(pictures / "empty.jpg")))
    with pytest.raises(HostError, match="no such file"):
        sources.probe(sources.parse(str(pictures / "gone.jpg")))


@pytest.mark.parametrize(
    ("text", "target", "options"),
    [
        ("v4l2:/dev/video7", "/dev/video7", {}),
        ("/dev/video2", "/dev/video2", {}),
        ("v4l2:/dev/video0?width=640&height=480&fps=15", "/dev/video0", {"width": 640, "height": 480, "fps": 15}),
    ],
)
def test_cameras(text, target, options):
    source = sources.parse(text)
    assert (source.kind, source.target, dict(source.options), source.live) == ("camera", target, options, True)


def test_cameras_that_are_none():
    with pytest.raises(HostError, match="no such camera"):
        sources.probe(sources.parse("v4l2:/dev/video99"))
    with pytest.raises(HostError, match="it is no camera"):
        sources.probe(sources.parse("v4l2:/dev/null"))
    with pytest.raises(UnknownNameError, match="depth"):
        sources.parse("v4l2:/dev/video0?depth=3")


def test_standard_input_that_is_a_terminal(monkeypatch):
    import pty

    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"there is no terminal to be had: {error}")
    with open(follower) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        with pytest.raises(HostError, match="terminal"):
            sources.probe(sources.parse("-"))
    os.close(leader)


def test_an_mp4_cut_off_before_its_index_is_named_without_decoding(tmp_path, monkeypatch):
    path = tmp_path / "a.mp4"
    path.write_bytes(box(b"ftyp", 16) + box(b"mdat", 40, 400))
    monkeypatch.setattr(sources, "PROBE_SECONDS", None)
    with pytest.raises(HostError, match="before its index"):
        sources.probe(sources.parse(str(path)))
