"""Caches of those who have no home; and the whole job of such a user."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gstinfer.app.caches import cache_home, use_temporary_caches

NOBODY = 65534


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_home_that_can_be_written_is_left_alone(tmp_path):
    environment = {"HOME": str(tmp_path)}
    assert cache_home(environment) == tmp_path / ".cache"
    assert use_temporary_caches(environment) is None and environment == {"HOME": str(tmp_path)}


@pytest.mark.parametrize(
    "environment", [{"HOME": "/proc/nothing"}, {"HOME": "/dev/null"}, {"XDG_CACHE_HOME": "/proc/x", "HOME": "/tmp"}]
)
def test_without_one_they_go_to_a_folder_of_the_users_own(environment, temporary):
    folder = use_temporary_caches(environment)
    assert folder == temporary / f"gstinfer-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert environment["XDG_CACHE_HOME"] == str(folder)
    assert Path(environment["GST_REGISTRY"]).parent == folder


def test_what_the_user_says_stays(temporary):
    environment = {"HOME": "/proc/nothing", "GST_REGISTRY": "/x/registry.bin"}
    use_temporary_caches(environment)
    assert environment["GST_REGISTRY"] == "/x/registry.bin"


def test_a_folder_that_somebody_else_prepared_is_not_used(temporary):
    (temporary / f"gstinfer-{os.getuid()}").symlink_to(temporary)
    folder = use_temporary_caches({"HOME": "/proc/nothing"})
    assert folder is not None and folder.name.startswith("gstinfer-") and folder.name != f"gstinfer-{os.getuid()}"


@pytest.mark.gst
def test_a_job_without_home_display_terminal_and_rights(tmp_path):
    """As nobody, in a folder that cannot be written, with nothing in the environment."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    check = [sys.executable, "-c", "import gstinfer"]
    try:
        subprocess.run(check, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, check=True)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("the environment cannot be read by others")
    work, out, place = tmp_path / "work", tmp_path / "out", tmp_path / "tmp"
    for folder in (work, out, place):
        folder.mkdir()
    work.chmod(0o555)
    os.chown(out, NOBODY, NOBODY)
    place.chmod(0o1777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and ("pytest" in parent.name or "popen" in parent.name):
            parent.chmod(0o755)
    tmp_path.chmod(0o755)
    source = "test:ball?width=64&height=48&frames=5"
    command = [sys.executable, "-m", "gstinfer.cli.main", "run", source, "--model", "nanodet-coco"]
    done = subprocess.run(
        [*command, "--output", str(out / "o.mp4"), "--jsonl", str(out / "o.jsonl")],
        user=NOBODY, group=NOBODY, extra_groups=[], cwd=work, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(place)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"caches go to {place}/gstinfer-{NOBODY}" in done.stderr
    assert (place / f"gstinfer-{NOBODY}/gstreamer-registry.bin").exists()
    assert len((out / "o.jsonl").read_text().splitlines()) == 5 and (out / "o.mp4").stat().st_size > 500
    assert list(work.iterdir()) == []
