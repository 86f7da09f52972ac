"""Checks of the way from a shell to our elements: tools, loader, its Python, the registry and the plugin file."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gstinfer.doctor import install, machine
from gstinfer.doctor.plugins import culprits
from gstinfer.doctor.rows import Row, fail, ok, warn
from gstinfer.elements import shim

__all__ = [
    "check_conda",
    "check_libpython",
    "check_loader",
    "check_plugin_file",
    "check_registry",
    "check_shells",
    "check_tools",
]

_REPAIR = "gstinfer doctor --fix"


def check_tools() -> Iterator[Row]:
    """gst-inspect-1.0, and whether there is a second one."""
    found: dict[Path, str] = {}
    for folder in os.environ.get("PATH", machine.CLEAN_PATH).split(":"):
        tool = Path(folder or ".") / "gst-inspect-1.0"
        if tool.is_file() and os.access(tool, os.X_OK):
            found.setdefault(tool.resolve(), str(tool))
    if not found:
        yield fail("GStreamer", "gst-inspect-1.0 is not in PATH", machine.apt_line("gstreamer1.0-tools"))
        return
    first = next(iter(found.values()))
    done = subprocess.run([first, "--version"], capture_output=True, text=True, timeout=60, check=False)
    version = next((line for line in done.stdout.splitlines() if line.startswith("GStreamer")), "an unknown version")
    number = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if number and number < (1, 20):
        yield fail("GStreamer", f"{version} at {first}; 1.20 or later is needed", "use a newer distribution")
    else:
        yield ok("GStreamer", f"{version} at {first}")
    if len(found) > 1:
        yield warn(
            "two GStreamers",
            f"PATH holds {', '.join(found.values())}; their plugins and registries differ",
            f"put the folder of the one you mean first in PATH; the elements were set up for {machine.loader_file()}",
        )


def check_conda() -> Iterator[Row]:
    """An active conda environment brings libraries of its own."""
    prefix = os.environ.get("CONDA_PREFIX")
    if prefix:
        detail = f"the environment {prefix} is active; its GLib and Python differ from GStreamer's"
        yield warn("conda", detail, "conda deactivate")


def check_loader() -> Iterator[Row]:
    """The Python plugin loader, and the Python it embeds."""
    loader = machine.loader_file()
    name = "Python loader"
    if loader is None:
        yield fail(name, "libgstpython.so is not installed", machine.apt_line("gstreamer1.0-python3-plugin-loader"))
        return
    embedded = machine.loader_python(loader)
    if embedded is None:
        yield warn(name, f"{loader} does not say which Python it embeds")
    elif embedded != machine.PYTHON:
        yield fail(
            name,
            f"{loader} embeds Python {embedded}, gstinfer is installed for Python {machine.PYTHON}",
            f"/usr/bin/python{embedded} -m venv --system-site-packages .venv, then pip install gstinfer in it;"
            " gstinfer run and gstinfer.register() need no loader",
        )
    else:
        yield ok(name, f"{loader} embeds Python {embedded}, as this environment")


def check_libpython() -> Iterator[Row]:
    """The name under which the loader opens Python's library."""
    loader = machine.loader_file()
    embedded = machine.loader_python(loader) if loader else None
    if loader is None or embedded is None:
        return
    opened = f"libpython{embedded}.so"
    if b"loading libpython by name" not in loader.read_bytes():
        library = ctypes.util.find_library(f"python{embedded}")
        if library is None:
            fix = machine.apt_line(f"libpython{embedded}")
            yield fail("libpython", f"{opened}.1.0, which the loader needs, is not found", fix)
        else:
            yield ok("libpython", library)
        return
    folders = [loader.parent.parent, Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]
    place = next((folder / opened for folder in folders if (folder / opened).exists()), None)
    if place is None:
        yield fail(
            "libpython", f"the loader opens {opened}, which is not installed", machine.apt_line("libpython3-dev")
        )
    else:
        yield ok("libpython", str(place))


def check_registry() -> Iterator[Row]:
    """What GStreamer refuses to load since it failed once, and what made it fail."""
    seen: set[tuple[str, ...]] = set()
    for title, variables in _shells().items():
        if shutil.which("gst-inspect-1.0", path=variables.get("PATH")) is None:
            continue
        refused = machine.blacklisted(variables)
        files = tuple(str(f) for f in machine.registry_files(variables))
        if files in seen:
            continue
        seen.add(files)
        where = ", ".join(files) or "no registry file"
        name = "plugin registry" if title == "clean shell" else f"plugin registry of {title}"
        others = [f for f in refused if f != "libgstpython.so"]
        if "libgstpython.so" in refused:
            by = [f"{file} ({why})" for file, why in culprits(machine.plugin_folders(variables))]
            cause = f"because of {'; '.join(by)}" if by else "by a plugin file that is gone or repaired since"
            first = f"repair or remove {', '.join(b.split(' (')[0] for b in by)}, then " if by else ""
            yield fail(name, f"{where} blacklists the Python loader libgstpython.so, {cause}", f"{first}{_REPAIR}")
        elif others:
            fix = f"rm {' '.join(files)} makes GStreamer try again"
            yield warn(name, f"{where} blacklists {', '.join(others)}", fix)
        else:
            yield ok(name, where)


