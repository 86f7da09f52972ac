"""The error tree. Every error says what and where, got versus expected, and carries a hint.

::

    GstInferError                         .hint: what to do next
    ├─ ConfigError (ValueError)           a setting, a format or a layout that cannot be honoured
    │  └─ UnknownNameError (LookupError)  a name that is not registered; lists the known ones
    ├─ MissingDependencyError (ImportError)   an optional library that is not installed
    ├─ HostError (RuntimeError)           memory or metadata of a buffer that cannot be used
    ├─ ModelError                         the model; __cause__ is the user's exception
    │  ├─ ModelLoadError
    │  ├─ PredictError
    │  └─ ResultError (ValueError)        what the model returned cannot be used
    └─ PublishError (ConnectionError)     a message target that cannot be opened or written
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "ConfigError",
    "GstInferError",
    "HostError",
    "MissingDependencyError",
    "ModelError",
    "ModelLoadError",
    "PredictError",
    "PublishError",
    "ResultError",
    "UnknownNameError",
]


class GstInferError(Exception):
    """Base of all errors of this package.

    Args:
        message: What went wrong and where, got versus expected.
        hint: What the reader can do about it; empty when there is nothing to add.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message

    @property
    def message(self) -> str:
        """The message without the hint."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # An error goes from one process to another as it is, whatever its class is made from.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(cls: type[GstInferError], args: tuple[Any, ...], state: dict[str, Any]) -> GstInferError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(GstInferError, ValueError):
    """A setting, format, layout or device that cannot be honoured."""


class UnknownNameError(ConfigError, LookupError):
    """A name that is not registered.

    Args:
        kind: What kind of thing was looked up, such as ``"tracker"``.
        name: The name asked for.
        available: The names that are known.
        hint: What else to do; the closest known name, where one is close, is suggested before it.
    """

    def __init__(self, kind: str, name: str, available: Iterable[str], *, hint: str = "") -> None:
        known = sorted(available)
        close = difflib.get_close_matches(name, known, n=1)
        if close:
            hint = " ".join(filter(None, (f"did you mean {close[0]!r}?", hint)))
        super().__init__(f"no {kind} {name!r}; available: {', '.join(known) or 'none'}", hint=hint)
        self.kind, self.name, self.available = kind, name, tuple(known)


class MissingDependencyError(GstInferError, ImportError):
    """An optional library is not installed.

    Args:
        library: The importable name, such as ``"torch"``.
        extra: The optional extra of this package that brings it, or empty.
        purpose: What it is needed for.
    """

    def __init__(self, library: str, *, extra: str = "", purpose: str = "") -> None:
        wanted = f" for {purpose}" if purpose else ""
        target = f"'gstinfer[{extra}]'" if extra else library
        GstInferError.__init__(
            self, f"the library {library!r} is not installed, it is needed{wanted}", hint=f"pip install {target}"
        )
        self.library, self.extra = library, extra


class HostError(GstInferError, RuntimeError):
    """Memory or metadata of a buffer cannot be read or written."""


class ModelError(GstInferError):
    """Something about the model; ``__cause__`` is the exception of the user's code."""


class ModelLoadError(ModelError):
    """The model could not be opened or loaded."""


class PredictError(ModelError):
    """The model raised while it predicted."""


class ResultError(ModelError, ValueError):
    """What the model returned cannot be used."""


class PublishError(GstInferError, ConnectionError):
    """A message target could not be opened or written."""
