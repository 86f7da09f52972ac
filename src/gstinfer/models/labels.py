"""What a user says about a model file besides properties: class names, and a sidecar file of settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError, MissingDependencyError
from gstinfer.labels import parse_labels
from gstinfer.settings import Option

__all__ = ["LabelsOption", "read_sidecar"]

SUFFIX = ".gstinfer.toml"


class LabelsOption(Option):
    """An option whose value is names by class: a file or ``a,b,c`` when text, else a sequence or a dict as it is.

    Its owner has ``known_labels``, read where nothing was set, and ``labels_changed(labels)``, which may refuse.
    """

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__.get(self.name)
        return instance.known_labels if value is None else value

    def __set__(self, instance: Any, value: Any) -> None:
        labels = self.parse(value)
        instance.labels_changed(labels)
        instance.__dict__[self.name] = labels

    def parse(self, value: Any) -> Any:
        if value is None or value == "":
            return None
        if isinstance(value, (str, Path)):
            return parse_labels(str(value))
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Sequence):
            return tuple(str(name) for name in value)
        raise ConfigError(f"{self.key} must be text, a list or a dict, got {type(value).__name__}")


def read_sidecar(model: str | Path) -> dict[str, Any]:
    """Settings from ``MODEL.gstinfer.toml`` beside a model file (``yolo.onnx.gstinfer.toml`` or
    ``yolo.gstinfer.toml``), under Python names; empty where there is none.

    A relative ``labels`` file is looked for beside the model.

    Raises:
        ConfigError: The file is no TOML.
    """
    model = Path(model)
    for path in (model.with_name(model.name + SUFFIX), model.with_name(model.stem + SUFFIX)):
        if path.is_file():
            break
    else:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError as error:
            raise MissingDependencyError("tomli", purpose=f"reading {path.name}") from error
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="it must be TOML, such as head = 'yolo'") from error
    values = {key.replace("-", "_"): value for key, value in values.items()}
    labels = values.get("labels")
    if isinstance(labels, str) and (path.parent / labels).is_file():
        values["labels"] = str(path.parent / labels)
    return values
