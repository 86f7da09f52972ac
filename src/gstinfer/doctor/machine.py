"""Facts about this machine's GStreamer: its tools, its plugin registry and the Python that its loader embeds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gstinfer.errors import ConfigError

__all__ = [
    "APT_PACKAGES",
    "CLEAN_PATH",
    "PYTHON",
    "apt_line",
    "blacklisted",
    "clean_environment",
    "gst_inspect",
    "home",
    "loader_file",
    "loader_python",
    "plugin_folders",
    "registry_files",
    "site_folder",
]

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Minor version of the Python that runs this."""

CLEAN_PATH = "/usr/local/bin:/usr/bin:/bin"
"""``PATH`` of a shell with no environment activated."""

APT_PACKAGES = (
    "python3-venv",
    "libpython3-dev",
    "gstreamer1.0-tools",
    "gstreamer1.0-plugins-base",
    "gstreamer1.0-plugins-good",
    "gstreamer1.0-plugins-bad",
    "gstreamer1.0-plugins-ugly",
    "gstreamer1.0-libav",
    "gstreamer1.0-x",
    "gstreamer1.0-python3-plugin-loader",
    "python3-gst-1.0",
    "gir1.2-gst-plugins-base-1.0",
    "gir1.2-gst-plugins-bad-1.0",
    "fonts-dejavu-core",
)
"""Debian and Ubuntu packages that carry everything on the CPU."""

_TIMEOUT = 60


def apt_line(*packages: str) -> str:
    """The command that installs packages."""
    return f"sudo apt-get install --no-install-recommends {' '.join(packages)}"


def home() -> Path:
    """The user's home folder.

    Raises:
        ConfigError: ``HOME`` is unset or names no folder.
    """
    text = os.environ.get("HOME", "")
    if not text or not Path(text).is_dir():
        raise ConfigError(
            f"HOME is {text!r}, which is no folder" if text else "HOME is not set",
            hint="use gstinfer setup --dir FOLDER and start GStreamer with GST_PLUGIN_PATH=FOLDER",
        )
    return Path(text)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a shell with no Python environment activated; HOME and GStreamer's own variables stay."""
    kept = ("HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "GST_REGISTRY", "GST_REGISTRY_1_0")
    variables = {k: os.environ[k] for k in kept if k in os.environ}
    return {**variables, "PATH": CLEAN_PATH, **(extra or {})}


def gst_inspect(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """Runs ``gst-inspect-1.0``.

    Args:
        *arguments: Its arguments.
        environment: All variables of the child; the clean environment when None.
        timeout: Seconds.

    Raises:
        ConfigError: It is not installed.
        subprocess.TimeoutExpired: It hangs, as a plugin can make it.
    """
    variables = dict(clean_environment() if environment is None else environment)
    tool = shutil.which("gst-inspect-1.0", path=variables.get("PATH", CLEAN_PATH))
    if tool is None:
        raise ConfigError("gst-inspect-1.0 is not installed", hint=apt_line("gstreamer1.0-tools"))
    return subprocess.run(
        [tool, *arguments], env=variables, capture_output=True, text=True, errors="replace", timeout=timeout
    )


def loader_file() -> Path | None:
    """GStreamer's plugin for plugins in Python, or None where it is not installed."""
    folders = [Path(p) for p in os.environ.get("GST_PLUGIN_SYSTEM_PATH_1_0", "").split(":") if p]
    folders += [*sorted(Path("/usr/lib").glob("*/gstreamer-1.0")), Path("/usr/lib64/gstreamer-1.0")]
    folders += [Path("/usr/lib/gstreamer-1.0"), *sorted(Path("/usr/local/lib").glob("**/gstreamer-1.0"))]
    return next((f for folder in folders if (f := folder / "libgstpython.so").is_file()), None)


def loader_python(loader: Path) -> str | None:
    """Minor version of the Python that the loader embeds, such as ``"3.11"``; None where the file does not say."""
    match = re.search(rb"libpython(3\.\d+)\.so", loader.read_bytes())
    return match[1].decode() if match else None


def registry_files(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Where GStreamer caches what it knows of plugins; the files that exist."""
    variables = os.environ if environment is None else environment
    for name in ("GST_REGISTRY_1_0", "GST_REGISTRY"):
        if variables.get(name):
            return [f for f in [Path(variables[name])] if f.is_file()]
    cache = variables.get("XDG_CACHE_HOME") or (f"{variables['HOME']}/.cache" if variables.get("HOME") else "")
    return sorted(Path(cache).glob("gstreamer-1.0/registry.*.bin")) if cache else []


def blacklisted(environment: Mapping[str, str] | None = None) -> list[str]:
    """Names of the plugin files that GStreamer refuses to load since they failed once."""
    output = gst_inspect("-b", environment=environment).stdout
    return [line.strip() for line in output.splitlines() if line.strip().endswith(".so")]


def site_folder() -> Path:
    """The site-packages folder that this package is installed in, also where it is installed editable.

    Raises:
        ConfigError: It is not installed but only on Python's path.
    """
    try:
        return Path(str(distribution("gstinfer").locate_file(""))).resolve()
    except PackageNotFoundError as error:
        raise ConfigError(
            "gstinfer is not installed in this Python environment, only on its path", hint="pip install it"
        ) from error


def plugin_folders(environment: Mapping[str, str] | None = None) -> list[Path]:
    """The folders whose ``*.py`` the loader imports; they need not exist."""
    variables = os.environ if environment is None else environment
    folders: list[Path] = []
    for name in ("GST_PLUGIN_PATH_1_0", "GST_PLUGIN_PATH"):
        if variables.get(name):
            folders += [Path(p) / "python" for p in variables[name].split(":") if p]
            break
    if variables.get("HOME"):
        folders.append(Path(variables["HOME"]) / ".gstreamer-1.0/plugins/python")
    return folders
