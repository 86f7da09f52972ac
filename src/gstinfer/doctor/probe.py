"""Run as a script in a child: imports one plugin file as the loader does, and prints what its element is, as JSON."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["describe"]


def describe(file: Path, folders: Sequence[str]) -> dict[str, Any]:
    """The element of a plugin file, or what is wrong with it under ``error``."""
    import gi

    gi.require_version("Gst", "1.0")
    from gi.repository import Gst

    Gst.init(None)
    if "GSTINFER_PROBE_HOME" in os.environ:
        os.environ["HOME"] = os.environ.pop("GSTINFER_PROBE_HOME")
    sys.path[:] = [str(file.parent), *folders, *(p for p in sys.path if p)]
    base: dict[str, Any] = {}
    try:
        module = importlib.import_module(file.stem)
    except BaseException as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return {**base, "error": "import", "said": said, "line": lines[-1] if lines else 0}
    factory = getattr(module, "__gstelementfactory__", None)
    if not isinstance(factory, tuple) or len(factory) != 3:
        return {**base, "error": "form", "said": f"is {factory!r}, not a tuple of name, rank and class"}
    name, rank, cls = factory
    if not isinstance(name, str) or not isinstance(rank, int):
        return {**base, "error": "form", "said": f"is {factory!r}; its name must be a text and its rank a number"}
    base["name"] = name
    if not isinstance(cls, type) or not issubclass(cls, Gst.Element):
        return {**base, "error": "class", "said": f"{cls!r} is no class of elements"}
    taken = Gst.ElementFactory.find(name)
    if taken is not None and taken.get_plugin_name() != "python":
        return {**base, "error": "taken", "said": f"the plugin {taken.get_plugin_name()}"}
    if name in ("pyinfer", "pytrack", "pyoverlay", "pypublish", "pyvlm"):
        return {**base, "error": "taken", "said": "gstinfer"}
    try:
        element = cls()
    except BaseException as error:
        return {**base, "error": "make", "said": f"{type(error).__name__}: {error}"}
    long_name = element.get_metadata("long-name")
    if not long_name:
        return {**base, "error": "metadata"}
    if not element.get_pad_template_list():
        return {**base, "error": "templates"}
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or not Gst.Element.register(None, f"probe-{name}", rank, cls):
        return {**base, "error": "refused"}
    return {**base, "long_name": long_name, "gtype": element.__gtype__.name}


if __name__ == "__main__":
    print(json.dumps(describe(Path(sys.argv[1]), sys.argv[2:])), flush=True)
