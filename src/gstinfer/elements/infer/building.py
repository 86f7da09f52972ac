"""From settings to a model, and what elements that share one have to agree on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gstinfer.elements.infer.settings import MODEL_SETTINGS, InferSettings
from gstinfer.errors import ConfigError
from gstinfer.labels import parse_labels
from gstinfer.model import LoadedModel, Model, ModelSpec
from gstinfer.runner import UNSET

__all__ = ["agreement", "as_agreed", "build_model"]


def build_model(settings: InferSettings, arguments: Mapping[str, Any]) -> LoadedModel:
    """The model that settings name, not yet loaded.

    Settings such as ``head`` go to models that know them. Any model takes ``labels`` and ``confidence-threshold``; a setting
    that a custom model cannot honour is refused.

    Raises:
        ConfigError, ModelLoadError: It cannot be found or made, or a setting does not fit it.
    """
    spec = ModelSpec.parse(settings.model)
    wanted = {
        name: value
        for name in MODEL_SETTINGS
        if (value := getattr(settings, name)) not in (None, "", "auto") and name not in arguments
    }
    labels, confidence = None, None
    if spec.kind == "python":
        model = spec.build(**arguments)
        known = model.options() if isinstance(model, Model) else {}
        if "labels" in wanted and "labels" not in known:
            labels = parse_labels(wanted.pop("labels"))
        if "confidence_threshold" in wanted and "confidence_threshold" not in known:
            confidence = wanted.pop("confidence_threshold")
        for name in wanted:
            if name not in known:
                raise ConfigError(
                    f"{name.replace('_', '-')} does not apply to the custom model {spec.text}",
                    hint="it prepares and decodes by itself; remove the property, or give the model an option of that name",
                )
        model.update(wanted)
    else:
        model = spec.build(**{**wanted, **arguments})
    return LoadedModel(model, spec.text, labels=labels, confidence=confidence)


def agreement(settings: InferSettings, arguments: Mapping[str, Any]) -> dict[str, str]:
    """What users of one model must have in common, by name.

    Args:
        settings: Of the element.
        arguments: ``model-args``.
    """
    names = (*MODEL_SETTINGS, "tracker", "tracker_args")
    chosen = {name: text for name in names if (text := as_agreed(getattr(settings, name))) != UNSET}
    return {**{f"model-args {name}": repr(value) for name, value in arguments.items()}, **chosen}


def as_agreed(value: Any) -> str:
    """A setting as ``agreement`` shows it."""
    return UNSET if value in (None, "", "auto") else repr(value)
