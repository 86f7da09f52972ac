"""gstinfer setup: what it writes, removes, refuses and repairs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gstinfer.cli.setup import setup
from gstinfer.doctor import install, machine
from gstinfer.elements import shim
from gstinfer.errors import ConfigError

ABORT = "import os\nos.abort()\n"


@pytest.fixture
def shell(clean_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process has a HOME of its own with nothing in it; returns it."""
    for name in ("GST_PLUGIN_PATH", "GST_PLUGIN_PATH_1_0", "GST_REGISTRY", "GST_REGISTRY_1_0", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**clean_env, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GST_REGISTRY")
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(setup, arguments)


def test_install_is_idempotent_and_uninstall_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "plugins/python"
    assert [f.name for f in install.install(folder)] == ["__init__.py", shim.PLUGIN]
    assert install.install(folder) == []
    assert not [f for f in folder.rglob("*") if f.name.endswith(".new")]
    assert len(install.uninstall(folder)) == 2
    assert not folder.exists() and folder.parent.exists()
    assert install.uninstall(folder) == []


def test_a_moved_environment_is_written_anew(tmp_path: Path) -> None:
    install.install(tmp_path)
    (tmp_path / shim.BOOTSTRAP).write_text(shim.bootstrap_text("/somewhere/else", "3.9"))
    assert install.install(tmp_path) == [tmp_path / shim.BOOTSTRAP]
    assert str(machine.site_folder()) in (tmp_path / shim.BOOTSTRAP).read_text()


def test_files_of_others_are_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    theirs = tmp_path / shim.PLUGIN
    theirs.write_text("mine = 1\n")
    with pytest.raises(ConfigError, match="was not written by gstinfer setup"):
        install.install(tmp_path)
    assert install.uninstall(tmp_path) == []
    assert theirs.read_text() == "mine = 1\n"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written: Not a directory.*--dir"):
        install.install(tmp_path / "file/python")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be written: Permission denied"):
        install.install(tmp_path / "python")


@pytest.mark.parametrize("value", [None, "", "/no/such/home"])
def test_without_a_home_the_way_out_is_named(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME") if value is None else monkeypatch.setenv("HOME", value)
    with pytest.raises(ConfigError, match=r"HOME is .*--dir FOLDER"):
        install.folder_for(None)


def test_another_python_than_the_loaders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = tmp_path / "libgstpython.so"
    loader.write_bytes(b"\0libpython3.4.so.1.0\0")
    monkeypatch.setattr(machine, "loader_file", lambda: loader)
    with pytest.raises(ConfigError, match=r"embeds Python 3\.4.*/usr/bin/python3\.4 -m venv"):
        install.require_same_python()


@pytest.mark.gst
def test_setup_and_remove(shell: Path) -> None:
    done = invoke()
    assert done.exit_code == 0, done.output + str(done.exception)
    assert (shell / ".gstreamer-1.0/plugins/python" / shim.PLUGIN).is_file()
    assert "works from a clean shell" in done.output
    assert "is up to date" in invoke().output
    assert machine.gst_inspect("--exists", "pyinfer").returncode == 0
    assert "removed" in invoke("--remove").output
    assert machine.gst_inspect("--exists", "pyinfer").returncode != 0
    assert "nothing of gstinfer" in invoke("--remove").output


@pytest.mark.gst
def test_setup_for_services(shell: Path, tmp_path: Path) -> None:
    done = invoke("--dir", str(tmp_path / "service"))
    assert done.exit_code == 0, done.output + str(done.exception)
    assert f"GST_PLUGIN_PATH={tmp_path / 'service'}" in done.output
    assert (tmp_path / "service/python" / shim.PLUGIN).is_file()
    assert not (shell / ".gstreamer-1.0").exists()


@pytest.mark.gst
def test_a_blacklisted_loader_is_repaired_and_a_good_registry_is_left_alone(shell: Path) -> None:
    folder = shell / ".gstreamer-1.0/plugins/python"
    folder.mkdir(parents=True)
    (folder / "culprit.py").write_text(ABORT)
    machine.gst_inspect("fakesink")
    (folder / "culprit.py").unlink()
    assert machine.blacklisted() == ["libgstpython.so"]
    done = invoke()
    assert done.exit_code == 0, done.output + str(done.exception)
    assert "had blacklisted the Python loader" in done.output
    assert machine.blacklisted() == []
    (registry,) = machine.registry_files()
    before = registry.stat().st_ino
    assert "deleted" not in invoke().output
    assert registry.stat().st_ino == before


@pytest.mark.gst
def test_elements_register_in_process_even_when_the_loader_is_blacklisted(shell: Path) -> None:
    folder = shell / ".gstreamer-1.0/plugins/python"
    folder.mkdir(parents=True)
    (folder / "culprit.py").write_text(ABORT)
    machine.gst_inspect("fakesink")
    code = (
        "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst; import gstinfer\n"
        "Gst.init(None); gstinfer.register(); print(Gst.ElementFactory.make('pyinfer', None) is not None)"
    )
    site = str(machine.site_folder())
    done = subprocess.run(
        ["/usr/bin/python3", "-c", f"import site; site.addsitedir({site!r})\n{code}"],
        env=machine.clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr
