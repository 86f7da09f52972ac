# SPDX-License-Identifier: Apache-2.0
"""Compiles the DeepStream stand-in with the system's C compiler.

``build(directory, rotation)`` makes a folder laid out as a DEEPSTREAM_DIR; ``Standin`` runs children
against it. ``missing()`` says what the system lacks, as a reason to skip.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
PACKAGES = ("gstreamer-1.0", "gstreamer-base-1.0", "gstreamer-video-1.0")
DEBIAN = "libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev gcc pkg-config"
CLEAN_PATH = "/usr/bin:/bin"
VERSIONS = {True: "9.1", False: "7.1"}

# output: (sources, libraries of ours it links)
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lib/libnvds_meta.so": (("nvds_meta.c", "nvds_meta_copy.c"), ()),
    "lib/libnvdsgst_meta.so": (("nvdsgst_meta.c",), ()),
    "lib/libnvbufsurface.so": (("nvbufsurface.c",), ()),
    "lib/libnvds_reader.so": (
        ("nvds_reader.c", "nvds_consumers.c", "json_text.c"),
        ("nvds_meta", "nvdsgst_meta"),
    ),
    "lib/gst-plugins/libgststandin.so": (
        ("gststandin.c", "standinmux.c", "standindetector.c", "standinreaders.c"),
        ("nvds_meta", "nvdsgst_meta", "nvbufsurface", "nvds_reader"),
    ),
    "bin/standin_check": (
        ("standin_check.c",),
        ("nvds_meta", "nvdsgst_meta", "nvbufsurface", "nvds_reader"),
    ),
}


class BuildError(RuntimeError):
    """The stand-in could not be built; the text is the compiler's."""


