"""What a stream leaves in the process once it has ended."""

from __future__ import annotations

import gc

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")

from PIL import Image
from sessions import running, wait_for

from gstinfer.app.branch import Branch
from gstinfer.app.session import Job, Session
from gstinfer.testing import run_pipeline


@pytest.fixture
def pipelines(monkeypatch) -> list:
    """Weak references to the pipelines of all streams."""
    found, build = [], Branch._build

    def noted(branch, *arguments):
        build(branch, *arguments)
        found.append(branch.pipeline.weak_ref())

    monkeypatch.setattr(Branch, "_build", noted)
    return found


@pytest.fixture
def source(request, tmp_path) -> str:
    """An input of a kind."""
    if request.param == "file":
        run_pipeline(f"videotestsrc num-buffers=10 ! x264enc ! mp4mux ! filesink name=sink location={tmp_path}/in.mp4")
        return f"{tmp_path}/in.mp4"
    if request.param == "pictures":
        for number in range(3):
            Image.new("RGB", (64, 48)).save(tmp_path / f"{number}.png")
        return f"{tmp_path}/*.png"
    return request.param


def none_is_left(pipelines: list) -> bool:
    gc.collect()
    return all(pipeline() is None for pipeline in pipelines)


@pytest.mark.parametrize("source", ["file", "pictures", "test:red?frames=10"], indirect=True)
@pytest.mark.parametrize("more", [{}, {"output": "o.mp4"}, {"output": "o.mp4", "tile": True}, {"then": "m.py:other"}], ids=str)
def test_no_pipeline(source, more, model, tmp_path, monkeypatch, pipelines):
    monkeypatch.chdir(tmp_path)
    session = Session(Job([source], f"{model}:box", **more))
    assert session.run(), session.branches[0].error
    assert len(pipelines) == 1
    wait_for(lambda: none_is_left(pipelines), 5)


@pytest.mark.parametrize("source", ["file"], indirect=True)
def test_no_pipeline_of_a_file_that_came_and_went_while_others_run(source, model, pipelines):
    session = Session(Job(["test:ball?live=1"], f"{model}:box", stay=True))
    with running(session) as outcome:
        for _ in range(3):
            session.add_source(source, "file")
            wait_for(lambda: not session.find("file").running, 20)
        wait_for(lambda: none_is_left(pipelines[1:]), 5)
    assert outcome == [True]


def test_no_pipeline_of_a_file_that_cannot_be_decoded(model, tmp_path, pipelines):
    (tmp_path / "in.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(5000))
    assert not Session(Job([f"{tmp_path}/in.mp4"], f"{model}:box")).run()
    wait_for(lambda: none_is_left(pipelines), 5)
