"""Files that are followed while an element runs: the model's, and those of the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from gstinfer.errors import GstInferError
from gstinfer.reload import UserFunction
from gstinfer.swap import Watch

__all__ = ["Watching"]


class Watching:
    """Watches files until it is closed; it may be used again after that."""

    def __init__(self) -> None:
        self._watches: list[Watch] = []

    def model(self, path: Path, changed: Callable[[], None]) -> None:
        """Calls ``changed`` on a thread when the file has new content; nothing happens where there is no such file."""
        if path.is_file():
            self._watches.append(Watch(path, changed))

    def functions(
        self, functions: Iterable[UserFunction], loaded: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Loads functions again when their file has new content; where that fails, those of before stay.

        Args:
            functions: Loaded ones; those of one file are loaded together.
            loaded: Called on a thread after each time.
            failed: Called on a thread with the error.
        """
        files: dict[Path, list[UserFunction]] = {}
        for function in functions:
            if function.file is not None:
                files.setdefault(function.file, []).append(function)
        for file, those in files.items():
            self._watches.append(Watch(file, partial(_load_again, those, loaded, failed)))

    def close(self) -> None:
        """Watches nothing any more."""
        while self._watches:
            self._watches.pop().close()


def _load_again(
    functions: list[UserFunction], loaded: Callable[[], None], failed: Callable[[BaseException], None]
) -> None:
    try:
        for function in functions:
            function.load(fresh=True)
    except GstInferError as error:
        failed(error)
    else:
        loaded()
