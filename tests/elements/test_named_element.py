"""An element of the user's own name, in a file of the plugin folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import gstinfer
from gstinfer.errors import ConfigError, UnknownNameError

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("models_for_tests.py")
GSTINFER = Path(__file__).parents[2] / ".venv/bin/gstinfer"


@pytest.fixture
def shell(clean_env, tmp_path):
    """Runs a command in a clean shell whose home holds an own element."""
    home = tmp_path / "home"
    env = {**clean_env, "HOME": str(home), "GST_REGISTRY": str(home / "registry.bin")}
    home.mkdir()
    plugins = home / ".gstreamer-1.0/plugins/python"
    plugins.mkdir(parents=True)
    (plugins / "boxplugin.py").write_text(
        "import gstinfer\n"
        f"__gstelementfactory__ = gstinfer.element('boxplugin', model='{MODELS}:Options', confidence_threshold=0.5)\n"
    )
    # Afterwards: GStreamer looks again only where the folder's time differs by a second.
    subprocess.run([GSTINFER, "setup"], env=env, capture_output=True, check=True)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run


def test_gst_inspect_shows_metadata_pads_and_the_model_s_own_options(shell):
    done = shell("gst-inspect-1.0", "boxplugin")
    assert done.returncode == 0, done.stderr
    for text in ("boxplugin model", "SINK template", "Side of the box", "Label of the box", "confidence-threshold"):
        assert text in done.stdout
    assert "NV12" in done.stdout


def test_gst_launch_sets_the_options(shell):
    done = shell(
        "gst-launch-1.0",
        "-q",
        "videotestsrc",
        "num-buffers=2",
        "!",
        "boxplugin",
        "size=33",
        "word=hello",
        "!",
        "pypublish",
        "url=stdout:",
        "!",
        "fakesink",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and '"label":"hello"' in lines[0] and "[0.0,0.0,33.0,33.0]" in lines[0]


def test_a_wrong_option_value_is_an_error_with_its_range(shell):
    done = shell("gst-launch-1.0", "videotestsrc", "num-buffers=2", "!", "boxplugin", "size=0", "!", "fakesink")
    assert done.returncode != 0 and "size=0 is out of range" in done.stderr


def test_names_and_defaults_are_checked():
    with pytest.raises(ConfigError, match="cannot be the name of an element"):
        gstinfer.element("My Element", model=f"{MODELS}:Options")
    with pytest.raises(UnknownNameError, match="no setting 'confidense_threshold'"):
        gstinfer.element("okname", model=f"{MODELS}:Options", confidense_threshold=0.5)


@pytest.mark.parametrize("name", ["interval", "stats"])
def test_an_option_with_the_name_of_another_property_is_refused(name, tmp_path):
    file = tmp_path / "clashing.py"
    file.write_text(
        "from gstinfer import Model, option\n"
        f"class Clash(Model):\n    {name} = option(int, 1, 'One')\n"
        "    confidence_threshold = option(float, 0.5, 'Shared with pyinfer')\n"
    )
    with pytest.raises(ConfigError, match=f"the option '{name}'.*my_{name}"):
        gstinfer.element("clashplugin", model=f"{file}:Clash")


def test_options_are_properties_from_code():
    name, rank, cls = gstinfer.element("codeplugin", model=f"{MODELS}:Options")
    assert (name, rank) == ("codeplugin", 0)
    element = cls()
    element.set_property("size", 12)
    assert element.get_property("size") == 12
    assert element.get_property("word") == "x"
    assert element.get_property("model").endswith(":Options")


def test_default_names_are_those_that_gst_launch_users_expect():
    from gstinfer.elements.compat import Gst

    gstinfer.register()
    for kind in ("pyinfer", "pytrack", "pyoverlay", "pypublish", "pyvlm"):
        assert Gst.ElementFactory.make(kind).get_name().rstrip("0123456789") == kind
    assert gstinfer.element("plain", model=f"{MODELS}:Options")[2]().get_name().startswith("plain")
