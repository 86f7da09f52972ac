"""A vision-language model of the transformers library in this process, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError, ModelLoadError
from gstinfer.results import Text
from gstinfer.unwinder import cxx_library
from gstinfer.vlm.backend import Backend, BackendOptions
from gstinfer.vlm.call import Call, Trouble
from gstinfer.vlm.conversation import with_schema

__all__ = ["TransformersModel"]


class TransformersModel(Backend):
    """Any image-text-to-text model whose processor has a chat template.

    Args:
        target: Folder of the model, or its name in the library's cache.
        options: ``arguments`` go to ``from_pretrained`` of the model; ``local_files_only=false`` among them lets the library
            fetch what is missing.
    """

    workers = 1

    def __init__(self, target: str, options: BackendOptions) -> None:
        if not target:
            raise ConfigError("transformers: names no model", hint="write model=transformers:FOLDER")
        if options.send != "images":
            raise ConfigError(f"send={options.send} does not apply to transformers", hint="use send=images")
        self.name, self.options = target, options
        self.max_batch = options.max_inflight
        self._model: Any = None
        self._processor: Any = None

    def open(self) -> None:
        try:
            with cxx_library():
                import torch
                import transformers
        except ImportError as error:
            name, purpose = error.name or "transformers", f"transformers:{self.name}"
            raise MissingDependencyError(name, extra="transformers", purpose=purpose) from error
        arguments = {"local_files_only": True, **self.options.arguments}
        local = arguments["local_files_only"]
        if local and self.name.startswith(("/", ".", "~")) and not Path(self.name).is_dir():
            raise ModelLoadError(f"the model folder {self.name} does not exist", hint=f"looked in {Path.cwd()}")
        try:
            self._processor = transformers.AutoProcessor.from_pretrained(self.name, local_files_only=local)
            model = transformers.AutoModelForImageTextToText.from_pretrained(self.name, **arguments)
            self._model = model.to(torch.device(str(self.options.device))).eval()
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise ModelLoadError(
                f"transformers:{self.name} cannot be loaded: {type(error).__name__}: {first}",
                hint="nothing is fetched unless model-args has local_files_only=false" if local else "",
            ) from error
        if not getattr(self._processor, "chat_template", None):
            raise ModelLoadError(f"transformers:{self.name} has no chat template", hint="use an instruction-tuned model")
        tokenizer = self._processor.tokenizer
        # Answers begin where the questions end: at one place for all of a batch.
        tokenizer.padding_side = "left"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token

    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        try:
            return self._generate(calls)
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            trouble = Trouble("exception", f"transformers:{self.name}: {type(error).__name__}: {first}")
            trouble.__cause__ = error
            return [trouble] * len(calls)

    def _generate(self, calls: Sequence[Call]) -> list[Text | Trouble]:
        import torch

        options, tokenizer = self.options, self._processor.tokenizer
        inputs = self._processor(
            text=[self._processor.apply_chat_template(_messages(c), add_generation_prompt=True) for c in calls],
            images=[list(call.segment.images) for call in calls],
            padding=True,
            return_tensors="pt",
        ).to(self._model.device, self._model.dtype)
        sampling: dict[str, Any] = {"do_sample": False}
        if options.temperature > 0:
            sampling = {"do_sample": True, "temperature": options.temperature}
        with torch.inference_mode():
            tokens = self._model.generate(
                **inputs,
                **sampling,
                max_new_tokens=options.max_tokens,
                pad_token_id=tokenizer.pad_token_id,
                stopping_criteria=[_until_over(calls)],
            )
        said = tokens[:, inputs["input_ids"].shape[1] :].tolist()
        return [self._text(row) for row in said]

    def _text(self, row: list[int]) -> Text:
        """The words of one answer, up to the model's end."""
        ends = self._model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        end = next((place for place, token in enumerate(row) if token in ends), None)
        words = row if end is None else row[:end]
        text = self._processor.tokenizer.decode(words, skip_special_tokens=True).strip()
        return Text(text, tokens=len(words), finish_reason="length" if end is None else "stop")

    def close(self) -> None:
        self._model = self._processor = None


def _messages(call: Call) -> list[dict[str, Any]]:
    segment = call.segment
    messages: list[dict[str, Any]] = []
    if segment.system_prompt:
        messages.append({"role": "system", "content": [{"type": "text", "text": segment.system_prompt}]})
    content: list[dict[str, Any]] = [{"type": "image"} for _ in segment.images]
    messages.append({"role": "user", "content": [*content, {"type": "text", "text": with_schema(segment)}]})
    return messages


def _until_over(calls: Sequence[Call]) -> Any:
    """Ends each row of a batch whose call is over."""
    import torch

    def stop(tokens: Any, scores: Any, **_: Any) -> Any:
        return torch.tensor([call.over.is_set() for call in calls], device=tokens.device)

    return stop
