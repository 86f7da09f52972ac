"""The CUDA context that a pipeline's elements share."""

from __future__ import annotations

import pytest

from gstinfer import gpu
from gstinfer.hosts import cuda_context

pytestmark = pytest.mark.gst


@pytest.fixture
def context(monkeypatch):
    """A ``gst.cuda.context`` without a GPU, in the place of the primary one."""
    from gi.repository import Gst

    made, asked = Gst.Context.new("gst.cuda.context", True), []

    def primary(index):
        asked.append(index)
        return hash(made)

    monkeypatch.setattr(cuda_context, "_context", primary)
    monkeypatch.setattr(gpu, "device_count", lambda: 4)
    return asked


def answers(element: str) -> list[str]:
    """Types of the contexts that a pipeline with this element in READY hands out."""
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(f"videotestsrc name=source ! {element} ! fakesink")
    pipeline.set_state(Gst.State.READY)
    found = [context.get_context_type() for context in pipeline.get_contexts()]
    pipeline.set_state(Gst.State.NULL)
    return found


def test_a_pipeline_learns_the_context_of_the_networks_gpu(context):
    assert answers("pyinfer model=nanodet-coco device=cuda:2") == ["gst.cuda.context"]
    assert context == [2]


@pytest.mark.parametrize("device", ["cpu", "auto", "cuda:7", "cuba"])
def test_nothing_is_told_for_other_devices(context, device):
    assert answers(f"pyinfer model=nanodet-coco device={device}") == []
    assert context == []


def test_without_a_driver_nothing_is_told():
    if gpu.device_count():
        pytest.skip("there is a GPU here")
    from gi.repository import Gst

    assert cuda_context.announce(Gst.ElementFactory.make("identity"), 0) is False


@pytest.mark.cuda
def test_the_primary_context_of_the_gpu():
    if not gpu.device_count():
        pytest.skip("no GPU here")
    from gi.repository import Gst

    assert cuda_context.announce(Gst.ElementFactory.make("identity"), 0) is False  # nobody listens
    assert cuda_context._context(0)
