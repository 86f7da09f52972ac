"""Who may import whom."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sources import imports, modules, tree

LAYERS = (
    ("captures", "cores", "errors", "threadstate", "unwinder"),
    ("image", "geometry", "gpu", "labels", "mask", "periodic", "results", "settings"),
    ("preprocess", "heads", "convert", "sanitize"),
    ("frames", "registry"),
    ("lane", "model", "modelbase", "modelspec", "pace", "reload", "stage", "ticket"),
    ("models", "runner", "trackers", "overlay", "publish", "vlm"),
    ("shadow", "shared", "swap", "watchdog"),
    ("hosts",),
    ("elements/stage",),
    ("elements",),
    ("app",),
    ("cli", "doctor", "parity", "testing"),
)
"""From the bottom up: modules and folders of the package; ``elements/stage`` is what is free of GStreamer there."""

APART = next(level for level, names in enumerate(LAYERS) if "runner" in names)
"""The layer whose members do not import each other."""

ELEMENT_CORE = ("attach", "building", "callback", "objects", "settings", "stage", "tracking", "watching")
"""Modules of an element's folder that are free of GStreamer."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

GI_ALLOWED = re.compile(
    r"gstinfer\.(hosts|app|cli|doctor|parity|testing)(\..*)?"
    r"|gstinfer\.elements\.(compat|guard|base|shim)|gstinfer\.elements\.\w+\.(element|named)"
)
HEAVY = {"torch", "cv2", "onnxruntime", "scipy", "PIL", "tensorrt", "openvino", "ultralytics", "rfdetr"}
CXX = HEAVY - {"cv2", "scipy", "PIL"} | {"ai_edge_litert", "tflite_runtime", "transformers", "vllm"}
NVIDIA_ONLY_IN = "gstinfer.hosts.deepstream"

OURS = sorted(set(modules()) - {"gstinfer"})


def place(module: str) -> str:
    """The member of ``LAYERS`` that a module belongs to."""
    parts = module.split(".")[1:]
    if parts[0] == "elements" and len(parts) == 3 and parts[2] in ELEMENT_CORE:
        return "elements/stage"
    return parts[0]


def test_every_module_has_a_layer() -> None:
    assert {place(m) for m in OURS} <= set(LEVEL)


@pytest.mark.parametrize("module", OURS)
def test_imports_point_downward(module: str) -> None:
    mine, wrong = place(module), []
    for item in imports(module):
        if not item.name.startswith("gstinfer."):
            continue
        theirs = place(item.name)
        # The empty __init__ of an element's folder is imported on the way to its stage.
        level, other = LEVEL[mine], LEVEL[theirs]
        if other > level or (other == level == APART and mine != theirs):
            wrong.append(f"line {item.line}: {item.name} (layer {other}) from {mine} (layer {level})")
    assert not wrong


@pytest.mark.parametrize("module", [m for m in OURS if not GI_ALLOWED.fullmatch(m)])
def test_gstreamer_is_imported_only_where_it_may(module: str) -> None:
    assert not [i for i in imports(module) if i.name.split(".")[0] == "gi"]


@pytest.mark.parametrize("module", ["gstinfer", *OURS])
def test_heavy_libraries_are_imported_inside_functions(module: str) -> None:
    assert not [i for i in imports(module) if i.name.split(".")[0] in HEAVY and not i.function]


def first_imports(node: ast.AST, guarded: bool = False, tried: bool = False) -> list[tuple[str, bool]]:
    """C++ libraries that are imported where their absence is caught, and whether ``cxx_library()`` stands around."""
    found = []
    for child in ast.iter_child_nodes(node):
        inside = guarded or (isinstance(child, ast.With) and "cxx_library()" in ast.unparse(child.items[0]))
        trying = tried or (
            isinstance(child, ast.Try) and any("ImportError" in ast.unparse(h.type) for h in child.handlers if h.type)
        )
        if tried and isinstance(child, (ast.Import, ast.ImportFrom)):
            names = [child.module or ""] if isinstance(child, ast.ImportFrom) else [a.name for a in child.names]
            found += [(name, guarded) for name in names if name.split(".")[0] in CXX]
        found += first_imports(child, inside, trying)
    return found


@pytest.mark.parametrize("module", [m for m in OURS if not m.startswith((NVIDIA_ONLY_IN, "gstinfer.doctor"))])
def test_libraries_in_cxx_get_the_right_unwinder(module: str) -> None:
    """Without it an exception inside of them ends a GStreamer process; see ``gstinfer.unwinder``."""
    assert [name for name, guarded in first_imports(tree(module)) if not guarded] == []


def test_the_rule_about_unwinders_finds_imports() -> None:
    found = {name for module in OURS for name, _ in first_imports(tree(module))}
    assert {"torch", "onnxruntime", "openvino", "tensorrt", "ultralytics", "rfdetr", "transformers", "vllm"} <= found


@pytest.mark.parametrize("module", [m for m in OURS if not m.startswith(NVIDIA_ONLY_IN)])
def test_nvidia_libraries_belong_to_the_deepstream_host(module: str) -> None:
    assert not [i for i in imports(module) if i.name.split(".")[0] in {"pyservicemaker", "pyds"}]


def test_the_package_itself_imports_gstreamer_only_on_request() -> None:
    late = {i.function for i in imports("gstinfer") if i.name.startswith(("gi", "gstinfer.elements", "gstinfer.hosts"))}
    assert late and "" not in late


def test_no_cycles() -> None:
    """Over imports at module level, which run before anything else can."""
    graph = {m: {i.name for i in imports(m) if not i.function and i.name in modules()} - {m} for m in modules()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        for other in sorted(graph[module]):
            visit(other, (*path, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("module", [m for m in OURS if m not in ("gstinfer.elements.compat", "gstinfer.hosts.video")])
def test_structures_are_read_through_compat(module: str) -> None:
    """From GStreamer 1.26 on ``get_structure`` gives a context manager, which works in no other way."""
    found = [n.lineno for n in ast.walk(tree(module)) if isinstance(n, ast.Attribute) and n.attr == "get_structure"]
    assert found == []
