"""A real vision-language architecture of transformers, tiny and with random weights, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

from standin import COLORS
from tiny_model import make_tiny_model

from gstinfer.errors import ConfigError, ModelLoadError
from gstinfer.results import Text
from gstinfer.vlm import BackendOptions, Call, Segment, as_backend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def call(*colors: str, timeout: float = 60.0, prompt: str = "What happens?", **fields: Any) -> Call:
    images = tuple(np.full((24, 40, 3), COLORS[color], np.uint8) for color in colors)
    segment = Segment("cam", 0, 1, images, tuple(range(len(images))), prompt, **fields)
    return Call(segment, timeout, lambda call: None)


def test_answers_depend_on_the_pictures_and_batches_agree_with_single_questions(folder: Path) -> None:
    backend = as_backend(f"transformers:{folder}", BackendOptions(max_tokens=12))
    backend.open()
    calls = [call("red", "blue"), call("green"), call("white", "black", "red", prompt="A longer question, then?")]
    alone = [backend.ask([one])[0] for one in calls]
    assert all(isinstance(text, Text) and text.text and 0 < (text.tokens or 0) <= 12 for text in alone)
    assert len({text.text for text in alone}) > 1  # type: ignore[union-attr]
    together = backend.ask(calls)
    assert [text.text for text in together] == [text.text for text in alone]  # type: ignore[union-attr]
    # The same question about other pictures has another answer: the pictures do reach the model.
    assert {text.text for text in backend.ask([call("red")])} != {text.text for text in backend.ask([call("white")])}  # type: ignore[union-attr]
    backend.close()


def test_it_agrees_with_the_library_used_directly(folder: Path) -> None:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    backend = as_backend(f"transformers:{folder}", BackendOptions(max_tokens=10))
    backend.open()
    ours = backend.ask([call("cyan", "red", system_prompt="Be brief.")])[0]
    processor, model = AutoProcessor.from_pretrained(folder), AutoModelForImageTextToText.from_pretrained(folder).eval()
    images = [np.full((24, 40, 3), COLORS[color], np.uint8) for color in ("cyan", "red")]
    text = "system: Be brief.\nuser: <image><image>What happens?\nassistant: "
    inputs = processor(text=text, images=images, return_tensors="pt")
    with torch.inference_mode():
        tokens = model.generate(**inputs, max_new_tokens=10, do_sample=False)
    theirs = processor.tokenizer.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
    assert isinstance(ours, Text) and ours.text == theirs


def test_a_question_called_off_ends_the_generation(folder: Path) -> None:
    backend = as_backend(f"transformers:{folder}", BackendOptions(max_tokens=30))
    backend.open()
    (whole,) = backend.ask([call("red")])
    gone = call("red")
    gone.finish("dropped", "flushed")
    (cut,) = backend.ask([gone])
    assert isinstance(whole, Text) and isinstance(cut, Text)
    assert (whole.tokens or 0) > 10 and cut.tokens == 1


def test_what_cannot_be_loaded_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be loaded") as caught:
        as_backend(f"transformers:{tmp_path}", BackendOptions()).open()
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="send=video"):
        as_backend(f"transformers:{folder}", BackendOptions(send="video"))
    with pytest.raises(ConfigError, match="names no model"):
        as_backend("transformers:", BackendOptions())


@pytest.mark.gst
def test_end_to_end_in_a_pipeline(folder: Path) -> None:
    pytest.importorskip("gi")
    from gstinfer.testing import run_pipeline

    run = run_pipeline(
        "videotestsrc pattern=ball num-buffers=75 ! video/x-raw,format=I420,width=64,height=48,framerate=25/1 ! "
        f'pyvlm name=vlm model=transformers:{folder} prompt="What happens at {{timestamps}}?" segment=1 fps=2 '
        "max-tokens=8 on-full=wait ! fakesink name=sink",
        timeout=90,
    )
    assert run.error is None and len(run.pts) == 75
    found = [text for results in run.results if results for text in results.texts]
    assert [text.start for text in found] == [0, 10**9, 2 * 10**9]
    assert all(text.text and text.tokens and text.model == str(folder) for text in found)
    assert run.stats["vlm"]["segments"] == run.stats["vlm"]["answered"] == 3


@pytest.mark.parametrize(
    ("target", "words"),
    [("./nothing-here", "folder ./nothing-here does not exist"), ("nobody/nothing-such", "nothing is fetched unless")],
)
def test_nothing_is_fetched_for_a_model_that_is_missing(target: str, words: str, monkeypatch: Any) -> None:
    import socket

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a network was asked")

    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    with pytest.raises(ModelLoadError) as caught:
        as_backend(f"transformers:{target}", BackendOptions()).open()
    assert words in str(caught.value) and "\n" not in str(caught.value) and "asked" not in str(caught.value)
