"""The stage of pypublish, without GStreamer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gstinfer.elements.publish.stage import PublishSettings, PublishStage
from gstinfer.errors import ConfigError, PublishError
from gstinfer.frames import Frame, FrameBatch
from gstinfer.image import Image
from gstinfer.results import FrameResults
from gstinfer.stage import Stage

IMAGE = Image.from_array(np.zeros((4, 6, 3), np.uint8))


def batch(*streams: str, pts: int = 0) -> FrameBatch:
    return FrameBatch(tuple(Frame(IMAGE, s, pts, results=FrameResults("m", True)) for s in streams))


def test_is_a_stage():
    assert isinstance(PublishStage(PublishSettings()), Stage)


def test_one_line_per_frame_in_order_and_all_there_after_stop(tmp_path):
    stage = PublishStage(PublishSettings(url=f"file:{tmp_path}/a.jsonl"))
    stage.start()
    for n in range(100):
        stage.process(batch("a", "b", pts=n))
    stage.stop()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(m["stream_id"], m["pts"]) for m in lines] == [(s, n) for n in range(100) for s in "ab"]
    assert stage.stats() == {"published": 200, "dropped": 0}
    stage.stop()


def test_drain_writes_everything_while_running(tmp_path):
    stage = PublishStage(PublishSettings(url=f"file:{tmp_path}/a.jsonl"))
    stage.start()
    stage.process(batch("a"))
    assert stage.drain()
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1
    stage.stop()


def test_start_says_what_is_wrong(tmp_path):
    with pytest.raises(PublishError, match="No such file"):
        PublishStage(PublishSettings(url=f"file:{tmp_path}/gone/a.jsonl")).start()
    with pytest.raises(ConfigError, match="scheme"):
        PublishStage(PublishSettings(url="out.jsonl")).start()
    with pytest.raises(ConfigError, match="on-full"):
        PublishSettings(on_full="explode")


def test_a_full_disk_reaches_the_callback_and_the_stream():
    told = []
    stage = PublishStage(PublishSettings(url="file:/dev/full"), on_error=told.append)
    stage.start()
    stage.process(batch("a"))
    assert not stage.drain()
    with pytest.raises(PublishError, match="No space left"):
        stage.process(batch("a"))
    stage.stop()
    assert len(told) == 1 and stage.stats() == {"published": 0, "dropped": 1}
