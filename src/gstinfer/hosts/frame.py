"""A frame whose results live on a buffer: read when they are first asked for, written back when they changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from operator import is_
from typing import Any

import numpy as np

from gstinfer.errors import HostError
from gstinfer.frames import Frame
from gstinfer.image import Image
from gstinfer.results import FrameResults

__all__ = ["BufferFrame", "parts"]


class _ClosedPlanes(tuple):  # type: ignore[type-arg]
    """Stands where the planes were once the buffer is unmapped."""

    def __getitem__(self, index: Any) -> Any:
        raise HostError(
            "the pixels of this frame are gone: they are valid until the stage or predict() returns",
            hint="copy what is needed later, with frame arrays' .copy()",
        )

    def __iter__(self) -> Any:
        return self[0]


class BufferFrame(Frame):
    """A frame of a buffer.

    Args:
        image: The pixels.
        reader: Gives what is on the buffer, None where nothing is.
        **fields: The other fields of ``Frame``.
    """

    def __init__(self, image: Image, reader: Callable[[], FrameResults | None], **fields: Any) -> None:
        self._reader = reader
        self._results: FrameResults | None = None
        self._read: FrameResults | None = None
        self._before = _NOTHING
        super().__init__(image, results=None, **fields)  # type: ignore[arg-type]

    @property
    def results(self) -> FrameResults:
        """What is known about the frame. Arrays that were read from the buffer are read-only: replace the column."""
        if self._results is None:
            found = self._reader()
            self._results = self._read = found or FrameResults()
            self._before = parts(found) if found is not None else _NOTHING
        return self._results

    @results.setter
    def results(self, value: FrameResults | None) -> None:
        self._results = value

    @property
    def changed(self) -> bool:
        """Whether the results differ from what the buffer carries; others put in their place count as different."""
        if self._results is None:
            return False
        if self._results is not self._read:
            return True
        now = parts(self._results)
        return len(now) != len(self._before) or not all(map(is_, now, self._before))

    def close(self) -> None:
        """Lets go of the pixels and of the buffer."""
        self.image.planes = _ClosedPlanes()
        self._reader = _closed_reader


def _closed_reader() -> FrameResults | None:
    raise HostError(
        "the results of this frame are gone with its buffer: they were not asked for in time",
        hint="read frame.results before the stage or predict() returns",
    )


def parts(results: FrameResults) -> list[Any]:
    """Every object that results consist of, but for themselves.

    As arrays and strings read from a buffer cannot change, the same objects mean the same results: a comparison that costs
    nothing against encoding them again.
    """
    found: list[Any] = []
    _collect(results, found)
    return found[1:]


def _collect(value: Any, found: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        # One object for one number, whatever its size: they are compared by identity.
        found.append(sys.intern(str(len(value))))
        if value and isinstance(value[0], str):
            found.extend(value)
        else:
            for item in value:
                _collect(item, found)
    elif isinstance(value, dict):
        found.extend(value)
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, (np.ndarray, str, int, float, bool)) or value is None:
        found.append(value)
    else:
        found.append(value)
        if is_dataclass(value):
            for item in vars(value).values():
                _collect(item, found)


_NOTHING = parts(FrameResults())
