"""How vLLM is called, with a module in its place: vLLM itself needs a GPU. What its answers mean is the library's."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from standin import COLORS, pictures

from gstinfer.errors import MissingDependencyError, ModelLoadError
from gstinfer.results import Text
from gstinfer.vlm import BackendOptions, Call, Segment, Trouble, as_backend


class LLM:
    """Answers by the colours in a conversation, like the stand-in server."""

    def __init__(self, model: str, **arguments: Any) -> None:
        if model == "none":
            raise OSError("no such model\nand many more lines")
        self.arguments = arguments

    def chat(self, conversations: Any, sampling_params: Any, use_tqdm: bool) -> list[Any]:
        assert len(conversations) == len(sampling_params) and not use_tqdm
        if any("fail" in str(c[-1]["content"][-1]["text"]) for c in conversations):
            raise RuntimeError("out of memory")
        found = []
        for conversation, parameters in zip(conversations, sampling_params):
            words = pictures({"messages": conversation})[: parameters.max_tokens]
            reason = "length" if len(words) == parameters.max_tokens else "stop"
            output = SimpleNamespace(text=" ".join(words) + "\n", token_ids=list(range(len(words))), finish_reason=reason)
            found.append(SimpleNamespace(outputs=[output]))
        return found


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: Any = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, lambda **arguments: SimpleNamespace(**arguments)
    sampling: Any = ModuleType("vllm.sampling_params")
    sampling.StructuredOutputsParams = lambda json: SimpleNamespace(json=json)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    return module


def call(*colors: str, prompt: str = "?", schema: Any = None) -> Call:
    images = tuple(np.full((24, 40, 3), COLORS[color], np.uint8) for color in colors)
    return Call(Segment("s", 0, 1, images, (0,) * len(images), prompt, schema=schema), 5, lambda call: None)


@pytest.mark.parametrize("send", ["images", "video"])
def test_all_questions_go_into_one_call(vllm: ModuleType, send: str) -> None:
    backend = as_backend("vllm:some/model", BackendOptions({"max_model_len": 99}, max_inflight=6, max_tokens=2, send=send))
    backend.open()
    assert backend.max_batch == 6 and backend.workers == 1 and backend._model.arguments == {"max_model_len": 99}  # type: ignore[attr-defined]
    said = backend.ask([call("red"), call("blue", "green", "white")])
    assert said == [Text("red", tokens=1, finish_reason="stop"), Text("blue green", tokens=2, finish_reason="length")]


def test_a_schema_guides_the_words(vllm: ModuleType) -> None:
    backend: Any = as_backend("vllm:m", BackendOptions())
    assert backend._sampling(call("red", schema={"type": "object"})).structured_outputs.json == {"type": "object"}
    assert not hasattr(backend._sampling(call("red")), "structured_outputs")


def test_failures_are_told(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = as_backend("vllm:m", BackendOptions())
    backend.open()
    (trouble,) = backend.ask([call("red", prompt="fail")])
    assert isinstance(trouble, Trouble) and "out of memory" in str(trouble)
    with pytest.raises(ModelLoadError, match="no such model") as caught:
        as_backend("vllm:none", BackendOptions()).open()
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingDependencyError, match="vllm"):
        backend.open()
