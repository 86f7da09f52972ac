"""The package's source files, parsed: what the law tests look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/gstinfer"


@dataclass(frozen=True)
class Import:
    """One import statement's target.

    Attributes:
        name: Dotted module name; for ``from m import n`` it is ``m.n`` where that is a module of ours, else ``m``.
        line: Where it stands.
        function: Name of the function around it, or empty at module level.
    """

    name: str
    line: int
    function: str


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file of every module of the package."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = ["gstinfer", *file.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(), str(modules()[module]))


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def imports(module: str) -> tuple[Import, ...]:
    """Every import of a module, but those that only a type checker sees."""

    def walk(node: ast.AST, function: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if _typing_only(child):
                continue
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, function) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}:{child.lineno} imports relatively"
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    yield Import(whole if whole in modules() else str(child.module), child.lineno, function)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from walk(child, child.name)
            else:
                yield from walk(child, function)

    return tuple(walk(tree(module), ""))
