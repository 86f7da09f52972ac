"""Triton's compiled kernels called directly, as to have Triton find out what it compiled takes several times as long."""

from __future__ import annotations

from typing import Any

__all__ = ["TritonLaunch"]


class TritonLaunch:
    """Launches a Triton function; the first launch of each kind compiles it. On one GPU.

    Args:
        function: Made by ``triton.jit``.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        # None where the compiled kernel cannot be called.
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self, grid: tuple[int, int, int], arrays: tuple[Any, ...], more: tuple[Any, ...], stream: int, **options: Any
    ) -> None:
        """Launches on the stream, which must be the current one of the current GPU.

        Args:
            grid: Programs.
            arrays: The function's first arguments, in GPU memory.
            more: All of the others, in order; numbers.
            stream: Its handle.
            options: Of the compiler.
        """
        pointers = [array.data_ptr() for array in arrays]
        # All that Triton compiles for: types, numbers, and whether addresses are multiples of 16.
        kind = more, *((array.dtype, pointer % 16) for array, pointer in zip(arrays, pointers))
        compiled = self._compiled.get(kind)
        if compiled is not None:
            try:
                compiled[grid](*pointers, *more, stream=stream)
                return
            except TypeError:
                # A Triton whose compiled kernels are called in another way.
                self._compiled = dict.fromkeys(self._compiled)
        compiled = self._function[grid](*arrays, *more, **options)
        self._compiled.setdefault(kind, compiled)
