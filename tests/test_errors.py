"""The error tree: Python's own kinds, hints, suggestions."""

from __future__ import annotations

import pytest

from gstinfer import errors


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        (errors.ConfigError, ValueError),
        (errors.UnknownNameError, LookupError),
        (errors.MissingDependencyError, ImportError),
        (errors.HostError, RuntimeError),
        (errors.ResultError, ValueError),
        (errors.PublishError, ConnectionError),
    ],
)
def test_python_code_catches_its_own_kinds(kind, python):
    assert issubclass(kind, python) and issubclass(kind, errors.GstInferError)


def test_every_public_error_is_in_the_tree_of_the_docstring():
    for name in errors.__all__:
        assert name in errors.__doc__


def test_hint_is_shown_and_kept_apart():
    error = errors.ModelLoadError("no file", hint="look again")
    assert str(error) == "no file (look again)" and error.message == "no file" and error.hint == "look again"
    assert str(errors.HostError("broken")) == "broken"


def test_unknown_names():
    error = errors.UnknownNameError("tracker", "bytetrak", ["ocsort", "bytetrack"])
    assert str(error) == "no tracker 'bytetrak'; available: bytetrack, ocsort (did you mean 'bytetrack'?)"
    assert "none" in str(errors.UnknownNameError("head", "x", []))


def test_missing_dependency_gives_the_pip_line():
    error = errors.MissingDependencyError("torch", extra="torch", purpose="CUDA frames")
    assert "CUDA frames" in str(error) and "pip install 'gstinfer[torch]'" in str(error)
    assert "pip install tomli" in str(errors.MissingDependencyError("tomli"))
