"""Who answers: a server, a model in this process, or a class of the user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gstinfer import registry
from gstinfer.errors import ConfigError, GstInferError, ModelLoadError, UnknownNameError
from gstinfer.image import Device
from gstinfer.modelspec import ModelSpec
from gstinfer.results import Text
from gstinfer.vlm.call import Call, Trouble

__all__ = ["Backend", "BackendOptions", "UserBackend", "as_backend", "as_text"]


@dataclass(frozen=True)
class BackendOptions:
    """What a user may set about any backend.

    Attributes:
        arguments: Keyword arguments for the user's class, or for the library that loads the model.
        device: Where a model in this process runs.
        key_env: Environment variable that holds a server's key, or empty.
        max_tokens: Most tokens of an answer.
        temperature: Of sampling; 0 for the likeliest words.
        send: ``"images"``, or ``"video"`` where the server takes it.
        jpeg_quality: 1..100.
        max_inflight: Questions at once.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: Device = field(default_factory=Device)
    key_env: str = ""
    max_tokens: int = 256
    temperature: float = 0.0
    send: str = "images"
    jpeg_quality: int = 85
    max_inflight: int = 4


class Backend(ABC):
    """Answers questions, on worker threads.

    Attributes:
        name: Of the model, for results.
        workers: Most threads that may ask at once, or None for any number.
        max_batch: Most questions in one ``ask``.
    """

    name = ""
    workers: int | None = None
    max_batch = 1

    def open(self) -> None:  # noqa: B027 - not every model needs it
        """Loads the model, or looks whether the server is there.

        Raises:
            GstInferError: It cannot be used; one clear line.
        """

    @abstractmethod
    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        """One outcome per call, in order; stops early for those that are over."""

    def close(self) -> None:  # noqa: B027 - not every model needs it
        """Lets go of the model. No ``ask`` runs any more."""


class UserBackend(Backend):
    """A user's class with ``answer(segment)``, or a function of one segment; ``load(device)`` and ``close()`` are optional.

    It answers one question after another, unless it has an attribute ``workers`` that says how many at once.
    """

    def __init__(self, text: str, target: Any, options: BackendOptions) -> None:
        self.name, self._target, self._device = text, target, options.device
        self._answer = getattr(target, "answer", target)
        self.workers = getattr(target, "workers", 1)

    def open(self) -> None:
        load = getattr(self._target, "load", None)
        if callable(load):
            try:
                load(self._device)
            except GstInferError:
                raise
            except Exception as error:
                raise ModelLoadError(f"{self.name}.load() raised {type(error).__name__}: {error}") from error

    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        return [self._one(call) for call in calls]

    def _one(self, call: Call) -> Text | Trouble:
        try:
            said = self._answer(call.segment)
        except Exception as error:
            trouble = Trouble("exception", f"{self.name} raised {type(error).__name__}: {error}")
            trouble.__cause__ = error
            return trouble
        return as_text(said, self.name)

    def close(self) -> None:
        close = getattr(self._target, "close", None)
        if callable(close):
            close()


def as_text(said: Any, name: str) -> Text | Trouble:
    """What a user's class returned: words, structured data, a Text, or None for no words."""
    if isinstance(said, Text):
        return said
    if said is None or isinstance(said, str):
        return Text(said or "")
    if isinstance(said, (dict, list)):
        import json

        try:
            return Text(json.dumps(said, ensure_ascii=False), data=said)
        except (TypeError, ValueError) as error:
            return Trouble("result", f"{name} returned data that is not JSON: {error}")
    return Trouble("result", f"{name} returned a {type(said).__name__}, expected Text, str, dict or None")


def as_backend(text: str, options: BackendOptions) -> Backend:
    """The backend that a ``model=`` text names, not yet opened: ``openai:URL#MODEL``, ``transformers:PATH``,
    ``vllm:PATH``, ``module:Name`` or ``file.py:Name``.

    Raises:
        ConfigError: The text names none, or arguments that do not fit.
        ModelLoadError: The user's module, file or name is missing, or its constructor raised.
    """
    text = text.strip()
    if not text:
        raise ConfigError("no model is set", hint="set model=openai:http://HOST:8000/v1#MODEL or model=my_vlm:MyClass")
    kind, colon, target = text.partition(":")
    if colon and kind in registry.names("vlm"):
        backend: Backend = registry.find("vlm", kind)(target, options)
        return backend
    module, colon, name = text.rpartition(":")
    if not (colon and module and name) or "/" in name:
        raise UnknownNameError(
            "vision-language model", text, registry.names("vlm"), hint="or give module:Name, or file.py:Name"
        )
    found = ModelSpec(text, "python", module, name).target_object()
    if isinstance(found, type):
        try:
            found = found(**options.arguments)
        except GstInferError:
            raise
        except Exception as error:
            raise ModelLoadError(f"{text} could not be made: {type(error).__name__}: {error}") from error
    elif options.arguments:
        raise ConfigError(f"model-args do not apply to {text}, which is no class")
    if isinstance(found, Backend):
        return found
    if not callable(getattr(found, "answer", found)):
        raise ModelLoadError(
            f"{text} is a {type(found).__name__}, which answers nothing",
            hint="name a class with answer(segment), or a function of one segment",
        )
    return UserBackend(text, found, options)