def _tool(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": CLEAN_PATH}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def missing() -> str | None:
    """Why the stand-in cannot be built here, or None."""
    for tool in ("cc", "pkg-config"):
        if not shutil.which(tool, path=CLEAN_PATH):
            return f"no {tool}: apt install {DEBIAN}"
    absent = [name for name in PACKAGES if _tool("pkg-config", "--exists", name).returncode]
    if absent:
        return f"no development files of {', '.join(absent)}: apt install {DEBIAN}"
    return None


def _flags(rotation: bool, sanitize: str | None) -> list[str]:
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-fno-omit-frame-pointer"]
    flags.append(f"-DNVDS_ROTATION={int(rotation)}")
    if sanitize:
        flags.append(f"-fsanitize={sanitize}")
    return flags


def _stamp(rotation: bool, sanitize: str | None) -> str:
    digest = hashlib.sha256(f"{rotation} {sanitize}".encode())
    for path in [*sorted(SOURCE.glob("*.[ch]*")), SOURCE / "build.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build(directory: Path, rotation: bool = True, sanitize: str | None = None) -> Path:
    """Compile into ``directory`` and return it. Nothing is done when it is up to date."""
    reason = missing()
    if reason:
        raise BuildError(reason)
    directory = Path(directory).resolve()
    stamp, text = directory / ".stamp", _stamp(rotation, sanitize)
    if stamp.is_file() and stamp.read_text() == text:
        return directory
    packages = _tool("pkg-config", "--cflags", "--libs", *PACKAGES).stdout.split()
    for name, (sources, libraries) in TARGETS.items():
        output = directory / name
        output.parent.mkdir(parents=True, exist_ok=True)
        shared = output.suffix == ".so"
        origin = os.path.relpath(directory / "lib", output.parent)
        command = ["cc", *_flags(rotation, sanitize)]
        command += ["-fPIC", "-shared", f"-Wl,-soname,{output.name}"] if shared else []
        command += [str(SOURCE / source) for source in sources]
        command += ["-o", str(output), f"-L{directory / 'lib'}"]
        command += [f"-l{library}" for library in libraries]
        command += [f"-Wl,-rpath,$ORIGIN/{origin}", *packages]
        result = _tool(*command)
        if result.returncode:
            raise BuildError(f"{output.name}: {result.stderr.strip()}")
    (directory / "version").write_text(f"Version: {VERSIONS[rotation]}\n")
    stamp.write_text(text)
    return directory


def build_native(directory: Path, python: str) -> Path | None:
    """Compile native_surface.cpp for a Python that has pybind11, beside a built stand-in.

    Returns the folder to put on PYTHONPATH, or None where pybind11, Python.h or a C++ compiler is missing.
    The module is ``pyservicemaker_native``.
    """
    script = "import pybind11, sysconfig; print(pybind11.get_include(), sysconfig.get_path('include'))"
    script += "; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    asked = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    if asked.returncode or not shutil.which("c++", path=CLEAN_PATH):
        return None
    pybind, include, suffix = asked.stdout.split()
    if not Path(include, "Python.h").is_file():
        return None
    directory = Path(directory).resolve()
    rotation = (directory / "version").read_text().strip().endswith(VERSIONS[True])
    folder = directory / "python"
    folder.mkdir(exist_ok=True)
    packages = _tool("pkg-config", "--cflags", "--libs", *PACKAGES).stdout.split()
    command = ["c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += [f"-DNVDS_ROTATION={int(rotation)}", f"-I{pybind}", f"-I{include}", f"-I{SOURCE}"]
    command += [str(SOURCE / "native_surface.cpp"), "-o", str(folder / f"pyservicemaker_native{suffix}")]
    command += [f"-L{directory / 'lib'}", "-lnvds_meta", "-lnvdsgst_meta", "-Wl,-rpath,$ORIGIN/../lib"]
    result = _tool(*command, *packages)
    if result.returncode:
        raise BuildError(f"native_surface.cpp: {result.stderr.strip()}")
    return folder


@dataclass
class Run:
    """What a child left: its exit code, its text, and the lines the readers wrote."""

    code: int
    stdout: str
    stderr: str
    lines: list[dict] = field(default_factory=list)
    counters: dict = field(default_factory=dict)

    def kind(self, name: str) -> list[dict]:
        return [line for line in self.lines if line.get("kind") == name]


@dataclass
class Standin:
    """A built stand-in and how to run children on it."""

    directory: Path
    rotation: bool
    sanitize: str | None = None

    def environment(self, **extra: str) -> dict[str, str]:
        """A clean environment: own registry, the plugin's path, DEEPSTREAM_DIR.

        A GST_PLUGIN_PATH or PYTHONPATH given is put before the stand-in's own; an empty one replaces it.
        """
        keep = {k: v for k, v in os.environ.items() if k in ("LANG", "LC_ALL", "TMPDIR")}
        environment = {
            **keep,
            "PATH": CLEAN_PATH,
            "HOME": str(self.directory),
            "DEEPSTREAM_DIR": str(self.directory),
            "GST_PLUGIN_PATH": str(self.directory / "lib" / "gst-plugins"),
            "GST_REGISTRY": str(self.directory / "registry.bin"),
            "PYTHONPATH": str(SOURCE / "pyservicemaker_standin"),
        }
        if self.sanitize:
            environment["LD_PRELOAD"] = _tool("cc", "-print-file-name=libasan.so").stdout.strip()
            environment["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1"
            environment["PYTHONMALLOC"] = "malloc"
            environment["GST_REGISTRY_FORK"] = "no"
        for name in ("GST_PLUGIN_PATH", "PYTHONPATH"):
            if extra.get(name):
                extra[name] = f"{extra[name]}:{environment[name]}"
        return {**environment, **extra}

    def run(self, command: list[str], timeout: float = 120, **extra: str) -> Run:
        """Run a command; read back the counters it left at exit."""
        counters = self.directory / f"counters-{os.getpid()}-{id(command)}.json"
        environment = self.environment(**{"NVDS_STANDIN_COUNTERS": str(counters), **extra})
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)
        counted = {}
        if counters.is_file():
            counted = json.loads(counters.read_text())
            counters.unlink()
        return self.result(result.returncode, result.stdout, result.stderr, counted)

    def result(self, code: int, stdout: str, stderr: str, counters: dict) -> Run:
        """What a child left, its lines read."""
        return Run(code, stdout, stderr, read_lines(stdout), counters)

    def launch(self, pipeline: str, timeout: float = 120, **extra: str) -> Run:
        """gst-launch-1.0; readers without a location write to stdout, which becomes ``lines``."""
        return self.run(["gst-launch-1.0", "-q", *pipeline.split()], timeout, **extra)


def read_lines(text: str) -> list[dict]:
    """The JSON lines in a text that may hold others."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"kind"')]


def read_file(path: Path) -> list[dict]:
    return read_lines(Path(path).read_text(encoding="utf-8", errors="surrogateescape"))
