# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the stand-in, built once a session for each layout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

# by path: `build` is also the name of a package from PyPI
_NAME = "deepstream_standin_build"


def _load():
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("build.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        spec.loader.exec_module(module)
    return sys.modules[_NAME]


@pytest.fixture(scope="session")
def standin_build():
    """The module build.py; skips where the stand-in cannot be compiled."""
    module = _load()
    reason = module.missing()
    if reason:
        pytest.skip(reason)
    return module


@pytest.fixture(scope="session")
def make_standin(standin_build, tmp_path_factory):
    """make_standin(rotation=True, sanitize=None) -> Standin, built once each."""
    made = {}

    def make(rotation: bool = True, sanitize: str | None = None):
        key = (rotation, sanitize)
        if key not in made:
            directory = tmp_path_factory.mktemp("deepstream")
            standin_build.build(directory, rotation, sanitize)
            made[key] = standin_build.Standin(directory, rotation, sanitize)
        return made[key]

    return make


@pytest.fixture(params=[True, False], ids=["rotation", "no-rotation"])
def standin(request, make_standin):
    """A built stand-in, once with rotation_angle and once without."""
    return make_standin(request.param)
