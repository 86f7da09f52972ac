"""A model as a first-class element under a name of the user's own."""

from __future__ import annotations

import copy
import re
from typing import Any, ClassVar

from gstinfer.elements.base import gproperties
from gstinfer.elements.infer.element import PyInfer
from gstinfer.elements.infer.settings import MODEL_SETTINGS, InferSettings
from gstinfer.errors import ConfigError
from gstinfer.model import ModelSpec
from gstinfer.settings import Option, Settings

__all__ = ["element_class"]

RESERVED = ("name", "parent", "qos", "stats")
"""Properties that are no options of pyinfer."""


def element_class(
    name: str,
    model: str,
    *,
    long_name: str = "",
    description: str = "",
    author: str = "",
    **defaults: Any,
) -> type[PyInfer]:
    """A subclass of pyinfer that runs one model; the model's options become properties beside pyinfer's.

    Args:
        name: The element's name, lower-case letters and digits.
        model: Its model's spec.
        long_name: For gst-inspect; made from the name when empty.
        description: For gst-inspect; the model's docstring when empty.
        author: For gst-inspect.
        **defaults: Other defaults for pyinfer's properties.

    Raises:
        ConfigError: The name is no element name, a default is none of pyinfer's properties or does not fit, or an option of
            the model has the name of another property.
        ModelLoadError: The model cannot be imported.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]{1,60}", name):
        raise ConfigError(
            f"{name!r} cannot be the name of an element", hint="use lower-case letters and digits, a letter first"
        )
    InferSettings(**defaults)
    spec = ModelSpec.parse(model)
    target = spec.target_object() if spec.kind == "python" else None
    own: dict[str, Option] = target.options() if isinstance(target, type) and issubclass(target, Settings) else {}
    options = InferSettings.options()
    # Those that pyinfer hands to the model are one property for both; two meanings of one name cannot be.
    extra = {key: option for key, option in own.items() if key not in MODEL_SETTINGS}
    if clash := next((key for key in extra if key in options or key in RESERVED), ""):
        raise ConfigError(
            f"the option {clash!r} of {model} has the name of a property that every such element has",
            hint=f"rename the option, to my_{clash} for instance",
        )
    for key, value in {"model": model, **defaults}.items():
        key = key.replace("-", "_")
        options[key] = copy.copy(options[key])
        options[key].default = options[key].parse(value)
    about = description or (target.__doc__ if target is not None else "") or f"Runs {model}"

    class Named(PyInfer):
        __gtype_name__ = "Gst" + re.sub(r"[^A-Za-z0-9]", "_", name)
        metadata = (
            long_name or f"{name} model",
            "Filter/Analyzer/Video",
            about.strip().splitlines()[0],
            author or "user",
        )
        model_options: ClassVar[dict[str, Option]] = extra
        __gproperties__: ClassVar[dict[str, Any]] = gproperties(
            {**{k: options[k] for k in ("model", *(d.replace("-", "_") for d in defaults))}, **extra}
        )

    Named.__name__ = Named.__qualname__ = name
    Named.options = {**options, **extra}
    # Pad templates are inherited; adding one of the same name again leaves the class without any (GStreamer 1.22).
    Named.set_metadata(*Named.metadata)
    return Named
