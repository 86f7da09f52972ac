"""Every Python block and every command of the README and the docs is run, in the order in which it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gstinfer.doctor import install

sys.path.insert(0, str(Path(__file__).parent))
from sources import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(<!-- not run: .+? -->\n+)?```(\w+)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^(?:gst-launch-1\.0|gst-inspect-1\.0|gstinfer) .*$", re.M)
CLIP = (
    "gst-launch-1.0 -q videotestsrc num-buffers=8 ! video/x-raw,width=320,height=240 ! x264enc ! h264parse ! mp4mux"
    " ! filesink location=demo/bikes_source.mp4"
)


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    """(language, text) of the blocks that are to be run."""
    for skipped, language, text in BLOCK.findall(document.read_text()):
        if not skipped:
            yield language, text.replace("\\\n", " ")


def run(command: str | list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture
def shell(tmp_path: Path, clean_env: dict[str, str]) -> dict[str, str]:
    """A clean shell after ``gstinfer setup``, with this environment's commands in PATH."""
    home = tmp_path / "home"
    install.install(home / ".gstreamer-1.0/plugins/python")
    path = f"/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).parent}"
    return {**clean_env, "HOME": str(home), "GST_REGISTRY": str(home / "registry.bin"), "PATH": path}


@pytest.mark.gst
@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any(blocks(d))], ids=lambda d: d.name)
def test_blocks_run(document: Path, tmp_path: Path, shell: dict[str, str]) -> None:
    folder = tmp_path / "project"
    (folder / "demo").mkdir(parents=True)
    run(CLIP, folder, shell)
    for language, text in blocks(document):
        name = re.match(r"# ([\w.]+\.py)\n", text)
        if language == "python" and name:
            (folder / name[1]).write_text(text)
        elif language == "python":
            run([sys.executable, "-c", text], folder, shell)
        elif language == "sh":
            for command in COMMAND.findall(text):
                run(command, folder, shell)


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [t for t in targets if not re.match(r"\w+://", t) and not (document.parent / t).exists()]
    assert missing == []


def test_the_models_of_the_readme_are_short() -> None:
    for language, text in blocks(ROOT / "README.md"):
        if language == "python" and "(Model)" in text:
            code = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
            assert len(code) <= 12
            break
    else:
        pytest.fail("the README shows no model")


def test_every_element_and_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    commands = {f.stem for f in (ROOT / "src/gstinfer/cli").glob("*.py")} - {"__init__", "main", "console"}
    assert [c for c in commands if f"`gstinfer {c}`" not in text] == []
    elements = {f"py{f.parent.name}" for f in (ROOT / "src/gstinfer/elements").glob("*/element.py")}
    assert [e for e in elements if f"| `{e}` |" not in text] == []


def test_the_apt_packages_are_the_same_everywhere() -> None:
    from gstinfer.doctor.machine import APT_PACKAGES

    script = (ROOT / "tools/setup").read_text()
    listed = re.search(r"packages=\((.*?)\)", script, re.S)
    assert listed is not None and tuple(listed[1].split()) == APT_PACKAGES
    page = (ROOT / "docs/installation.md").read_text()
    assert [p for p in APT_PACKAGES if p not in page] == []


def test_the_architecture_page_names_every_module_and_folder() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    names = [f.name for f in (ROOT / "src/gstinfer").glob("*.py") if f.name != "__init__.py"]
    names += [f"{f.name}/" for f in (ROOT / "src/gstinfer").iterdir() if (f / "__init__.py").exists()]
    assert [n for n in names if f"`{n}" not in text] == []
