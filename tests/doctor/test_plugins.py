"""Wrong plugin files: each explained in one row, with a fix that works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gstinfer.doctor import install, machine, plugins
from gstinfer.doctor.rows import Row

pytestmark = pytest.mark.gst

GOOD = """import gi
gi.require_version("Gst", "1.0")
gi.require_version("GstBase", "1.0")
from gi.repository import GObject, Gst, GstBase

ANY = Gst.Caps.new_any()


class Mine(GstBase.BaseTransform):
    __gstmetadata__ = ("Mine", "Filter", "Passes on", "someone")
    __gsttemplates__ = (
        Gst.PadTemplate.new("sink", Gst.PadDirection.SINK, Gst.PadPresence.ALWAYS, ANY),
        Gst.PadTemplate.new("src", Gst.PadDirection.SRC, Gst.PadPresence.ALWAYS, ANY),
    )
    __gproperties__ = {"level": (int, "Level", "A level", 0, 255, 200, GObject.ParamFlags.READWRITE)}

    def __init__(self):
        super().__init__()
        self.level = 200

    def do_get_property(self, pspec):
        return self.level


__gstelementfactory__ = ("mine", 0, Mine)
"""


@dataclass(frozen=True)
class Fault:
    """A way to get a file wrong, and what doctor must say of it."""

    name: str
    right: str
    wrong: str
    detail: str
    fix: str


FAULTS = (
    Fault("syntax error", "class Mine(", "class Mine((", "syntax error", "correct that line"),
    Fault("import error", "ANY =", "import not_there\nANY =", "mine.py:6: ModuleNotFoundError", "'not_there'"),
    Fault("raises", "ANY =", "1 / 0\nANY =", "mine.py:6: ZeroDivisionError", "correct that line"),
    Fault(
        "no factory",
        "__gstelementfactory__ =",
        "factory =",
        "sets no __gstelementfactory__",
        "add __gstelementfactory__",
    ),
    Fault(
        "factory is a list", '("mine", 0, Mine)', '["mine", 0, Mine]', "not a tuple", "write __gstelementfactory__ ="
    ),
    Fault(
        "factory out of order",
        '("mine", 0, Mine)',
        '(0, "mine", Mine)',
        "must be a text",
        "write __gstelementfactory__ =",
    ),
    Fault("no element class", '("mine", 0, Mine)', '("mine", 0, int)', "no class of elements", "GstBase.BaseTransform"),
    Fault("name taken", '("mine"', '("videoconvert"', "taken by the plugin videoconvert", "choose another name"),
    Fault("name of ours", '("mine"', '("pyinfer"', "taken by gstinfer", "choose another name"),
    Fault("bad name", '("mine"', '("my element"', "refuses the element name", "letters, digits"),
    Fault("no metadata", "__gstmetadata__", "metadata", "has no metadata", "add __gstmetadata__"),
    Fault("no templates", "__gsttemplates__", "templates", "has no pad templates", "add __gsttemplates__"),
    Fault("bad property type", "(int, ", '("int", ', "mine.py:", "correct that property"),
    Fault("bad property range", "0, 255, 200", "0, 255, 999", "param", "correct that property"),
    Fault("init raises", "self.level = 200", "self.level = nope", "cannot be made", "correct its __init__"),
    Fault("aborts", "ANY =", "import os; os.abort()\nANY =", "SIGABRT", "gstinfer doctor --fix"),
    Fault("exits", "ANY =", "import os; os._exit(3)\nANY =", "exit code 3", "gstinfer doctor --fix"),
)


@pytest.fixture
def folder(home: Path) -> Path:
    place = home / ".gstreamer-1.0/plugins/python"
    place.mkdir(parents=True)
    return place


def rows() -> list[Row]:
    return list(plugins.check_plugin_files())


def test_a_good_file_is_in_order_and_really_is(folder: Path) -> None:
    (folder / "mine.py").write_text(GOOD)
    (row,) = rows()
    assert (row.status, row.name) == ("ok", "plugin mine.py") and "mine (Mine)" in row.detail
    assert machine.gst_inspect("--exists", "mine").returncode == 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_one_row_and_goes_away_when_corrected(folder: Path, fault: Fault) -> None:
    assert fault.right in GOOD
    file = folder / "mine.py"
    file.write_text(GOOD.replace(fault.right, fault.wrong, 1))
    (row,) = rows()
    assert row.status == "fail" and str(file) in row.detail, row
    assert fault.detail in row.detail and fault.fix in row.fix, row
    file.write_text(GOOD)
    assert [r.status for r in rows()] == ["ok"]


def test_the_files_of_setup_and_helpers_are_no_faults(folder: Path) -> None:
    install.install(folder)
    (folder / "my_helpers.py").write_text("TWO = 2\n")
    assert rows() == []


def test_an_element_of_gstinfer(folder: Path, home: Path) -> None:
    install.install(folder)
    (home / "my_models.py").write_text("def look(batch):\n    return [None] * len(batch)\n")
    spec = f"{home}/my_models.py:look"
    file = folder / "gstmine.py"
    file.write_text(f'import gstinfer\n__gstelementfactory__ = gstinfer.element("gstmine", model="{spec}")\n')
    assert [r.status for r in rows()] == ["ok"], rows()
    assert machine.gst_inspect("--exists", "gstmine").returncode == 0
    (home / "my_models.py").unlink()
    (row,) = rows()
    assert row.status == "fail" and "my_models.py" in row.detail


def test_without_setup_importing_gstinfer_fails_and_setup_is_the_fix(folder: Path) -> None:
    (folder / "gstmine.py").write_text(
        'import gstinfer\n__gstelementfactory__ = gstinfer.element("m", model="nanodet-coco")\n'
    )
    (row,) = rows()
    assert (row.status, row.fix) == ("fail", "gstinfer setup")


@pytest.mark.parametrize("name", ["json.py", "numpy.py"])
def test_a_file_that_hides_a_module(folder: Path, name: str) -> None:
    (folder / name).write_text(GOOD)
    (row,) = rows()
    assert row.status == "fail" and "hides it" in row.detail and f"my_{name}" in row.fix


def test_a_dot_in_the_name(folder: Path) -> None:
    (folder / "my.element.py").write_text(GOOD)
    (row,) = rows()
    assert row.status == "fail" and "rename it to my_element.py" in row.fix


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("element", lambda text: text.replace("class Mine", "class Other").replace("0, Mine", "0, Other")),
        (
            "GType",
            lambda text: text.replace('"mine"', '"other"').replace(
                "    __gstmeta", '    __gtype_name__ = "Same"\n    __gstmeta'
            ),
        ),
    ],
)
def test_two_files_with_one_name(folder: Path, kind: str, change: Callable[[str], str]) -> None:
    first = GOOD if kind == "element" else GOOD.replace("    __gstmeta", '    __gtype_name__ = "Same"\n    __gstmeta')
    (folder / "a_first.py").write_text(first)
    (folder / "b_second.py").write_text(change(GOOD))
    good, bad = rows()
    assert (good.status, bad.status) == ("ok", "fail")
    assert f"the {kind} name" in bad.detail and "a_first.py" in bad.detail


@pytest.mark.parametrize("place", [".gstreamer-1.0/plugins", ".gstreamer-1.0", ".local/share/gstreamer-1.0/plugins"])
def test_a_file_in_the_wrong_place_and_the_command_that_moves_it(home: Path, place: str) -> None:
    wrong = home / place
    wrong.mkdir(parents=True, exist_ok=True)
    (wrong / "mine.py").write_text(GOOD)
    (row,) = rows()
    assert row.status == "fail" and "where the loader does not look" in row.detail
    assert row.fix.startswith("mkdir -p ")
    target = Path(row.fix.split()[2])
    target.mkdir(parents=True, exist_ok=True)
    shutil.move(wrong / "mine.py", target / "mine.py")
    assert [r.status for r in rows()] == ["ok"]


def test_a_variable_that_names_the_folder_itself(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "service/python"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(GOOD)
    monkeypatch.setenv("GST_PLUGIN_PATH", str(folder))
    (row,) = rows()
    assert row.status == "fail" and f"set GST_PLUGIN_PATH={folder.parent}" in row.fix
    monkeypatch.setenv("GST_PLUGIN_PATH", str(folder.parent))
    assert [r.status for r in rows()] == ["ok"]


def test_looking_leaves_the_registry_alone(home: Path, folder: Path) -> None:
    (folder / "mine.py").write_text("import os; os.abort(); __gstelementfactory__ = 1\n")
    (registry,) = machine.registry_files()
    before = registry.read_bytes()
    assert rows()[0].status == "fail"
    assert registry.read_bytes() == before and machine.registry_files() == [registry]
