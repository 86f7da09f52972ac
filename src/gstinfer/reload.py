"""A user's function, named by text, that can be loaded again from its file while it is in use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, ModelLoadError
from gstinfer.modelspec import ModelSpec

__all__ = ["UserFunction"]


class UserFunction:
    """A function named ``module:function`` or ``file.py:function``; call it like the function.

    Args:
        text: Its name.
        role: The property that names it, for messages.

    Raises:
        ConfigError: The text names no function.
    """

    def __init__(self, text: str, role: str) -> None:
        module, colon, name = text.strip().rpartition(":")
        if not (colon and module and name) or "/" in name:
            raise ConfigError(f"{role}={text!r} names no function", hint="write my_module:function or file.py:function")
        self.text, self.role = text.strip(), role
        self._spec = ModelSpec(self.text, "python", module, name)
        self._function: Callable[..., Any] | None = None

    def load(self, *, fresh: bool = False) -> None:
        """Imports the function. On an error the earlier one stays.

        Args:
            fresh: Whether its file is run again.

        Raises:
            ModelLoadError: It cannot be imported, or is no function.
        """
        found = self._spec.target_object(fresh=fresh, role=self.role)
        if not callable(found):
            raise ModelLoadError(f"{self.role}={self.text} is a {type(found).__name__}, not a function")
        self._function = found

    @property
    def file(self) -> Path | None:
        """The file that holds the function; None where it has none, or before ``load``."""
        try:
            path = inspect.getsourcefile(inspect.unwrap(self._function)) if self._function is not None else None
        except TypeError:
            path = None
        return Path(path) if path else None

    @property
    def parameters(self) -> int:
        """How many arguments the function takes by position at most; 0 where that is unknown."""
        try:
            found = inspect.signature(self._function).parameters.values()  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return 0
        return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            self.load()
        assert self._function is not None
        return self._function(*arguments)
