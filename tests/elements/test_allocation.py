"""What pyinfer says to a decoder about the frames that it holds."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.elements.compat import Gst
from gstinfer.testing import run_pipeline

MODEL = "def nothing(batch):\n    return [None] * len(batch)\n"
SIZE = "format=NV12,width=64,height=64,framerate=30/1"


def pools(query):
    return [query.parse_nth_allocation_pool(n)[1:] for n in range(query.get_n_allocation_pools())]


def asked(tmp_path, memory, depth, offered=None):
    """Whether an ALLOCATION query at pyinfer's sink pad is answered, and its pools (size, least, most)."""
    (tmp_path / "m.py").write_text(MODEL)
    found = []

    def ask(pipeline, number):
        query = Gst.Query.new_allocation(Gst.Caps.from_string(f"video/x-raw{memory},{SIZE}"), False)
        if offered is not None:
            query.add_allocation_pool(None, *offered)
        answered = pipeline.get_by_name("infer").get_static_pad("sink").query(query)
        found.append((answered, pools(query)))

    run = run_pipeline(
        f"videotestsrc num-buffers=2 ! video/x-raw,{SIZE} ! pyinfer name=infer model={tmp_path}/m.py:nothing device=cpu"
        f" frames-in-flight={depth} ! fakesink name=sink",
        on_buffer=ask,
    )
    assert run.eos and run.error is None
    return found[0]


@pytest.mark.parametrize("depth", [2, 8])
def test_a_decoder_hears_how_many_surfaces_are_held(tmp_path, depth):
    assert asked(tmp_path, "(memory:CUDAMemory)", depth) == (True, [(64 * 64 * 3 // 2, depth + 2, 0)])


def test_what_others_need_comes_on_top(tmp_path):
    assert asked(tmp_path, "(memory:CUDAMemory)", 4, (6144, 3, 0)) == (True, [(6144, 9, 0)])
    assert asked(tmp_path, "(memory:CUDAMemory)", 4, (6144, 3, 5)) == (True, [(6144, 9, 9)])
    assert asked(tmp_path, "(memory:CUDAMemory)", 4, (6144, 3, 20)) == (True, [(6144, 9, 20)])


def test_more_surfaces_than_a_decoder_can_have_are_not_asked_for(tmp_path):
    assert asked(tmp_path, "(memory:CUDAMemory)", 64) == (True, [(64 * 64 * 3 // 2, 62, 0)])
    assert asked(tmp_path, "(memory:CUDAMemory)", 32, (6144, 40, 0)) == (True, [(6144, 62, 0)])


def test_nothing_is_said_where_nothing_is_held_or_memory_is_not_scarce(tmp_path):
    assert asked(tmp_path, "(memory:CUDAMemory)", 1)[1] == []
    assert asked(tmp_path, "", 8)[1] == []
