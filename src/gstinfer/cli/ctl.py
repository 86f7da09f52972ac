"""``gstinfer ctl``: adds, removes and lists the streams of a running session, and exchanges its model."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gstinfer.app.control import ask

__all__ = ["command"]


@click.group("ctl")
@click.option(
    "--socket", "-s", "path", required=True, envvar="GSTINFER_CONTROL", metavar="SOCKET",
    help="The one that the session was started with; also from GSTINFER_CONTROL.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Answers for programs.")
@click.pass_context
def command(context: click.Context, path: str, as_json: bool) -> None:
    """Talks to a session that was started with gstinfer run ... --control SOCKET."""
    context.obj = (path, as_json)


@command.command()
@click.argument("source")
@click.option("--name", default="", help="Of the stream.")
@click.pass_obj
def add(obj: tuple[str, bool], source: str, name: str) -> None:
    """Adds a source: a file, an rtsp:// address or test:PATTERN."""
    _show(obj, ask(obj[0], "add", source=source, name=name))


@command.command()
@click.argument("name")
@click.pass_obj
def remove(obj: tuple[str, bool], name: str) -> None:
    """Ends a stream, its files finished."""
    _show(obj, ask(obj[0], "remove", name=name))


@command.command("list")
@click.pass_obj
def list_streams(obj: tuple[str, bool]) -> None:
    """Lists the streams, with their state."""
    _show(obj, ask(obj[0], "list"))


@command.command()
@click.argument("model")
@click.pass_obj
def swap(obj: tuple[str, bool], model: str) -> None:
    """Exchanges the model of all streams; returns when the new one runs."""
    _show(obj, ask(obj[0], "swap", model=model))


@command.command()
@click.argument("name", default="")
@click.pass_obj
def stats(obj: tuple[str, bool], name: str) -> None:
    """Prints all counters as JSON, of one stream or of all."""
    _show((obj[0], True), ask(obj[0], "stats", name=name))


def _show(obj: tuple[str, bool], answer: Any) -> None:
    if obj[1]:
        click.echo(json.dumps(answer, indent=2))
    elif isinstance(answer, dict) and "model" in answer:
        click.echo(f"running {answer['model']}")
    else:
        rows = answer if isinstance(answer, list) else [answer]
        table = Table(box=None, pad_edge=False)
        for title in ("stream", "state", "device", "frames", "fps", "lag", "dropped", "source"):
            table.add_column(title)
        for row in rows:
            lag = "" if row["lag"] is None else f"{row['lag']:.2f} s"
            state = f"{row['state']}: {row['error']}" if row["error"] else row["state"]
            cells = (row["name"], state, row["device"], row["frames"], f"{row['fps']:.1f}", lag, row["dropped"], row["source"])
            table.add_row(*(Text(str(cell)) for cell in cells))
        Console(soft_wrap=True, highlight=False).print(table)
