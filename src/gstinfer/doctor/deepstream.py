"""Checks of an installed DeepStream beyond its files: which layout its structs have, and NVIDIA's Python bindings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata, util

from gstinfer.doctor.rows import Row, fail, ok, warn
from gstinfer.hosts.deepstream import libs
from gstinfer.hosts.deepstream.abi import GENERATIONS

__all__ = ["check_bindings", "check_layout"]

PROOF = "from gstinfer.hosts.deepstream import abi; print(abi.layout())"
"""Run in a process of its own: a library of another layout must not bring the doctor down."""
NVIDIAS_PYDS = "deepstream"
"""A word in the summary of NVIDIA's package ``pyds``; another one of that name on PyPI is about something else."""


def check_layout() -> Iterator[Row]:
    """Whether metadata can be written: the version is known and its structs are where the headers say."""
    if not libs.installed():
        if os.environ.get("DEEPSTREAM_DIR"):
            yield fail(
                "DeepStream layout",
                f"DEEPSTREAM_DIR={os.environ['DEEPSTREAM_DIR']} has no lib/{libs.GST_META}",
                "set it to the folder that holds version and lib, or unset it",
            )
        return
    found = libs.version()
    known = found is None or int(found.split(".")[0]) in GENERATIONS
    done = subprocess.run([sys.executable, "-c", PROOF], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        yield ok("DeepStream layout", f"version {found or 'unknown'}, proved: {done.stdout.strip()}")
        return
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    fix = "frame-access=pyservicemaker writes through NVIDIA's bindings"
    if not known:
        fix = "update gstinfer; until then " + fix
    yield fail("DeepStream layout", f"version {found or 'unknown'}: {reason}", fix)


def check_bindings() -> Iterator[Row]:
    """Whether ``pyservicemaker`` can be imported here, and whether ``pyds`` is NVIDIA's."""
    if not libs.installed():
        return
    wheel = f"pip install {libs.directory()}/service-maker/python/pyservicemaker*.whl"
    if util.find_spec("pyservicemaker") is None:
        yield warn("pyservicemaker", "not in this Python; needed for frame-access=pyservicemaker and its Pipeline API", wheel)
    else:
        yield ok("pyservicemaker", "can be imported")
    try:
        summary = metadata.metadata("pyds").json
    except metadata.PackageNotFoundError:
        return
    about = f"{summary.get('summary', '')} {summary.get('home_page', '')} {summary.get('author', '')}"
    if not any(word in about.lower() for word in (NVIDIAS_PYDS, "nvidia")):
        yield warn(
            "pyds",
            f"the package pyds {summary.get('version', '')} is not NVIDIA's: {summary.get('summary', '') or 'no summary'}",
            "pip uninstall pyds; gstinfer does not need it",
        )
