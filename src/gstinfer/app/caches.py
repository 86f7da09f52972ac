"""Where libraries keep their caches when the user has no home to write to."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["cache_home", "use_temporary_caches"]

_PLACES = {"GST_REGISTRY": "gstreamer-registry.bin", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "cuda"}
"""Environment variables that move a cache, and its name below the folder: GStreamer's list of plugins, compiled kernels."""


def cache_home(environment: MutableMapping[str, str]) -> Path | None:
    """The user's folder of caches where files can be written in it, or it can be made; else None."""
    home = environment.get("HOME")
    if not home:
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = "/nonexistent"
    folder = Path(environment.get("XDG_CACHE_HOME") or f"{home}/.cache")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Only writing shows it: of a read-only disk the permissions may look right.
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def use_temporary_caches(environment: MutableMapping[str, str]) -> Path | None:
    """Points caches to a folder of the user's own below the system's temporary one, where there is no other place.

    What the environment says already stays as it is.

    Returns:
        The folder, or None where nothing had to be done.
    """
    if cache_home(environment) is not None:
        return None
    folder = _own_folder()
    environment["XDG_CACHE_HOME"] = str(folder)
    for variable, name in _PLACES.items():
        environment.setdefault(variable, str(folder / name))
    return folder


def _own_folder() -> Path:
    """``/tmp/gstinfer-UID``, unless somebody else has made that name theirs."""
    folder = Path(tempfile.gettempdir()) / f"gstinfer-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="gstinfer-"))
