"""gstinfer new: what it writes runs as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gstinfer.cli.new import new
from gstinfer.doctor import install
from gstinfer.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(new, arguments)


def test_the_model_passes_its_own_test(here: Path) -> None:
    done = invoke("bright-spot")
    assert done.exit_code == 0, done.output + str(done.exception)
    assert sorted(f.name for f in here.iterdir()) == ["bright_spot.py", "test_bright_spot.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_bright_spot.py"]
    tested = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, check=False)
    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout + tested.stderr


def test_nothing_is_overwritten(here: Path) -> None:
    (here / "test_mine.py").write_text("mine = 1\n")
    done = invoke("mine")
    assert isinstance(done.exception, ConfigError) and "test_mine.py exists" in str(done.exception)
    assert [f.name for f in here.iterdir()] == ["test_mine.py"]
    assert (here / "test_mine.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("name", ["json", "numpy", "gstinfer", "pyinfer", "3d", "a.b", "a b", "../up", ""])
def test_names_that_cannot_work_are_refused(here: Path, name: str) -> None:
    assert isinstance(invoke(name).exception, ConfigError)
    assert list(here.iterdir()) == []


@pytest.mark.gst
def test_the_element_is_there_in_a_clean_shell(here: Path, tmp_path: Path, clean_env: dict[str, str]) -> None:
    plugins = tmp_path / "plugins"
    install.install(plugins / "python")
    done = invoke("bright-spot", "--element", "--dir", str(plugins))
    assert done.exit_code == 0, done.output + str(done.exception)
    element = plugins / "python/bright_spot_element.py"
    assert len(element.read_text().splitlines()) <= 12
    variables = {**clean_env, "GST_PLUGIN_PATH": str(plugins), "GST_REGISTRY": str(tmp_path / "r.bin")}
    told = subprocess.run(
        ["gst-inspect-1.0", "brightspot"],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert re.search(r"level +: Least brightness of a pixel", told.stdout) and "confidence-threshold" in told.stdout
    line = re.search(r"gst-launch-1\.0 (.*)", done.output)
    assert line is not None
    launched = subprocess.run(
        ["gst-launch-1.0", "-q", *line[1].replace("brightspot", "brightspot level=100").split()],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    messages = [json.loads(text) for text in launched.stdout.splitlines()]
    assert launched.returncode == 0 and len(messages) == 5, launched.stderr
    assert messages[0]["objects"][0]["label"] == "bright"
