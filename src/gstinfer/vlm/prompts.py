"""Questions: one for all streams, others for some, from properties or a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.vlm.segments import Cut
from gstinfer.vlm.trigger import Condition

__all__ = ["PLACEHOLDERS", "Prompt", "Prompts"]

PLACEHOLDERS = ("stream_id", "num_frames", "timestamps", "objects", "labels")
"""What a prompt may hold in braces."""

KEYS = ("id", "prompt", "system-prompt", "only-on")
"""What a table of the file may hold."""


@dataclass(frozen=True)
class Prompt:
    """A question.

    Attributes:
        prompt: Its text, with placeholders.
        system_prompt: What the model is told before it.
        prompt_id: Its name in results.
        condition: When it is asked, or None for always.

    Raises:
        ConfigError: A placeholder that is not known, or a lone brace.
    """

    prompt: str
    system_prompt: str = ""
    prompt_id: str = "prompt"
    condition: Condition | None = None

    def __post_init__(self) -> None:
        self.placeholders  # noqa: B018 - read to be checked

    @property
    def placeholders(self) -> frozenset[str]:
        """Those that the prompt uses."""
        used = _fields(self.prompt, self.prompt_id) | _fields(self.system_prompt, f"{self.prompt_id}, system-prompt")
        return frozenset(used)

    def fill(self, stream_id: str, cut: Cut) -> tuple[str, str]:
        """Question and system prompt for a span of a stream, placeholders filled in."""
        counts = sorted(cut.objects.items(), key=lambda item: (-item[1], item[0]))
        values = {
            "stream_id": stream_id,
            "num_frames": str(len(cut.samples)),
            "timestamps": ", ".join(f"{pts / 1e9:.2f} s" for pts, _ in cut.samples),
            "objects": ", ".join(f"{count} {label}" for label, count in counts) or "nothing",
            "labels": ", ".join(sorted(cut.objects)) or "nothing",
        }
        return self.prompt.format_map(values), self.system_prompt.format_map(values)


def _fields(text: str, where: str) -> set[str]:
    try:
        parts = [(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ConfigError(f"{where}: {error} in {text!r}", hint="write {{ and }} for braces") from None
    for name, spec, conversion in parts:
        if name not in PLACEHOLDERS or spec or conversion:
            known = ", ".join("{" + p + "}" for p in PLACEHOLDERS)
            shown = "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            raise ConfigError(
                f"{where}: unknown placeholder {shown}; known are {known}", hint="write {{ and }} for braces"
            )
    return {name for name, _, _ in parts}


@dataclass(frozen=True)
class Prompts:
    """The question of each stream.

    Attributes:
        default: For streams that have none of their own.
        streams: By stream id.
    """

    default: Prompt
    streams: Mapping[str, Prompt]

    def of(self, stream_id: str) -> Prompt:
        return self.streams.get(stream_id, self.default)

    def all(self) -> Iterable[Prompt]:
        return (self.default, *self.streams.values())

    @classmethod
    def load(cls, default: Prompt, path: Path | None) -> Prompts:
        """The default, and what a TOML file says::

            [default]
            prompt = "What happens?"

            [streams.gate]
            prompt = "Is the gate open at {timestamps}?"
            only-on = "car>=1"

        A stream's table takes what it does not say from the default.

        Raises:
            ConfigError: The file is missing, is no TOML, or holds what is not known; no prompt is left without a text.
        """
        streams: dict[str, Prompt] = {}
        if path is not None:
            tables = _read(path)
            default = _prompt(tables.get("default", {}), default, f"{path}: [default]", default.prompt_id)
            for stream_id, table in tables.get("streams", {}).items():
                streams[stream_id] = _prompt(table, default, f"{path}: [streams.{stream_id}]", stream_id)
        if not default.prompt.strip():
            where = f"{path} has no [default] prompt" if path is not None else "no prompt is set"
            raise ConfigError(where, hint='set prompt="What happens?", or prompts=FILE.toml')
        return cls(default, streams)


def _read(path: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"the prompts file {str(path)!r} does not exist", hint=f"looked in {Path.cwd()}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the prompts file {str(path)!r} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the prompts file {str(path)!r} is not TOML: {error}") from error
    for name, value in tables.items():
        if name not in ("default", "streams"):
            raise UnknownNameError(f"table in {path}", name, ("default", "streams"))
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {name} must be a table", hint=f"write [{name}]")
    return tables


def _prompt(table: Any, base: Prompt, where: str, prompt_id: str) -> Prompt:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table of {', '.join(KEYS)}")
    for key, value in table.items():
        if key not in KEYS:
            raise UnknownNameError(f"key in {where}", key, KEYS)
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {key} must be text, got {value!r}")
    condition = Condition(table["only-on"], f"{where}: only-on") if table.get("only-on") else None
    try:
        return Prompt(
            table.get("prompt", base.prompt),
            table.get("system-prompt", base.system_prompt),
            table.get("id", prompt_id),
            condition if "only-on" in table else base.condition,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
