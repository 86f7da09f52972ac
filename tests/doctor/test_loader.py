"""The way from a shell to the elements, broken on purpose, and repaired by one command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from gstinfer.cli.doctor import doctor
from gstinfer.doctor import hardware, install, libraries, loader, machine
from gstinfer.doctor.checks import run_checks
from gstinfer.doctor.rows import Row, fail, ok
from gstinfer.elements import shim
from gstinfer.errors import ConfigError


def one(rows: list[Row], name: str) -> Row:
    (row,) = [r for r in rows if r.name == name]
    return row


def fake_tool(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


def test_a_check_that_raises_is_a_row_and_the_others_go_on() -> None:
    def check_first() -> list[Row]:
        raise ConfigError("no tool", hint="install it")

    def check_second() -> list[Row]:
        return [ok("second", "fine")]

    assert list(run_checks((check_first, check_second))) == [
        fail("first", "it could not be checked: no tool", "install it"),
        ok("second", "fine"),
    ]


def test_two_gstreamers_are_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_tool(tmp_path / "opt/bin", "gst-inspect-1.0", "echo GStreamer 1.18.4")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    rows = list(loader.check_tools())
    assert one(rows, "GStreamer").status == "fail" and "1.20 or later" in one(rows, "GStreamer").detail
    assert (
        str(folder) in one(rows, "two GStreamers").detail
        and "/usr/bin/gst-inspect-1.0" in one(rows, "two GStreamers").detail
    )


def test_no_gstreamer_at_all(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (row,) = loader.check_tools()
    assert row.status == "fail" and "apt-get install" in row.fix and "gstreamer1.0-tools" in row.fix


def test_conda_is_mentioned_only_when_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert list(loader.check_conda()) == []
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    (row,) = loader.check_conda()
    assert (row.status, row.fix) == ("warn", "conda deactivate") and "/opt/conda" in row.detail


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (None, "Python loader", "not installed"),
        (b"libpython3.4.so.1.0", "Python loader", "embeds Python 3.4"),
        (b"libpython3.4.so loading libpython by name", "libpython", "opens libpython3.4.so, which is not installed"),
    ],
)
def test_loaders_that_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes | None, name: str, words: str
) -> None:
    file = tmp_path / "lib/gstreamer-1.0/libgstpython.so"
    if text is not None:
        file.parent.mkdir(parents=True)
        file.write_bytes(text)
    monkeypatch.setattr(machine, "loader_file", lambda: file if text is not None else None)
    row = one([*loader.check_loader(), *loader.check_libpython()], name)
    assert row.status == "fail" and words in row.detail and row.fix


def test_the_plugin_file_and_everything_wrong_with_it(home: Path, tmp_path: Path) -> None:
    def row() -> Row:
        (only,) = loader.check_plugin_file()
        return only

    assert (row().status, row().fix) == ("fail", "gstinfer setup")
    folder = install.folder_for(None)
    install.install(folder)
    assert row().status == "ok"
    bootstrap = folder / shim.BOOTSTRAP
    good = bootstrap.read_text()
    bootstrap.write_text(shim.bootstrap_text(str(tmp_path / "gone"), machine.PYTHON))
    assert row().status == "fail" and "is gone" in row().detail and row().fix == "gstinfer setup"
    bootstrap.write_text(shim.bootstrap_text(str(tmp_path), machine.PYTHON))
    assert row().status == "warn" and "not to this environment" in row().detail
    bootstrap.unlink()
    assert row().status == "fail" and "missing or damaged" in row().detail and row().fix == "gstinfer setup"
    bootstrap.write_text("garbage")
    assert row().fix == f"rm {bootstrap}, then gstinfer setup"
    bootstrap.write_text(good)
    (folder / shim.PLUGIN).write_text("mine = 1\n")
    assert row().status == "fail" and "was not written by gstinfer setup" in row().detail


@pytest.mark.gst
def test_a_plugin_that_aborted_is_named_and_one_command_repairs(home: Path) -> None:
    folder = install.folder_for(None)
    install.install(folder)
    culprit = folder / "culprit.py"
    culprit.write_text("import os\nos.abort()\n")
    machine.gst_inspect("fakesink")
    row = one(list(loader.check_registry()), "plugin registry")
    (registry,) = machine.registry_files()
    assert row.status == "fail" and str(registry) in row.detail and "libgstpython.so" in row.detail
    assert f"{culprit} (ends the process with SIGABRT)" in row.detail and "doctor --fix" in row.fix
    culprit.unlink()
    row = one(list(loader.check_registry()), "plugin registry")
    assert row.status == "fail" and "gone or repaired since" in row.detail and row.fix == "gstinfer doctor --fix"
    done = CliRunner().invoke(doctor, ["--fix", "--json"])
    rows = [Row(**item) for item in json.loads(done.stdout[done.stdout.index("[") :])]
    assert one(rows, "plugin registry").status == "ok"
    assert one(rows, "pyinfer in a clean shell").status == "ok", rows
    assert machine.gst_inspect("--exists", "pyinfer").returncode == 0


@pytest.mark.gst
def test_a_registry_that_remembers_a_broken_time(home: Path) -> None:
    folder = install.folder_for(None)
    install.install(folder)
    bootstrap = folder / shim.BOOTSTRAP
    good = bootstrap.read_text()
    bootstrap.write_text("raise ImportError('not yet')\n")
    for _ in range(2):  # Python's own cache folder, made the first time, changes the folder's time
        machine.gst_inspect("fakesink")
    bootstrap.write_text(good)
    row = one(list(loader.check_shells()), "pyinfer in a clean shell")
    assert row.status == "fail" and "remembers" in row.detail and row.fix == "gstinfer doctor --fix"
    CliRunner().invoke(doctor, ["--fix", "--json"])
    assert one(list(loader.check_shells()), "pyinfer in a clean shell").status == "ok"


@pytest.mark.gst
def test_the_loaders_own_words_are_shown(home: Path) -> None:
    folder = install.folder_for(None)
    install.install(folder)
    (folder / shim.BOOTSTRAP).write_text(shim.bootstrap_text("/no/such/environment", machine.PYTHON))
    row = one(list(loader.check_shells()), "pyinfer in a clean shell")
    assert row.status == "fail" and "/no/such/environment is gone" in row.detail and row.fix == "gstinfer setup"


@pytest.mark.gst
def test_missing_elements_come_with_their_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(list(libraries.check_plugins()), "GStreamer plugins").status == "ok"
    monkeypatch.setitem(libraries.ELEMENTS, "gstreamer1.0-nowhere", ("nosuchelement",))
    row = one(list(libraries.check_plugins()), "GStreamer plugins")
    assert row.status == "fail" and "nosuchelement" in row.detail and row.fix.endswith(" gstreamer1.0-nowhere")


@pytest.mark.gst
def test_missing_typelibs_come_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(list(libraries.check_typelibs()), "typelibs").status == "ok"
    monkeypatch.setitem(libraries.TYPELIBS, "NoSuchNamespace", "gir1.2-nowhere")
    row = one(list(libraries.check_typelibs()), "typelibs")
    assert row.status == "fail" and "NoSuchNamespace" in row.detail and "gir1.2-nowhere" in row.fix


def package(folder: Path, name: str, files: dict[str, str]) -> None:
    """An installed package made by hand."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: Something\n")
    (info / "RECORD").write_text("".join(f"{f},,\n" for f in files))
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


