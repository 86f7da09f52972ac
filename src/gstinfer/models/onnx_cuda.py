"""What ONNX Runtime's providers for NVIDIA GPUs need around them: their libraries found, and batch sizes that seldom change."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any

from gstinfer.models.torch_engine import GRAPH_SIZES, graph_size

__all__ = ["SteadyBatch", "load_libraries", "why_not"]

LIBRARIES = ("cudart", "nvJitLink", "nvrtc", "cublasLt", "cublas", "curand", "cufft", "cudnn")
"""Of CUDA; those that others need come first."""


def load_libraries() -> None:
    """Loads the CUDA libraries of NVIDIA's Python packages, which torch depends on too: the system does not look there.

    What cannot be loaded is left to the system's own search; ``why_not`` tells what the provider lacks.
    """
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    for name in LIBRARIES:
        for path in sorted(path for folder in folders for path in Path(folder).glob(f"*/lib/lib{name}.so.*")):
            if not _loads(path.name, os.RTLD_NOLOAD):
                _loads(str(path))


def _loads(name: str, mode: int = ctypes.DEFAULT_MODE) -> bool:
    try:
        ctypes.CDLL(name, mode)
    except OSError:
        return False
    return True


def why_not(ort: Any, provider: str) -> str:
    """What the loader says against the library of a provider, ``"cuda"`` or ``"tensorrt"``; empty where nothing."""
    try:
        ctypes.CDLL(str(Path(ort.__file__).parent / f"capi/libonnxruntime_providers_{provider}.so"))
    except OSError as error:
        return str(error)
    return ""


class SteadyBatch:
    """Few batch sizes, changed seldom: a provider plans every convolution anew when the size is not that of the run before.

    It rises at once and falls after ``patience`` batches that all had room in a smaller one.

    Args:
        patience: Batches.
    """

    def __init__(self, patience: int = 100) -> None:
        self._patience = patience
        self._size = self._small = self._most = 0

    def rows(self, count: int) -> int:
        """Pictures of the run that a batch of ``count`` becomes."""
        wanted = graph_size(count, (*GRAPH_SIZES, count))
        self._small, self._most = self._small + 1, max(self._most, wanted)
        if wanted >= self._size or self._small >= self._patience:
            self._size, self._small, self._most = self._most, 0, 0
        return self._size
