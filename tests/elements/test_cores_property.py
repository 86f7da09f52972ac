"""The property cpu-cores."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.elements.compat import Gst
from gstinfer.testing import run_pipeline

HERE = sorted(os.sched_getaffinity(0))
MODEL = """
import os
from gstinfer import Model

SEEN = set()

class Where(Model):
    def predict(self, batch):
        SEEN.add(tuple(sorted(os.sched_getaffinity(0))))
        print("model", sorted(SEEN), flush=True)
        return [None] * len(batch)
"""


def threads(model, properties):
    """Cores of the streaming thread in front of the queue and of the one behind the element."""
    seen = {}

    def note(pad, info, name):
        seen.setdefault(name, set()).add(tuple(sorted(os.sched_getaffinity(0))))
        return Gst.PadProbeReturn.OK

    def prepare(pipeline):
        for name in ("front", "infer"):
            pipeline.get_by_name(name).get_static_pad("src").add_probe(Gst.PadProbeType.BUFFER, note, name)

    run = run_pipeline(
        "videotestsrc num-buffers=6 ! video/x-raw,width=64,height=64 ! identity name=front ! queue"
        f" ! pyinfer name=infer model={model} device=cpu {properties} ! fakesink name=sink",
        prepare=prepare,
    )
    return run, seen


@pytest.mark.skipif(len(HERE) < 2, reason="needs two cores")
@pytest.mark.parametrize("depth", [1, 4])
def test_threads_of_the_element_keep_to_its_cores_and_no_others(tmp_path, capfd, depth):
    (tmp_path / "m.py").write_text(MODEL)
    core, every = (HERE[1],), tuple(HERE)
    _, seen = threads(f"{tmp_path}/m.py:Where", f"cpu-cores={core[0]} frames-in-flight={depth}")
    assert seen == {"front": {every}, "infer": {core}}
    assert f"model {[core]}" in capfd.readouterr().out
    _, seen = threads(f"{tmp_path}/m.py:Where", f"frames-in-flight={depth}")
    assert seen == {"front": {every}, "infer": {every}}


def test_a_core_that_is_not_there_is_an_error_before_anything_runs(tmp_path):
    (tmp_path / "m.py").write_text(MODEL)
    run, seen = threads(f"{tmp_path}/m.py:Where", "cpu-cores=4000")
    assert not seen and "names core 4000, which this process may not use" in run.error
