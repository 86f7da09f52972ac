"""What is checked and read of a model's file before a library opens it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gstinfer.errors import ModelLoadError

__all__ = ["check_file", "cores", "json_texts", "one_line", "texts"]


def check_file(path: str | Path, kind: str) -> None:
    """Refuses what cannot be a model's file whatever the library.

    Args:
        path: The file.
        kind: What it should be, for messages: ``"an ONNX model"``.

    Raises:
        ModelLoadError: Missing, a folder, unreadable, empty, or a Git LFS pointer.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelLoadError(f"{path} is a folder, not {kind}")
    if not path.is_file():
        raise ModelLoadError(f"the model file {path} does not exist", hint=f"looked in {Path.cwd()}")
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError as error:
        raise ModelLoadError(f"the model file {path} cannot be read: {error.strerror}") from error
    if not start:
        raise ModelLoadError(f"the model file {path} is empty (0 bytes)", hint="copy or download it again")
    if start.startswith(b"version https://git-lfs"):
        raise ModelLoadError(f"{path} is a Git LFS pointer, not the model itself", hint="run git lfs pull")


def texts(found: Any) -> dict[str, str]:
    """Metadata of any form as text by key, as ``NetworkInfo`` holds it; empty where it is no mapping."""
    if not isinstance(found, Mapping):
        return {}
    found = dict(found)
    names = found.get("names")
    # JSON has text keys only, so the numbers of the classes are read back.
    if isinstance(names, Mapping) and all(str(key).isdigit() for key in names):
        found["names"] = {int(key): value for key, value in names.items()}
    return {str(key): value if isinstance(value, str) else repr(value) for key, value in found.items()}


def json_texts(content: bytes | str) -> dict[str, str]:
    """Metadata from JSON; empty where it is none."""
    try:
        return texts(json.loads(content))
    except ValueError:
        return {}


def one_line(error: object, limit: int = 300) -> str:
    """A library's message on one line."""
    return " ".join(str(error).split())[:limit]


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
