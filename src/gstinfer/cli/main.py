"""The ``gstinfer`` command: each command's file is imported only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import click

from gstinfer import __version__
from gstinfer.app.caches import use_temporary_caches
from gstinfer.errors import GstInferError

__all__ = ["cli", "main"]

COMMANDS = ("run", "setup", "doctor", "inspect", "parity", "bench", "new", "ctl")
"""Files of this folder that hold a command, under the name ``command`` or their own, in the order of the help text."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"gstinfer.cli.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"gstinfer.cli.{cmd_name}")
        command: click.Command = getattr(module, "command", None) or getattr(module, cmd_name)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gstinfer")
def cli() -> None:
    """Any Python model as a GStreamer element."""


def main() -> None:
    """Entry point: errors of this package become one line on stderr and exit code 1."""
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        folder = use_temporary_caches(os.environ)
        if folder is not None:
            click.echo(f"note: there is no home to write to; caches go to {folder}", err=True)
    try:
        cli(prog_name="gstinfer")
    except GstInferError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
