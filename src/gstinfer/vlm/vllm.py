"""A vision-language model of vLLM in this process: all questions that wait go into one call, which vLLM batches itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.results import Text
from gstinfer.unwinder import cxx_library
from gstinfer.vlm.backend import Backend, BackendOptions
from gstinfer.vlm.call import Call, Trouble
from gstinfer.vlm.conversation import conversation

__all__ = ["VllmModel"]


class VllmModel(Backend):
    """``vllm.LLM`` and its ``chat``.

    Args:
        target: Folder of the model, or its name in the library's cache.
        options: ``arguments`` go to ``vllm.LLM``.
    """

    workers = 1

    def __init__(self, target: str, options: BackendOptions) -> None:
        if not target:
            raise ConfigError("vllm: names no model", hint="write model=vllm:FOLDER")
        self.name, self.options = target, options
        self.max_batch = options.max_inflight
        self._model: Any = None

    def open(self) -> None:
        try:
            with cxx_library():
                import vllm
        except ImportError as error:
            raise MissingDependencyError("vllm", purpose=f"vllm:{self.name}") from error
        try:
            self._model = vllm.LLM(model=self.name, **self.options.arguments)
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise ModelLoadError(f"vllm:{self.name} cannot be loaded: {type(error).__name__}: {first}") from error

    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        options = self.options
        try:
            outputs = self._model.chat(
                [conversation(call.segment, options.send, options.jpeg_quality) for call in calls],
                sampling_params=[self._sampling(call) for call in calls],
                use_tqdm=False,
            )
        except Exception as error:
            trouble = Trouble("exception", f"vllm:{self.name}: {type(error).__name__}: {error}")
            trouble.__cause__ = error
            return [trouble] * len(calls)
        answers = [output.outputs[0] for output in outputs]
        return [Text(a.text.strip(), tokens=len(a.token_ids), finish_reason=a.finish_reason or "") for a in answers]

    def _sampling(self, call: Call) -> Any:
        from vllm import SamplingParams

        arguments: dict[str, Any] = {"max_tokens": self.options.max_tokens, "temperature": self.options.temperature}
        if call.segment.schema is not None:
            from vllm.sampling_params import StructuredOutputsParams

            arguments["structured_outputs"] = StructuredOutputsParams(json=dict(call.segment.schema))
        return SamplingParams(**arguments)

    def close(self) -> None:
        self._model = None
