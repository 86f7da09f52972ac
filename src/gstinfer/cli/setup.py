"""``gstinfer setup``: makes the elements known to gst-launch-1.0 and every other GStreamer program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from gstinfer.doctor import install, machine
from gstinfer.errors import ConfigError

__all__ = ["check", "setup"]


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write FOLDER/python/ instead, for services, containers and other users: GST_PLUGIN_PATH=FOLDER.",
)
@click.option("--remove", is_flag=True, help="Undo it.")
def setup(directory: Path | None, remove: bool) -> None:
    """Makes the elements known to GStreamer's own tools, from every shell, with no environment variable."""
    folder = install.folder_for(directory)
    if remove:
        removed = install.uninstall(folder)
        for file in removed:
            click.echo(f"removed {file}")
        if not removed:
            click.echo(f"nothing of gstinfer is in {folder}")
        return
    install.require_same_python()
    changed = install.install(folder)
    for file in changed:
        click.echo(f"wrote {file}")
    if not changed:
        click.echo(f"{folder} is up to date")
    for file in install.repair_registry():
        click.echo(f"deleted the plugin registry {file}: it had blacklisted the Python loader")
    check(folder, directory)
    variable = f" with GST_PLUGIN_PATH={directory.absolute()}" if directory else ""
    click.echo(f"gst-inspect-1.0 pyinfer works from a clean shell{variable}")


def check(folder: Path, directory: Path | None) -> None:
    """Asks ``gst-inspect-1.0`` for pyinfer in a clean environment.

    Args:
        folder: The folder that the loader scans.
        directory: Its parent for ``GST_PLUGIN_PATH``, or None for the user's own plugin folder.

    Raises:
        ConfigError: It does not find the element; the message holds what the loader said.
    """
    extra = {"GST_PLUGIN_PATH": str(directory.absolute())} if directory else {}
    environment = machine.clean_environment(extra)
    try:
        result = machine.gst_inspect("pyinfer", environment=environment)
        if result.returncode != 0:
            # The registry may remember a time when the environment was incomplete.
            install.announce(folder)
            result = machine.gst_inspect("pyinfer", environment=environment)
    except subprocess.TimeoutExpired as error:
        text = f"gst-inspect-1.0 pyinfer did not end within {error.timeout:g} s"
        raise ConfigError(text, hint="gstinfer doctor") from error
    if result.returncode == 0:
        return
    said = [line for line in result.stderr.splitlines() if line.strip()]
    said = said or ["the loader said nothing"]
    reason = next((line for line in said if line.startswith("gstinfer:")), said[-1])
    raise ConfigError(f"gst-inspect-1.0 does not find pyinfer: {reason}", hint="gstinfer doctor")
