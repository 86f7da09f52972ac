"""``gstinfer doctor``: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gstinfer.doctor import install, machine
from gstinfer.doctor.checks import run_checks
from gstinfer.doctor.rows import Row

__all__ = ["doctor", "repair"]

STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command()
@click.option("--fix", is_flag=True, help="Repair what can be repaired: the plugin registry and the plugin file.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def doctor(fix: bool, as_json: bool) -> None:
    """Looks at everything between a shell and a running model: one row a check. Exit code 1 when something failed."""
    if fix:
        for line in repair():
            click.echo(line, err=as_json)
    rows = list(run_checks())
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        _show(rows)
    if any(row.status == "fail" for row in rows):
        raise SystemExit(1)


def repair() -> Iterator[str]:
    """Repairs the registry and the plugin file, and says what it did.

    Raises:
        ConfigError: The plugin file cannot be written, or the loader cannot use this environment.
    """
    for environment in (machine.clean_environment(), dict(os.environ)):
        for file in install.repair_registry(environment):
            yield f"deleted the plugin registry {file}: it had blacklisted the Python loader"
    install.require_same_python()
    folder = install.folder_for(None)
    for file in install.install(folder):
        yield f"wrote {file}"
    if machine.gst_inspect("--exists", "pyinfer").returncode != 0:
        install.announce(folder)
        yield f"made GStreamer look into {folder} again"


def _show(rows: list[Row]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("check", "", "found", "fix"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(Text(row.name), Text(row.status, STYLE[row.status]), Text(row.detail), Text(row.fix))
    console.print(table)
    counts = [f"{sum(row.status == status for row in rows)} {status}" for status in STYLE]
    console.print(", ".join(counts), highlight=False)
