"""Class names from a file or a list."""

from __future__ import annotations

from pathlib import Path

from gstinfer.errors import ConfigError

__all__ = ["parse_labels"]


def parse_labels(text: str) -> tuple[str, ...]:
    """Names by class index.

    Args:
        text: ``a,b,c``, or the path of a UTF-8 file with one name per line; its last line may lack a newline.

    Raises:
        ConfigError: The file is missing, unreadable or empty.
    """
    path = Path(text).expanduser()
    if path.is_file():
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the labels file {text!r} cannot be read: {error}", hint="it must be UTF-8 text") from error
        while lines and not lines[-1].strip():
            lines.pop()
        if not lines:
            raise ConfigError(f"the labels file {text!r} is empty", hint="write one class name per line")
        # An empty line inside keeps its number, so that no later class is off by one.
        return tuple(line.strip() or str(number) for number, line in enumerate(lines))
    if "," not in text and ("/" in text or path.suffix in (".txt", ".names", ".labels", ".csv")):
        raise ConfigError(f"the labels file {text!r} does not exist", hint=f"looked in {Path.cwd()}")
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ConfigError(f"labels={text!r} holds an empty name", hint="write a,b,c")
    return names
