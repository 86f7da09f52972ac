"""Inputs by name, and the name and the file that an added one gets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from gstinfer.app import sinks
from gstinfer.app.running import Stream
from gstinfer.app.sources import Source
from gstinfer.errors import ConfigError, UnknownNameError

__all__ = ["named", "newest", "own_file"]

AnyStream = TypeVar("AnyStream", bound=Stream)


def newest(streams: Sequence[AnyStream], name: str) -> AnyStream:
    """The last stream of a name.

    Raises:
        UnknownNameError: None has it.
    """
    for stream in reversed(streams):
        if stream.source.stream_id == name:
            return stream
    raise UnknownNameError("stream", name, {stream.source.stream_id for stream in streams})


def named(source: Source, wish: str, taken: Collection[str]) -> Source:
    """A source under its final name.

    Args:
        source: As it was read.
        wish: The name that it must get; empty for one of its own, with a number behind it where that is taken.
        taken: Names of streams that run.

    Raises:
        ConfigError: The wish is taken.
    """
    if wish in taken:
        raise ConfigError(f"a stream {wish!r} is running already", hint="remove it first, or take another name")
    return replace(source, stream_id=wish or next(n for n in _numbered(source.stream_id) if n not in taken))


def own_file(output: str | None, source: Source, used: Collection[Path | None]) -> Path | None:
    """The video file of an added source, none that is used; None where no files are written.

    Raises:
        ConfigError: ``output`` is one file, or cannot be written.
    """
    if not output:
        return None
    if not Path(output).is_dir():
        raise ConfigError(f"{output!r} is one file, and an added source needs its own", hint="start with --output DIR/")
    for name in _numbered(source.stream_id):
        path = sinks.output_paths(output, [replace(source, stream_id=name)])[0]
        if path not in used:
            return path
    raise AssertionError("numbers do not end")


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name}-{number}"
