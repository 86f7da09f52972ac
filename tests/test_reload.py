"""Functions named by text, and loading them again from their file."""

from __future__ import annotations

import sys
import traceback

import pytest

from gstinfer import ConfigError, ModelLoadError
from gstinfer.reload import UserFunction


@pytest.mark.parametrize("text", ["", "decode", ":decode", "my_heads:", "my_heads/decode", "a:b/c"])
def test_what_names_no_function_is_said(text):
    with pytest.raises(ConfigError, match="names no function"):
        UserFunction(text, "head")


def test_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def one(a, b=2):\n    return a + b\n")
    function = UserFunction(f"{file}:one", "callback")
    assert function.file is None and function.parameters == 0
    function.load()
    assert function(1) == 3 and function(1, 1) == 2
    assert function.file == file and function.parameters == 2


def test_a_module_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "reloaded_once.py").write_text("def f():\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    function = UserFunction("reloaded_once:f", "callback")
    function.load()
    assert function() == 1
    before = sys.modules["reloaded_once"]
    (tmp_path / "reloaded_once.py").write_text("def f():\n    return 2\n")
    function.load(fresh=True)
    assert function() == 2 and sys.modules["reloaded_once"] is not before


@pytest.mark.parametrize("form", ["file", "module"])
def test_new_content_of_the_same_length_in_the_same_second(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"quick_{form}.py"
    name = f"{file}:f" if form == "file" else f"quick_{form}:f"
    for number in range(5):
        file.write_text(f"def f():\n    return {number}\n")
        function = UserFunction(name, "callback")
        function.load(fresh=True)
        assert function() == number


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def f(:\n", "SyntaxError"),
        ("raise RuntimeError('no')\n", "RuntimeError: no"),
        ("import no_such_package_at_all\n", "pip install the package that brings 'no_such_package_at_all'"),
        ("def g():\n    pass\n", "has no 'f'"),
        ("f = 3\n", "callback=.* is a int, not a function"),
    ],
)
def test_a_broken_file_keeps_what_was_there(tmp_path, content, message):
    file = tmp_path / "mine.py"
    file.write_text("def f():\n    return 'old'\n")
    function = UserFunction(f"{file}:f", "callback")
    function.load()
    modules = dict(sys.modules)
    file.write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        function.load(fresh=True)
    assert function() == "old"
    if "has no" not in message and "not a function" not in message:
        assert dict(sys.modules) == modules


def test_a_missing_file_is_named_by_its_property(tmp_path):
    with pytest.raises(ModelLoadError, match=r"the head file .* does not exist"):
        UserFunction(f"{tmp_path}/none.py:f", "head").load()


def test_tracebacks_show_the_lines_of_now(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def f():\n    return 1\n")
    function = UserFunction(f"{file}:f", "callback")
    function.load()
    file.write_text("def f():\n    hidden = 1\n    raise ValueError(hidden)\n")
    function.load(fresh=True)
    with pytest.raises(ValueError) as caught:
        function()
    assert "raise ValueError(hidden)" in "".join(traceback.format_exception(caught.value))
