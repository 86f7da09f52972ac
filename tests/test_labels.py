"""Class names from text and files."""

from __future__ import annotations

import pytest

from gstinfer import ConfigError
from gstinfer.labels import parse_labels


@pytest.mark.parametrize(
    "content", ["cat\ndog\nowl", "cat\ndog\nowl\n", "\ufeffcat\r\ndog\r\nowl\r\n\r\n", " cat \n\tdog\nowl\n \n"]
)
def test_a_file_however_its_lines_end(tmp_path, content):
    path = tmp_path / "names.txt"
    path.write_bytes(content.encode())
    assert parse_labels(str(path)) == ("cat", "dog", "owl")


def test_an_empty_line_inside_moves_no_class(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("cat\n\nowl\n")
    assert parse_labels(str(path)) == ("cat", "1", "owl")


def test_text():
    assert parse_labels("cat, dog,owl ") == ("cat", "dog", "owl")
    assert parse_labels("person") == ("person",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "missing.txt", "does not exist"),
        (lambda folder: "a,,b", "empty name"),
        (lambda folder: _file(folder, b""), "is empty"),
        (lambda folder: _file(folder, b"\xff\xfe\xff"), "cannot be read"),
    ],
)
def test_what_cannot_be_read(tmp_path, make, words):
    with pytest.raises(ConfigError, match=words):
        parse_labels(str(make(tmp_path)))


def _file(folder, content):
    path = folder / "names.txt"
    path.write_bytes(content)
    return path
