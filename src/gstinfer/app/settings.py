"""``--set NAME=VALUE`` as checked properties of elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gstinfer.elements import factories
from gstinfer.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from gstinfer.app.session import Job

__all__ = ["parse_settings", "refuse_idle"]


def parse_settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``NAME=VALUE`` and ``ELEMENT.NAME=VALUE`` as checked values by element and property.

    Raises:
        ConfigError: No ``=``, or a value that does not fit.
        UnknownNameError: An element or a property that is not known.
    """
    options = {name: cls.options for name, _, cls in factories()}
    options["then"] = options["pyinfer"]
    found: dict[str, dict[str, Any]] = {name: {} for name in options}
    for text in texts:
        key, equals, value = text.partition("=")
        element, dot, name = key.strip().rpartition(".")
        element = element if dot else "pyinfer"
        if not equals:
            raise ConfigError(f"--set {text!r} has no '='", hint="write --set NAME=VALUE")
        if element not in options:
            raise UnknownNameError("element", element, options)
        option = options[element].get(name.replace("-", "_"))
        if option is None:
            raise UnknownNameError(f"property of {element}", name, (o.key for o in options[element].values()))
        parsed = option.parse(value)
        found[element][option.name] = option.unset if parsed is None else parsed
    return found


def refuse_idle(settings: Mapping[str, Mapping[str, Any]], job: Job) -> None:
    """Refuses settings that nothing would use, or that say twice what an option of the command says."""
    absent = {
        "pytrack": job.track == "none" and "there is no tracker with --track none",
        "pyvlm": not job.vlm and "there is no vision-language model without --vlm",
        "then": not job.then and "there is no second model without --then",
        "pyoverlay": not (job.output or job.show) and "nothing is drawn without --output or --show",
        "pypublish": not job.publish and "nothing is published without --jsonl or --publish",
    }
    for element, reason in absent.items():
        if reason and settings[element]:
            raise ConfigError(f"--set {element}.{next(iter(settings[element]))} has no effect: {reason}")
    twice = {"pyinfer": {"model": "--model", "device": "--device", "tracker": "--track"}, "pytrack": {"tracker": "--track"}}
    twice["pyinfer"]["tracker_args"] = "--set pytrack.tracker-args"
    twice["then"] = {"model": "--then", "device": "--device"}
    twice["pypublish"] = {"url": "--jsonl or --publish"}
    twice["pyvlm"] = {"model": "--vlm", "prompt": "--prompt"}
    for element, names in twice.items():
        for name, option in names.items():
            if name in settings[element]:
                raise ConfigError(f"--set {element}.{name} is {option}", hint=f"use {option}")
