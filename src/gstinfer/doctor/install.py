"""Puts the generated plugin files in place, takes them away again, and repairs a registry that refuses the loader."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from gstinfer.doctor import machine
from gstinfer.elements import shim
from gstinfer.errors import ConfigError

__all__ = ["announce", "folder_for", "install", "is_ours", "repair_registry", "require_same_python", "uninstall"]


def folder_for(directory: Path | None) -> Path:
    """The folder that the loader scans.

    Args:
        directory: A folder for ``GST_PLUGIN_PATH``; the user's own plugin folder when None.

    Raises:
        ConfigError: No HOME.
    """
    return directory.absolute() / "python" if directory else machine.home() / ".gstreamer-1.0/plugins/python"


def require_same_python() -> None:
    """Refuses an environment that the loader cannot use.

    Raises:
        ConfigError: The loader is missing, or embeds another minor version of Python.
    """
    loader = machine.loader_file()
    if loader is None:
        raise ConfigError(
            "GStreamer's Python plugin loader (libgstpython.so) is not installed",
            hint=machine.apt_line("gstreamer1.0-python3-plugin-loader"),
        )
    embedded = machine.loader_python(loader)
    if embedded is not None and embedded != machine.PYTHON:
        raise ConfigError(
            f"gstinfer is installed for Python {machine.PYTHON}, but {loader} embeds Python {embedded}",
            hint=f"make the environment with the distribution's Python: /usr/bin/python{embedded} -m venv"
            " --system-site-packages .venv; gstinfer run and gstinfer.register() need no loader",
        )


def is_ours(file: Path) -> bool:
    """Whether a file was written by ``install``."""
    try:
        return shim.MARK in file.read_text(errors="replace")[:200]
    except OSError:
        return False


def install(folder: Path) -> list[Path]:
    """Writes both files, each by a rename, so that the loader never sees half of one.

    Returns:
        The files that were new or changed; an empty list when all was in place.

    Raises:
        ConfigError: The folder cannot be written, or a file of that name is not ours.
    """
    wanted = {
        folder / shim.BOOTSTRAP: shim.bootstrap_text(str(machine.site_folder()), machine.PYTHON),
        folder / shim.PLUGIN: shim.plugin_text(),
    }
    for file in wanted:
        if file.exists() and not is_ours(file):
            raise ConfigError(f"{file} exists and was not written by gstinfer setup", hint="rename or delete it")
    changed = []
    seen = folder.stat().st_mtime if folder.is_dir() else None
    for file, text in wanted.items():
        try:
            if not file.exists() or file.read_text() != text:
                file.parent.mkdir(parents=True, exist_ok=True)
                _write(file, text)
                changed.append(file)
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be written: {error.strerror}",
                hint="use gstinfer setup --dir FOLDER and start GStreamer with GST_PLUGIN_PATH=FOLDER",
            ) from error
    if changed:
        announce(folder, seen)
    return changed


def announce(folder: Path, seen: float | None = None) -> None:
    """Makes GStreamer look into a plugin folder again: the folder's time alone, in whole seconds, tells it to.

    Args:
        folder: The folder.
        seen: Its time when GStreamer looked last; its time now when None.
    """
    if seen is None:
        seen = folder.stat().st_mtime
    moment = max(time.time(), int(seen) + 1)
    os.utime(folder, (moment, moment))


def _write(file: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except OSError:
        os.unlink(name)
        raise


def uninstall(folder: Path) -> list[Path]:
    """Removes what ``install`` wrote, and folders that are empty then.

    Returns:
        The files removed.

    Raises:
        ConfigError: A file cannot be removed.
    """
    removed = []
    seen = folder.stat().st_mtime if folder.is_dir() else None
    try:
        for file in (folder / shim.PLUGIN, folder / shim.BOOTSTRAP):
            if is_ours(file):
                file.unlink()
                removed.append(file)
        for cache in (folder / "gstinfer/__pycache__", folder / "__pycache__"):
            for compiled in [*cache.glob("gstinfer_elements.*.pyc"), *cache.glob("__init__.*.pyc")]:
                compiled.unlink()
            _remove_empty(cache)
        _remove_empty(folder / "gstinfer")
        _remove_empty(folder)
        if removed and folder.is_dir():
            announce(folder, seen)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be removed: {error.strerror}") from error
    return removed


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def repair_registry(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Deletes GStreamer's registry where it blacklists the Python loader, for it is never retried otherwise.

    Returns:
        The files deleted; empty when nothing was wrong.
    """
    variables = machine.clean_environment() if environment is None else environment
    if "libgstpython.so" not in machine.blacklisted(variables):
        return []
    removed = machine.registry_files(variables)
    for file in removed:
        file.unlink()
    return removed
