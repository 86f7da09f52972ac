"""Structured answers: a JSON Schema that they must fit, and what in them is a class of the frame."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError
from gstinfer.results import Classifications

__all__ = ["ROLE", "AnswerSchema"]

ROLE = "x-gstinfer"
"""Keyword of a property's schema: ``"class"`` for an enum whose value is a class, ``"confidence"`` for its confidence."""

FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.S)


@dataclass(frozen=True)
class AnswerSchema:
    """A checked JSON Schema.

    Attributes:
        schema: As in the file, without our own keyword: what a server is sent.
        classes: Property -> its values, in order.
        confidence: Name of the property that holds the confidence of the classes, or empty.
    """

    schema: Mapping[str, Any]
    classes: Mapping[str, tuple[str, ...]]
    confidence: str
    _validator: Any

    @classmethod
    def load(cls, path: Path) -> AnswerSchema:
        """Reads a schema from a file.

        Raises:
            ConfigError: The file is missing, is no JSON, or no JSON Schema.
            MissingDependencyError: jsonschema is not installed.
        """
        try:
            import jsonschema
        except ImportError:
            raise MissingDependencyError("jsonschema", extra="vlm", purpose="response-schema") from None
        name = f"response-schema {str(path)!r}"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{name} does not exist", hint=f"looked in {Path.cwd()}") from None
        except OSError as error:
            raise ConfigError(f"{name} cannot be read: {error}") from error
        except ValueError as error:
            raise ConfigError(f"{name} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{name} is not a JSON Schema: it must be an object, got {type(found).__name__}")
        plain = _plain(found)
        kind = jsonschema.validators.validator_for(plain, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(plain)
        except jsonschema.SchemaError as error:
            place = "/".join(map(str, error.absolute_path)) or "the top"
            raise ConfigError(f"{name} is not a JSON Schema: {error.message} (at {place})") from error
        classes, confidence = _roles(found, name)
        return cls(plain, classes, confidence, kind(plain))

    def read(self, text: str) -> tuple[Any, str]:
        """The answer's data, and why it does not fit, or empty. Data that is JSON but does not fit is None too."""
        fenced = FENCE.match(text)
        try:
            data = json.loads(fenced[1] if fenced else text, parse_constant=_refuse)
        except ValueError as error:
            return None, f"not JSON: {error}"
        errors = sorted(self._validator.iter_errors(data), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            place = "/".join(map(str, errors[0].absolute_path))
            return None, f"{place}: {errors[0].message}" if place else str(errors[0].message)
        return data, ""

    def classifications(self, data: Any, component_id: int) -> list[Classifications]:
        """What the schema calls a class of the frame."""
        if not isinstance(data, dict):
            return []
        confidence = data.get(self.confidence, 1.0) if self.confidence else 1.0
        return [
            Classifications([names.index(data[key])], [confidence], [data[key]], component_id)  # type: ignore[arg-type]
            for key, names in self.classes.items()
            if data.get(key) in names
        ]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _plain(value: Any) -> Any:
    """A schema without our own keyword, which strict servers would refuse."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key != ROLE}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _roles(schema: Mapping[str, Any], name: str) -> tuple[dict[str, tuple[str, ...]], str]:
    classes, confidence = {}, ""
    properties = schema.get("properties", {})
    for key, part in properties.items() if isinstance(properties, dict) else ():
        role = part.get(ROLE) if isinstance(part, dict) else None
        if role is None:
            continue
        if role == "class" and all(isinstance(v, str) for v in part.get("enum", [None])):
            classes[key] = tuple(part["enum"])
        elif role == "confidence" and part.get("type") == "number":
            confidence = key
        else:
            raise ConfigError(
                f"{name}: {ROLE}={role!r} does not fit the property {key!r}",
                hint='"class" goes with an enum of strings, "confidence" with type number',
            )
    return classes, confidence
