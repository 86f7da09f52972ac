"""Rules of the house that a reader relies on: sizes, public names, errors, excepts, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gstinfer.errors
from gstinfer.errors import GstInferError

sys.path.insert(0, str(Path(__file__).parent))
from sources import ROOT, modules, tree

LONGEST = 500

BROAD_EXCEPTS = {
    "gstinfer.app.pictures",  # Pillow reads broken files
    "gstinfer.app.session",  # a thread ends
    "gstinfer.cli.main",  # the command line ends
    "gstinfer.doctor.checks",  # a check must not end the others
    "gstinfer.doctor.probe",  # a plugin file is imported
    "gstinfer.elements.guard",  # every vfunc
    "gstinfer.elements.shim",  # never raises
    "gstinfer.elements.infer.callback",  # the user's function
    "gstinfer.elements.infer.inflight",  # a thread ends
    "gstinfer.heads.function",  # the user's function
    "gstinfer.model",  # the user's model
    "gstinfer.models.triton",  # a server answers
    "gstinfer.models.ultralytics",  # the package of others opens a file
    "gstinfer.modelspec",  # the user's module
    "gstinfer.publish.worker",  # a thread ends
    "gstinfer.runner",  # the user's model, on a thread
    "gstinfer.shadow",  # the user's model, on a thread
    "gstinfer.swap",  # the user's model, on a thread
    "gstinfer.vlm.backend",  # the user's class
    "gstinfer.vlm.dispatcher",  # a model, on a thread
    "gstinfer.vlm.transformers",  # a library's model
    "gstinfer.vlm.vllm",  # a library's model
}
"""Where ``except Exception`` or wider may stand: foreign code is called, or a thread ends."""

MACHINE = re.compile(r"/(?:work|root|home/[a-z])/|\b(?:localhost:\d{4}|10\.\d+\.\d+\.\d+)\b")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))


def public(module: str) -> list[str] | None:
    """The value of ``__all__``, or None."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            value: list[str] = ast.literal_eval(node.value)
            return value
    return None


def defined(module: str) -> set[str]:
    """Names bound at module level."""
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("file", sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "tests").rglob("*.py")), ids=str)
def test_files_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) < LONGEST


@pytest.mark.parametrize("module", sorted(modules()))
def test_public_names_are_listed_sorted_and_there(module: str) -> None:
    """Sorted as ruff does: constants, classes, functions."""
    names = public(module)
    if names is None:
        bodies = [n for n in tree(module).body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
        assert not bodies, "a module with code needs __all__"
        return
    assert names == sorted(set(names), key=lambda n: (not n.isupper(), n.islower(), n))
    assert set(names) <= defined(module)


@pytest.mark.parametrize("module", sorted(modules()))
def test_every_module_and_public_thing_is_described(module: str) -> None:
    assert ast.get_docstring(tree(module)), "no module docstring"
    listed = public(module) or []
    kinds = (ast.ClassDef, ast.FunctionDef)
    bare = [n.name for n in tree(module).body if isinstance(n, kinds) and n.name in listed and not ast.get_docstring(n)]
    # An element is described by its metadata, and its module's docstring shows it at work.
    assert [n for n in bare if not module.endswith(".element")] == []


@pytest.mark.parametrize("module", sorted(modules()))
def test_broad_excepts_stand_only_where_foreign_code_is_called(module: str) -> None:
    broad = [
        node.lineno
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or set(re.findall(r"\w+", ast.unparse(node.type))) & {"Exception", "BaseException"})
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]
    # Each file of models/ drives a runtime of someone else's.
    allowed = module in BROAD_EXCEPTS or module.startswith("gstinfer.models.")
    assert not broad or allowed, f"lines {broad}"


@pytest.mark.gst
def test_every_error_has_a_gstreamer_code() -> None:
    from gstinfer.elements.guard import ERROR_CODES

    found = {cls for cls in subclasses(GstInferError) if cls.__module__.startswith("gstinfer.")}
    # A private one goes by its base.
    ours = {cls for cls in found if not cls.__name__.startswith("_")}
    assert ours - set(ERROR_CODES) == set()


def test_every_error_is_drawn_in_the_docstring() -> None:
    names = {cls.__name__ for cls in subclasses(GstInferError) if cls.__module__ == "gstinfer.errors"}
    assert len(names) == len(gstinfer.errors.__all__)
    missing = {n for n in names if not re.search(rf"\b{n}\b", gstinfer.errors.__doc__ or "")}
    assert missing == set()


def test_no_paths_of_a_machine() -> None:
    found = []
    for file in tracked():
        if file.suffix in (".onnx", ".jpg", ".png", ".mp4") or file == Path(__file__).resolve() or not file.is_file():
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if MACHINE.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found


def test_no_binary_is_larger_than_the_shipped_model() -> None:
    limit = (ROOT / "src/gstinfer/data/nanodet_coco_416.onnx").stat().st_size
    assert [f for f in tracked() if f.is_file() and f.stat().st_size > limit] == []


def test_no_two_test_files_share_a_name() -> None:
    """Those outside of packages are imported by their bare names; pytest refuses the second of a name."""
    tests = [f for f in (ROOT / "tests").rglob("*.py") if f.name != "conftest.py" and not (f.parent / "__init__.py").exists()]
    assert [name for name, count in Counter(f.name for f in tests).items() if count > 1] == []