def test_the_unrelated_pyds_is_told_from_nvidias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package(tmp_path, "pyds", {"pyds.py": ""})
    row = one(list(libraries.check_packages()), "pyds")
    assert row.status == "warn" and "not NVIDIA's" in row.detail and row.fix == "pip uninstall pyds"
    (tmp_path / "pyds-1.0.dist-info/RECORD").write_text("pyds.so,,\n")
    (tmp_path / "pyds.so").touch()
    assert [r for r in libraries.check_packages() if r.name == "pyds"] == []


def test_entry_points_that_fail_name_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [r.status for r in libraries.check_entry_points()] == ["ok"]
    entry = "[gstinfer.models]\nbroken = not_there:Model\n"
    package(tmp_path, "someones_models", {"someones_models-1.0.dist-info/entry_points.txt": entry})
    monkeypatch.syspath_prepend(str(tmp_path))
    row = one(list(libraries.check_entry_points()), "gstinfer.models broken")
    assert row.status == "fail" and "someones_models" in row.detail and "not_there" in row.detail


def test_a_runtime_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "RUNTIMES", {"json": "raise ImportError('libnothing.so.1')", "no_such_runtime": ""})
    (row,) = libraries.check_runtimes()
    assert row.status == "fail" and "libnothing.so.1" in row.detail
    monkeypatch.setattr(libraries, "NEEDED", ("no_such_runtime",))
    assert one(list(libraries.check_runtimes()), "no_such_runtime").fix == "pip install no_such_runtime"


def test_deepstream(tmp_path: Path) -> None:
    (row,) = hardware.check_deepstream(tmp_path / "deepstream")
    assert (row.status, row.detail) == ("ok", "not installed; not needed")
    folder = tmp_path / "deepstream/deepstream-7.1"
    (folder / "lib").mkdir(parents=True)
    (folder / "version").write_text("Version: DeepStreamSDK 7.1.0\n")
    (row,) = hardware.check_deepstream(tmp_path / "deepstream")
    assert row.status == "fail" and "DeepStream 7.1.0" in row.detail and "missing libnvds_meta.so" in row.detail
    system = shutil.which("gst-inspect-1.0") and next(Path("/usr/lib").glob("*/libgstreamer-1.0.so.0"), None)
    if system is None:
        pytest.skip("no library to stand in for DeepStream's")
    for name in hardware.LIBRARIES:
        (folder / "lib" / name).symlink_to(system)
    (row,) = hardware.check_deepstream(tmp_path / "deepstream")
    assert row.status == "ok"
