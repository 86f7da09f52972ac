"""Things found by name: models, runtimes, heads, trackers, publishers, from the entry points of installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from gstinfer.errors import ConfigError, UnknownNameError

__all__ = ["GROUPS", "find", "names"]

GROUPS = {
    "model": "gstinfer.models",
    "runtime": "gstinfer.runtimes",
    "tracker": "gstinfer.trackers",
    "publisher": "gstinfer.publishers",
    "vlm": "gstinfer.vlms",
}
"""Kind of thing -> entry-point group that other packages may add to."""


@cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def names(kind: str) -> list[str]:
    """The registered names of a kind (a key of ``GROUPS``), sorted."""
    return sorted(_entries(kind))


def find(kind: str, name: str) -> Any:
    """The object registered under a name.

    Raises:
        UnknownNameError: Nothing of that kind has the name.
        ConfigError: The package that registered it cannot be imported.
    """
    entry = _entries(kind).get(name)
    if entry is None:
        raise UnknownNameError(kind, name, _entries(kind))
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        package = entry.dist.name if entry.dist else entry.value
        raise ConfigError(
            f"the {kind} {name!r} of {package} cannot be imported: {error}", hint="gstinfer doctor lists entry points"
        ) from error
