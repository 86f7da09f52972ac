"""Full-range video in an MP4 file whose container does not say so."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app import sources
from gstinfer.app.session import Job, Session
from gstinfer.testing import run_pipeline

MODEL = f"{__file__}:grey"


def grey(batch):
    """The class is the mean of the picture."""
    from gstinfer import Classifications

    return [Classifications([0], [1.0], [str(round(float(p.mean())))]) for p in batch.images("rgb")]


def write(path, colorimetry: str, level: int, encoder: str = "x264enc qp-max=1 ! h264parse", muxer: str = "mp4mux") -> None:
    """Five grey frames."""
    run = run_pipeline(
        f"videotestsrc num-buffers=5 pattern=solid-color foreground-color={0xFF000000 | level * 0x10101} ! "
        "video/x-raw,format=RGB,width=64,height=48 ! videoconvert ! "
        f"video/x-raw,format=I420,colorimetry=(string){colorimetry} ! {encoder} ! {muxer} ! filesink location={path}"
    )
    assert run.error is None


@pytest.mark.parametrize("colorimetry", ["1:4:0:0", "1:3:5:1", "bt601", "bt709"])
@pytest.mark.parametrize("level", [10, 245])
@pytest.mark.parametrize("kind", ["h264", "h265"])
def test_greys_come_out_as_they_went_in(tmp_path, colorimetry, level, kind):
    encoder = {"h264": "x264enc qp-max=1 ! h264parse", "h265": "x265enc ! h265parse"}[kind]
    path = tmp_path / "a.mp4"
    write(path, colorimetry, level, encoder)
    session = Session(Job([str(path)], MODEL, track="none", publish=[f"file:{tmp_path}/o.jsonl"]))
    assert session.run()

    for line in (tmp_path / "o.jsonl").open():
        (found,) = json.loads(line)["classifications"]
        assert abs(int(found["label"]) - level) <= 3


def test_only_what_is_wrong_is_corrected(tmp_path):
    write(tmp_path / "full.mp4", "1:3:5:1", 100)
    write(tmp_path / "limited.mp4", "bt709", 100)
    write(tmp_path / "full.mkv", "1:3:5:1", 100, muxer="matroskamux")
    found = {p.name: sources.probe(sources.parse(str(p))).colorimetry for p in tmp_path.iterdir()}
    # A GStreamer whose muxer and demuxer carry the range needs no help.
    assert found["full.mp4"] in ("1:3:5:1", "") and found["limited.mp4"] == found["full.mkv"] == ""