def check_plugin_file() -> Iterator[Row]:
    """The generated files: there, ours, and leading to this environment."""
    name = "plugin file"
    found = [f for f in machine.plugin_folders() if (f / shim.PLUGIN).is_file()]
    if not found:
        folder = _own_folder()
        fix = "gstinfer setup" if folder else "gstinfer setup --dir FOLDER, and start GStreamer with GST_PLUGIN_PATH=FOLDER"
        yield fail(name, f"no {shim.PLUGIN} in {_listed(machine.plugin_folders())}", fix)
        return
    for folder in found:
        file, bootstrap = folder / shim.PLUGIN, folder / shim.BOOTSTRAP
        if not install.is_ours(file):
            yield fail(name, f"{file} was not written by gstinfer setup", "rename it, then gstinfer setup")
            continue
        text = bootstrap.read_text(errors="replace") if bootstrap.is_file() else ""
        site = re.search(r"^SITE = (['\"])(.*)\1$", text, re.M)
        command = "gstinfer setup" if folder == _own_folder() else f"gstinfer setup --dir {folder.parent}"
        if site is None:
            # What it did not write, setup leaves alone.
            foreign = bootstrap.exists() and not install.is_ours(bootstrap)
            yield fail(name, f"{bootstrap} is missing or damaged", f"rm {bootstrap}, then {command}" if foreign else command)
        elif not Path(site[2]).is_dir():
            yield fail(name, f"{file} leads to {site[2]}, which is gone", command)
        elif Path(site[2]) != machine.site_folder():
            yield warn(name, f"{file} leads to {site[2]}, not to this environment", f"{command} leads it here")
        elif text != shim.bootstrap_text(str(machine.site_folder()), machine.PYTHON):
            yield fail(name, f"{bootstrap} is from another version", command)
        else:
            yield ok(name, str(file))


def check_shells() -> Iterator[Row]:
    """Whether gst-inspect-1.0 finds pyinfer, here and in a clean shell, with a new registry and with the user's."""
    for title, variables in _shells().items():
        if shutil.which("gst-inspect-1.0", path=variables.get("PATH")) is None:
            continue
        name = f"pyinfer in {'a ' if title == 'clean shell' else ''}{title}"
        with tempfile.TemporaryDirectory() as folder:
            fresh = {**variables, "GST_DEBUG": "pyplugin:4", "GST_DEBUG_NO_COLOR": "1"}
            fresh |= dict.fromkeys(("GST_REGISTRY", "GST_REGISTRY_1_0"), f"{folder}/registry.bin")
            done = _inspect(fresh)
        if done is None or done.returncode != 0:
            yield fail(name, _reason(done), _remedy(done, variables))
            continue
        known = _inspect(variables)
        if known is None or known.returncode != 0:
            yield fail(name, "it works, but the registry remembers a time when it did not", _REPAIR)
        else:
            yield ok(name, "gst-inspect-1.0 finds it")


def _shells() -> dict[str, dict[str, str]]:
    return {"clean shell": machine.clean_environment(), "this shell": dict(os.environ)}


def _inspect(variables: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return machine.gst_inspect("pyinfer", environment=variables)
    except subprocess.TimeoutExpired:
        return None


def _reason(done: subprocess.CompletedProcess[str] | None) -> str:
    if done is None:
        return "gst-inspect-1.0 hangs: a plugin file does not come to an end while it is imported"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("gstinfer:")]
    if ours:
        return ours[-1]
    told = [
        re.sub(r"^\S+\s+\d+\s+0x\w+\s+", "", line)
        for line in lines
        # The loader prints some exceptions through a wrong pointer.
        if "\ufffd" not in line
        and re.search(r"pygobject initialization|could not import|Couldn't g_module_open|Error\b|blacklist", line)
    ]
    return told[-1] if told else "gst-inspect-1.0 does not find it, and the loader says nothing"


def _remedy(done: subprocess.CompletedProcess[str] | None, variables: Mapping[str, str]) -> str:
    if done is None:
        return "see the row of that file"
    if re.search(r"pygobject initialization|could not import gobject", done.stderr):
        python = shutil.which("python3", path=variables.get("PATH"))
        return f"the loader takes its library from {python}, which has no PyGObject: leave that environment"
    if "gstinfer:" in done.stderr:
        return "gstinfer setup"
    return "see the other rows"


def _own_folder() -> Path | None:
    text = os.environ.get("HOME")
    return Path(text) / ".gstreamer-1.0/plugins/python" if text else None


def _listed(folders: list[Path]) -> str:
    return ", ".join(map(str, folders)) or "any folder (HOME is not set)"
