"""Checks of plugin files in Python that people write: the loader skips a wrong one in silence or dies of it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from gstinfer.doctor import install, machine
from gstinfer.doctor.rows import Row, fail, ok
from gstinfer.elements import shim

__all__ = ["check_plugin_files", "culprits"]

FACTORY = "__gstelementfactory__"
EXAMPLE = f'{FACTORY} = ("name", 0, TheClass)'
TEMPLATES = (
    "__gsttemplates__ = tuple(Gst.PadTemplate.new(name, way, Gst.PadPresence.ALWAYS, Gst.Caps.new_any()) "
    'for name, way in (("sink", Gst.PadDirection.SINK), ("src", Gst.PadDirection.SRC)))'
)
MISPLACES = (
    ".gstreamer-1.0",
    ".gstreamer-1.0/python",
    ".local/share/gstreamer-1.0/plugins",
    ".local/share/gstreamer-1.0/plugins/python",
)
_TIMEOUT = 60


def check_plugin_files() -> Iterator[Row]:
    """One row for every file that the loader imports, or that lies where it does not look."""
    folders = machine.plugin_folders()
    yield from _misplaced(folders)
    owners: dict[str, Path] = {}
    with _scratch() as scratch:
        for file in _files(folders):
            report = _examine(file, folders, scratch)
            if isinstance(report, Row):
                yield report
            elif report is not None:
                yield _unique(file, report, owners)


def _unique(file: Path, report: dict[str, Any], owners: dict[str, Path]) -> Row:
    """Whether a good file's names collide with those of a file seen before."""
    for kind, name in (("module", file.stem), ("element", report["name"]), ("GType", report["gtype"])):
        twin = owners.setdefault(f"{kind} {name}", file)
        if twin != file:
            return fail(_title(file), f"{file} has the {kind} name {name!r}, which is that of {twin} too", "rename one")
    return ok(_title(file), f"element {report['name']} ({report['long_name']})")


def culprits(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files that kill the loader when it imports them, with how."""
    found = []
    with _scratch() as scratch:
        for file in _files(folders):
            how = _death(_probe(file, folders, scratch))
            if how:
                found.append((file, how))
    return found


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for the children, with a copy of the user's registry so that they need not read all plugins again."""
    with tempfile.TemporaryDirectory() as folder:
        for registry in machine.registry_files()[:1]:
            shutil.copyfile(registry, f"{folder}/registry.bin")
        yield folder


def _files(folders: Sequence[Path]) -> list[Path]:
    files = [f for folder in folders if folder.is_dir() for f in sorted(folder.glob("*.py"))]
    return [f for f in files if not (f.name == shim.PLUGIN and install.is_ours(f))]


def _title(file: Path) -> str:
    return f"plugin {file.name}"


def _misplaced(folders: Sequence[Path]) -> Iterator[Row]:
    """Files with an element in folders where people put them, and the loader does not look."""
    home = os.environ.get("HOME")
    near = [folder.parent for folder in folders]
    if home:
        near += [Path(home) / place for place in MISPLACES]
    for folder in dict.fromkeys(near):
        if folder in folders or not folder.is_dir():
            continue
        target = folder / "python" if folder / "python" in folders else folders[-1]
        if folder.name == "python" and folder / "python" in folders:
            advice = f"set GST_PLUGIN_PATH={folder.parent}, the folder above"
        else:
            advice = ""
        for file in sorted(folder.glob("*.py")):
            if FACTORY in file.read_text(errors="replace"):
                move = f"mkdir -p {target} && mv {file} {target}/"
                yield fail(_title(file), f"{file} lies where the loader does not look", advice or move)


def _examine(file: Path, folders: Sequence[Path], scratch: str) -> Row | dict[str, Any] | None:
    """What is wrong with a file, or what its element is; None for a file of helpers."""
    title = _title(file)
    try:
        text = file.read_text()
        tree = ast.parse(text, str(file))
    except SyntaxError as error:
        return fail(title, f"{file}:{error.lineno}: syntax error: {error.msg}", "correct that line")
    except (OSError, UnicodeDecodeError) as error:
        return fail(title, f"{file} cannot be read: {error}", f"chmod a+r {file}, or save it as UTF-8")
    if "." in file.stem:
        better = f"{file.stem.replace('.', '_')}.py"
        return fail(title, f"{file} has a dot in its name, so it cannot be imported", f"rename it to {better}")
    known = sys.stdlib_module_names | {"gi", "numpy", "gstinfer", "cv2", "torch", "onnxruntime"}
    if file.stem in known:
        detail = f"{file} has the name of the module {file.stem!r} and hides it"
        return fail(title, detail, f"rename it to my_{file.stem}.py")
    if not any(isinstance(n, ast.Name) and n.id == FACTORY and isinstance(n.ctx, ast.Store) for n in ast.walk(tree)):
        if re.search(r"\bGst\.Element\b|\bGstBase\.|gstinfer\.element\(|\bregister\(", text):
            return fail(title, f"{file} sets no {FACTORY}, so the loader skips it", f"add {EXAMPLE}")
        return None
    return _judge(file, _probe(file, folders, scratch))


def _probe(file: Path, folders: Sequence[Path], scratch: str) -> dict[str, Any]:
    """Imports a file in a child the way the loader does, and describes its element.

    Args:
        file: The plugin file.
        folders: All folders that the loader has on ``sys.path``.
        scratch: An empty folder: the child's registry lies there, and its HOME, so that no other plugin file is read.
    """
    loader = machine.loader_file()
    embedded = machine.loader_python(loader) if loader else None
    python = f"/usr/bin/python{embedded or machine.PYTHON}"
    script = (resources.files("gstinfer.doctor") / "probe.py").read_text()
    kept = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": scratch,
        "GST_REGISTRY": f"{scratch}/registry.bin",
        "GST_REGISTRY_1_0": f"{scratch}/registry.bin",
    }
    if "HOME" in os.environ:
        kept["GSTINFER_PROBE_HOME"] = os.environ["HOME"]
    try:
        done = subprocess.run(
            [python if os.path.exists(python) else sys.executable, "-c", script, str(file), *map(str, folders)],
            env=machine.clean_environment(kept),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "hangs"}
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        said = [line.strip() for line in done.stderr.splitlines() if "Warning:" in line or "CRITICAL" in line]
        return {"error": "died", "code": done.returncode, "said": said[-1] if said else ""}
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def _death(report: dict[str, Any]) -> str:
    if report.get("error") == "hangs":
        return f"does not come to an end within {_TIMEOUT} s"
    if report.get("error") == "died":
        code = report["code"]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"ends the process with {how}"
    return ""


