"""gstinfer doctor: its table, its JSON, its exit code and its repairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gstinfer.cli.doctor import doctor
from gstinfer.doctor import install
from gstinfer.doctor.rows import fail, ok
from gstinfer.elements import shim
from gstinfer.errors import ConfigError


def test_the_exit_code_says_whether_something_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows, code in (([ok("a", "b")], 0), ([ok("a", "b"), fail("c", "d", "e")], 1)):
        monkeypatch.setattr("gstinfer.cli.doctor.run_checks", lambda rows=rows: iter(rows))
        done = CliRunner().invoke(doctor, ["--json"])
        assert done.exit_code == code
        assert json.loads(done.output) == [row.as_dict() for row in rows]
    table = CliRunner().invoke(doctor, []).output
    assert "1 ok, 0 warn, 1 fail" in table and "fix" in table


@pytest.fixture
def home(clean_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**clean_env, "HOME": str(tmp_path), "GST_REGISTRY": str(tmp_path / "registry.bin")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("gstinfer.cli.doctor.run_checks", lambda: iter([ok("a", "b")]))
    return tmp_path


@pytest.mark.gst
def test_fix_writes_the_plugin_file_and_says_so(home: Path) -> None:
    done = CliRunner().invoke(doctor, ["--fix"])
    assert done.exit_code == 0, done.output
    file = home / ".gstreamer-1.0/plugins/python" / shim.PLUGIN
    assert f"wrote {file}" in done.output and install.is_ours(file)
    assert "wrote" not in CliRunner().invoke(doctor, ["--fix"]).output


@pytest.mark.gst
def test_without_fix_nothing_is_written(home: Path) -> None:
    assert CliRunner().invoke(doctor, []).exit_code == 0
    assert list(home.iterdir()) == []


def test_fix_without_a_home_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "repair_registry", lambda _: [])
    monkeypatch.delenv("HOME")
    done = CliRunner().invoke(doctor, ["--fix"])
    assert isinstance(done.exception, ConfigError) and "HOME is not set" in str(done.exception)
