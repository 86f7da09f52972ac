"""The command group: lazy, listed, and quick."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

from gstinfer.cli.main import COMMANDS, cli


def test_help_lists_the_commands():
    done = CliRunner().invoke(cli, ["--help"])
    assert done.exit_code == 0
    assert "run " in done.output and "setup" in done.output


def test_unknown_command():
    done = CliRunner().invoke(cli, ["rum"])
    assert done.exit_code == 2 and "No such command" in done.output


def test_files_that_are_no_command_are_not_offered():
    assert "console" not in COMMANDS
    assert CliRunner().invoke(cli, ["console"]).exit_code == 2


def test_help_of_run_needs_no_gstreamer_and_no_model_library():
    code = (
        "import sys\nfrom gstinfer.cli.main import cli\n"
        "try: cli(['run', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('gi', 'cv2', 'onnxruntime', 'torch', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_says_nothing_on_standard_error(clean_env):
    command = [sys.executable, "-m", "gstinfer.cli.main", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_env, timeout=60, check=False)
    assert done.returncode == 0 and "doctor" in done.stdout
    assert done.stderr == ""
