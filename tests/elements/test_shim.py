"""The generated plugin files, against a made-up environment in place of the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gstinfer.elements import shim

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

FAKE_SHIM = """
from gi.repository import Gst, GstBase

def make(name):
    any_ = lambda pad, direction: Gst.PadTemplate.new(pad, direction, Gst.PadPresence.ALWAYS, Gst.Caps.new_any())
    members = {
        "__gstmetadata__": (name, "Filter", "fake", "nobody"),
        "__gsttemplates__": (any_("sink", Gst.PadDirection.SINK), any_("src", Gst.PadDirection.SRC)),
    }
    return type(name, (GstBase.BaseTransform,), members)

def publish():
    Gst.Element.register(Gst.__plugin__, "fakesecond", 0, make("FakeSecond"))
    return "fakefirst", 0, make("FakeFirst")
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A site-packages folder that leads to a fake gstinfer by a .pth file, as an editable install does."""
    site, source = tmp_path / "site-packages", tmp_path / "src"
    (source / "gstinfer/elements").mkdir(parents=True)
    site.mkdir()
    (site / "gstinfer.pth").write_text(f"{source}\n")
    (source / "gstinfer/__init__.py").write_text("REAL = True\n")
    (source / "gstinfer/elements/__init__.py").write_text("")
    (source / "gstinfer/elements/shim.py").write_text(
        'import gi\ngi.require_version("Gst", "1.0")\ngi.require_version("GstBase", "1.0")\n' + FAKE_SHIM
    )
    return site


def write(folder: Path, site: Path, python: str = PYTHON) -> Path:
    (folder / "gstinfer").mkdir(parents=True)
    (folder / shim.PLUGIN).write_text(shim.plugin_text())
    (folder / shim.BOOTSTRAP).write_text(shim.bootstrap_text(str(site), python))
    return folder


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    prelude = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    return subprocess.run(
        ["/usr/bin/python3", "-I", "-c", prelude + code], capture_output=True, text=True, timeout=30, check=False
    )


def test_import_reaches_the_environment(tmp_path: Path, environment: Path) -> None:
    folder = write(tmp_path / "plugins/python", environment)
    code = (
        "import gstinfer; print(gstinfer.REAL, gstinfer.__file__); "
        "import gstinfer.elements; print(gstinfer.elements.__file__); print(sys.path[0])"
    )
    done = run(folder, code)
    assert done.returncode == 0, done.stderr
    source = environment.parent / "src/gstinfer"
    assert done.stdout.splitlines() == [f"True {source}/__init__.py", f"{source}/elements/__init__.py", str(folder)]


def test_two_plugin_folders_do_not_lead_to_each_other(tmp_path: Path, environment: Path) -> None:
    write(tmp_path / "other/python", environment)
    folder = write(tmp_path / "plugins/python", environment)
    done = run(folder, f"sys.path.insert(1, {str(tmp_path / 'other/python')!r}); import gstinfer; print(gstinfer.REAL)")
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("gone", "is gone"),
        ("empty", "no longer installed"),
        ("python", "installed for Python 3.4"),
        ("broken", "something broke"),
    ],
)
def test_a_fault_is_one_line_and_no_exception(tmp_path: Path, environment: Path, fault: str, words: str) -> None:
    python, site = PYTHON, environment
    if fault == "gone":
        site = tmp_path / "deleted"
    elif fault == "empty":
        (environment / "gstinfer.pth").unlink()
    elif fault == "python":
        python = "3.4"
    else:
        (environment.parent / "src/gstinfer/__init__.py").write_text("raise RuntimeError('something\\nbroke')")
    folder = write(tmp_path / "plugins/python", site, python)
    done = run(folder, "import gstinfer_elements as e; print(hasattr(e, '__gstelementfactory__'))")
    assert (done.returncode, done.stdout.strip()) == (0, "False")
    assert done.stderr.count("\n") == 1 and words in done.stderr and "gstinfer doctor" in done.stderr


@pytest.mark.gst
def test_the_loader_finds_every_element(tmp_path: Path, environment: Path, clean_env: dict[str, str]) -> None:
    write(tmp_path / "plugins/python", environment)
    variables = {**clean_env, "GST_PLUGIN_PATH": str(tmp_path / "plugins"), "GST_REGISTRY": str(tmp_path / "r.bin")}
    for name in ("fakefirst", "fakesecond", "fakesecond"):
        command = ["gst-inspect-1.0", "--exists", name]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"


@pytest.mark.gst
def test_a_gone_environment_harms_no_other_element(tmp_path: Path, clean_env: dict[str, str]) -> None:
    folder = write(tmp_path / "plugins/python", tmp_path / "deleted")
    other = FAKE_SHIM.replace('    Gst.Element.register(Gst.__plugin__, "fakesecond", 0, make("FakeSecond"))\n', "")
    head = 'import gi\ngi.require_version("GstBase", "1.0")\n'
    (folder / "someone_elses.py").write_text(head + other + "\n__gstelementfactory__ = publish()\n")
    variables = {**clean_env, "GST_PLUGIN_PATH": str(tmp_path / "plugins"), "GST_REGISTRY": str(tmp_path / "r.bin")}
    done = subprocess.run(
        ["gst-inspect-1.0", "fakefirst"], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "Factory Details" in done.stdout, done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("gstinfer:")]
    # The scanner is one process and gst-inspect-1.0 another; each says it once.
    assert 1 <= len(ours) <= 2 and "is gone" in ours[0]
