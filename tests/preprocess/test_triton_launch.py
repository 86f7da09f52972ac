"""When Triton is asked what to compile, and when what it compiled is called directly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gstinfer.preprocess.triton_launch import TritonLaunch


def array(address: int, dtype: str = "int64") -> Any:
    return SimpleNamespace(data_ptr=lambda: address, dtype=dtype)


class Function:
    """Stands in for Triton's function and for what that compiles."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.made, self.called = refuses, [], []

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, num_warps: int) -> Any:
            self.made.append((grid, *arguments))
            return Compiled(self)

        return launch


class Compiled:
    def __init__(self, function: Function) -> None:
        self.function = function

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, stream: int) -> None:
            if self.function.refuses:
                raise TypeError("function takes exactly 9 arguments")
            self.function.called.append((grid, stream, *arguments))

        return launch


def test_triton_finds_out_once_what_it_compiles_for():
    function, table, out = Function(), array(512), array(4096, "float16")
    launch = TritonLaunch(function)
    for count in (1, 2, 3):
        launch((4, 5, count), (table, out), (640, 7, True), 77, num_warps=2)
    assert function.made == [((4, 5, 1), table, out, 640, 7, True)]
    # The same arguments, but for pointers in place of arrays.
    assert function.called == [((4, 5, count), 77, 512, 4096, 640, 7, True) for count in (2, 3)]


@pytest.mark.parametrize(
    ("out", "more"),
    [
        (array(4096, "float32"), (640, 7, True)),
        (array(4104, "float16"), (640, 7, True)),
        (array(4096, "float16"), (640, 7, False)),
        (array(4096, "float16"), (320, 7, True)),
    ],
    ids=["type", "alignment", "flag", "number"],
)
def test_what_triton_compiles_for_is_found_out_anew(out, more):
    function, table = Function(), array(512)
    launch = TritonLaunch(function)
    launch((1, 1, 1), (table, array(4096, "float16")), (640, 7, True), 77, num_warps=2)
    launch((1, 1, 1), (table, out), more, 77, num_warps=2)
    assert len(function.made) == 2 and not function.called


def test_a_triton_that_wants_other_arguments_is_left_to_itself():
    function, arrays = Function(refuses=True), (array(512), array(4096, "float16"))
    launch = TritonLaunch(function)
    for _ in range(3):
        launch((1, 1, 1), arrays, (640, 7, True), 77, num_warps=2)
    assert len(function.made) == 3
