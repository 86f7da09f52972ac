"""Checks of what pipelines and models need: GStreamer's plugins and typelibs, Python packages, runtimes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, entry_points, files, version

from gstinfer.doctor import machine
from gstinfer.doctor.rows import Row, fail, ok, warn
from gstinfer.registry import GROUPS

__all__ = ["check_entry_points", "check_packages", "check_plugins", "check_runtimes", "check_typelibs"]

ELEMENTS = {
    "gstreamer1.0-plugins-base": ("decodebin", "videoconvert", "videoscale", "videotestsrc", "appsrc", "appsink"),
    "gstreamer1.0-plugins-good": ("qtdemux", "matroskademux", "mp4mux", "pngdec", "jpegdec", "rtspsrc", "v4l2src"),
    "gstreamer1.0-plugins-bad": ("h264parse", "h265parse"),
    "gstreamer1.0-plugins-ugly": ("x264enc",),
    "gstreamer1.0-libav": ("avdec_h264", "avdec_h265"),
    "gstreamer1.0-x": ("ximagesink",),
}
"""apt package -> elements that pipelines of this package use."""

TYPELIBS = {
    "Gst": "gir1.2-gstreamer-1.0",
    "GstBase": "gir1.2-gstreamer-1.0",
    "GstVideo": "gir1.2-gst-plugins-base-1.0",
    "GstApp": "gir1.2-gst-plugins-base-1.0",
    "GstPbutils": "gir1.2-gst-plugins-base-1.0",
}
"""Introspection namespace -> apt package."""

RUNTIMES = {
    "onnxruntime": "import onnxruntime as m; print(m.__version__, *m.get_available_providers())",
    "torch": "import torch as m; n = m.cuda.device_count();"
    " print(m.__version__, *(f'cuda:{i} {m.cuda.get_device_name(i)}' for i in range(n)), '' if n else 'cpu')",
    "openvino": "import openvino as m; print(m.__version__, *m.Core().available_devices)",
    "tensorrt": "import tensorrt as m; print(m.__version__)",
}
"""Python package of a runtime -> code that prints its version and devices."""

NEEDED = ("onnxruntime",)
_TIMEOUT = 120


def check_plugins() -> Iterator[Row]:
    """Elements that pipelines use, with the package that brings each."""
    listing = machine.gst_inspect().stdout
    known = {parts[1].strip() for line in listing.splitlines() if len(parts := line.split(":")) >= 3}
    missing = {package: [e for e in names if e not in known] for package, names in ELEMENTS.items()}
    missing = {package: names for package, names in missing.items() if names}
    if not missing:
        yield ok("GStreamer plugins", f"{sum(map(len, ELEMENTS.values()))} elements that pipelines use are there")
        return
    names = ", ".join(n for names in missing.values() for n in names)
    yield fail("GStreamer plugins", f"missing: {names}", machine.apt_line(*missing))


def check_typelibs() -> Iterator[Row]:
    """PyGObject and the introspection data of GStreamer's libraries."""
    if importlib.util.find_spec("gi") is None:
        yield fail(
            "PyGObject",
            "this Python environment cannot import gi",
            machine.apt_line("python3-gst-1.0") + "; make the environment with --system-site-packages",
        )
        return
    import gi

    yield ok("PyGObject", gi.__version__)
    overrides = importlib.util.find_spec("gi.overrides.Gst") is not None
    if not overrides:
        yield warn("gst-python", "its overrides are not installed", machine.apt_line("python3-gst-1.0"))
    repository = gi.Repository.get_default()
    missing = {package: name for name, package in TYPELIBS.items() if "1.0" not in repository.enumerate_versions(name)}
    if missing:
        yield fail("typelibs", f"missing: {', '.join(missing.values())}", machine.apt_line(*missing))
    else:
        yield ok("typelibs", ", ".join(TYPELIBS))
    if "1.0" in repository.enumerate_versions("GstAnalytics"):
        yield ok("GstAnalytics", "objects are written for other elements to read as well")
    else:
        yield ok("GstAnalytics", "not in this GStreamer (from 1.24 on); region metas are written in its place")


def check_runtimes() -> Iterator[Row]:
    """Libraries that run networks, with their devices; each in a process of its own, for they are large."""
    for name, code in RUNTIMES.items():
        if importlib.util.find_spec(name) is None:
            if name in NEEDED:
                yield fail(name, "not installed", f"pip install {name}")
            continue
        try:
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            yield fail(name, f"importing it does not end within {_TIMEOUT} s", f"pip install --force-reinstall {name}")
            continue
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["it says nothing"]
        if done.returncode == 0:
            yield ok(name, said[-1].strip())
        else:
            yield fail(name, f"cannot be imported: {said[-1]}", f"pip install --force-reinstall {name}")


def check_packages() -> Iterator[Row]:
    """Packages whose names promise what they are not, or that hide each other."""
    try:
        shared = [f for f in files("pyds") or [] if str(f).endswith(".so")]
        if not shared:
            summary = distribution("pyds").metadata["Summary"] or "no summary"
            detail = f"the package pyds {version('pyds')} ({summary}) is not NVIDIA's; gstinfer needs neither"
            yield warn("pyds", detail, "pip uninstall pyds")
    except PackageNotFoundError:
        pass
    found = [name for name in ("opencv-python", "opencv-python-headless", "opencv-contrib-python") if _installed(name)]
    if len(found) > 1:
        others = " ".join(n for n in found if n != "opencv-python-headless")
        fix = f"pip uninstall {others}; pip install --force-reinstall opencv-python-headless"
        yield warn("OpenCV", f"{' and '.join(found)} are both installed and overwrite each other's files", fix)


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def check_entry_points() -> Iterator[Row]:
    """Models, runtimes, trackers and publishers that installed packages add; each must be importable."""
    entries = [(group, e) for group in GROUPS.values() for e in entry_points(group=group)]
    code = "\n".join(
        (
            "import importlib.metadata as m, json, sys",
            "wanted, said = json.loads(sys.argv[1]), {}",
            "for group, name, value in wanted:",
            "    try: m.EntryPoint(name, value, group).load()",
            "    except BaseException as e: said[f'{group} {name}'] = f'{type(e).__name__}: {e}'",
            "print(json.dumps(said))",
        )
    )
    wanted = json.dumps([(group, e.name, e.value) for group, e in entries])
    done = subprocess.run(
        [sys.executable, "-c", code, wanted], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        yield fail(
            "entry points", f"importing them ends the process: {last}", "uninstall the package that was added last"
        )
        return
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    for group, entry in entries:
        reason = said.get(f"{group} {entry.name}")
        package = entry.dist.name if entry.dist else entry.value
        if reason:
            fix = f"pip install --force-reinstall {package}, or pip uninstall {package}"
            yield fail(f"{group} {entry.name}", f"{entry.value} of {package}: {reason}", fix)
    if not said:
        yield ok("entry points", f"{len(entries)} can be imported")
