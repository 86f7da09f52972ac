"""``gstinfer inspect``: what a model is, and why its inputs and outputs are treated as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gstinfer.errors import ConfigError
from gstinfer.image import Device
from gstinfer.model import Model, ModelSpec

__all__ = ["inspect", "rows_of"]


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--device", default="cpu", show_default=True, help="Where it is opened: cpu, cuda or cuda:N.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the model. May be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def inspect(model: str, device: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Prints what MODEL is: inputs, outputs, preprocessing, head and labels, each with the reason.

    MODEL is a ready model, a file, my_models:Yolo or file.py:Yolo. A network is opened; a model in Python is made but
    not loaded.
    """
    rows = rows_of(model, Device.parse(device), _parse(settings))
    if as_json:
        click.echo(json.dumps([dict(zip(("what", "value", "why"), row)) for row in rows], indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "value", "why"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _parse(settings: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {text!r} cannot be read", hint="write --set NAME=VALUE")
        values[name.strip()] = value
    return values


def rows_of(text: str, device: Device, settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of (what, value, why) about a model.

    Args:
        text: The model's spec.
        device: Where a network is opened.
        settings: Arguments for the model.

    Raises:
        ConfigError, ModelLoadError: The model cannot be found, made or opened, or its outputs are ambiguous.
    """
    spec = ModelSpec.parse(text)
    model = spec.build(**settings)
    rows = [("model", text, {"ready": "a ready model", "runtime": f"runtime {spec.name}"}.get(spec.kind, "Python"))]
    describe = getattr(model, "describe", None)
    if not callable(describe):
        return rows + _python_rows(model)
    try:
        model.load(device)
        said = describe()
        names, count = _labels(model.labels)
        why = next((why for what, _, why in said if what == "labels"), "")
        return [*rows, *(row for row in said if row[0] != "labels"), ("labels", names, f"{count}; {why}" if why else count)]
    finally:
        model.close()


def _python_rows(model: Model) -> list[tuple[str, str, str]]:
    target = getattr(model, "_target", model)
    cls = target if callable(target) and hasattr(target, "__qualname__") else type(target)
    about = next(iter((cls.__doc__ or "").strip().splitlines()), "")
    # A file's module has a made-up name.
    module = "" if cls.__module__.startswith("_gstinfer_user_") else f"{cls.__module__}."
    rows = [("class", module + cls.__qualname__, about)]
    for name, option in model.options().items():
        kind = option.type.__name__
        if option.choices:
            kind = "|".join(option.choices)
        rows.append((option.key, f"{getattr(model, name)}", f"{option.help} ({kind}, default {option.default})"))
    rows.append(("most frames at once", str(model.max_batch or "any number"), "max_batch"))
    rows.append(("labels", *_labels(model.labels)))
    return rows


def _labels(labels: Any) -> tuple[str, str]:
    if labels is None:
        return "none", "classes are numbers, unless labels= or the model's load() names them"
    names = list(labels.values() if isinstance(labels, Mapping) else labels)
    shown = ", ".join(map(str, names[:8])) + (", ..." if len(names) > 8 else "")
    return shown, f"{len(names)} name{'s' if len(names) != 1 else ''}"