def _judge(file: Path, report: dict[str, Any]) -> Row | dict[str, Any]:
    title, name, said = _title(file), report.get("name", ""), report.get("said", "")
    death = _death(report)
    if death:
        text = f"{file} {death} while it is imported, which gets the whole loader blacklisted"
        repair = _import_remedy(said) if said else "repair it"
        return fail(
            title, f"{text}{said and f': {said}'}", f"{repair} or mv {file} {file}.off, then gstinfer doctor --fix"
        )
    where = f"{file}:{report['line']}" if report.get("line") else str(file)
    error = report.get("error")
    if error is None:
        return report
    if error == "import":
        return fail(title, f"{where}: {said}", _import_remedy(said))
    detail, fix = {
        "form": (f"{FACTORY} {said}", f"write {EXAMPLE}"),
        "class": (said, "derive the class from Gst.Element or one of its bases, such as GstBase.BaseTransform"),
        "metadata": (
            f"the element {name!r} has no metadata",
            'add __gstmetadata__ = ("long name", "class", "description", "author")',
        ),
        "templates": (
            f"the element {name!r} has no pad templates",
            f"add {TEMPLATES}",
        ),
        "taken": (f"the name {name!r} is taken by {said}", f"choose another name in {FACTORY}"),
        "refused": (f"GStreamer refuses the element name {name!r}", "use letters, digits, - and _ only"),
        "make": (f"the element {name!r} cannot be made: {said}", "correct its __init__; open models in do_start"),
    }[error]
    return fail(title, f"{where}: {detail}", fix)


def _import_remedy(said: str) -> str:
    missing = re.search(r"No module named '([\w.]+)'", said)
    if missing and missing[1].split(".")[0] == "gstinfer":
        return "gstinfer setup"
    if missing:
        return f"pip install what brings {missing[1]!r} beside gstinfer, or correct the import"
    if re.search("propert|GType|GParam|param.spec|typecode", said, re.I):
        return "correct that property: type (int, float, bool, str), nick, blurb, then range, default within it, flags"
    return "correct that line"
