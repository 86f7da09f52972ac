# SPDX-License-Identifier: Apache-2.0
"""pyvlm on batches, on the stand-in: answers are user metas of the right frames, whatever the batch order."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "vlm"))
from standin import StandIn
from support import balanced, run

pytestmark = [
    pytest.mark.gst,
    pytest.mark.deepstream,
    pytest.mark.skipif(importlib.util.find_spec("gi") is None, reason="no PyGObject"),
]
READ = "[f.stream_id, [[t.text, t.start, t.end, t.model] for t in f.texts]]"


def source(pad: int, color: str) -> str:
    return (
        f"videotestsrc is-live=true num-buffers=75 pattern={color} ! "
        f"video/x-raw,format=NV12,width=160,height=120,framerate=25/1 ! m.sink_{pad} "
    )


@pytest.mark.parametrize("mode", ["", "mode=new fill=2"])
def test_answers_reach_the_frames_of_their_stream(make_standin, mode: str) -> None:
    with StandIn(delay=0.2) as server:
        told = run(
            make_standin(),
            f"standinmux name=m {mode} batch-size=3 ! pyvlm name=vlm model={server.spec} prompt=Which? segment=1 fps=2 "
            f"drain-timeout=2 ! standinprobe ! fakesink name=sink {source(0, 'red')}{source(1, 'blue')}{source(2, 'green')}",
            read=READ,
        )
    assert told.error is None and told.eos and not told.warnings
    said = [(stream, *text) for batch in told.frames for stream, texts in batch for text in texts]
    for stream, color in (("0", "red"), ("1", "blue"), ("2", "green")):
        mine = [found for found in said if found[0] == stream]
        assert len(mine) == 2, said
        assert {word for found in mine for word in found[1].split()} == {color}
        assert all(found[3] - found[2] < 10**9 and found[4] == "color-vlm" for found in mine)
    stats = told.stats["vlm"]
    assert stats["segments"] == stats["answered"] == 9 == told.messages.count("gstinfer-text")
    balanced(told)
