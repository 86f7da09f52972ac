"""A built wheel, installed into a fresh environment, works without the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sources import ROOT, modules

pytestmark = [pytest.mark.gst, pytest.mark.timeout(400)]

CODE = """
import sys
import numpy as np
import gstinfer
from gstinfer import as_model
assert gstinfer.__file__.startswith(sys.prefix), gstinfer.__file__
model = as_model("nanodet-coco")
(found,) = model.predict([np.zeros((48, 64, 3), np.uint8)])
print(len(found))
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, check=False, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0 and "hatchling" in done.stderr:
        pytest.skip("hatchling, which builds the wheel, cannot be fetched")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    expected = {str(file.relative_to(ROOT / "src")) for file in modules().values()}
    assert expected <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"gstinfer"}
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]
    for needed in ("gstinfer/publish/gstinfer-1.schema.json", "gstinfer/data/nanodet_coco_416.onnx"):
        assert needed in names
    for text in ("LICENSE", "NOTICE", "entry_points.txt"):
        assert any(name.endswith(f"/{text}") and ".dist-info/" in name for name in names), text


def test_it_works_without_the_checkout(wheel: Path, tmp_path: Path, clean_env: dict[str, str]) -> None:
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--system-site-packages", home)
    python = home / "bin/python"
    (site,) = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").split()
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    # What the wheel needs comes from this environment; its own link to the checkout is not followed from here.
    (Path(site) / "zz_requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shell = {**clean_env, "HOME": str(tmp_path), "GST_REGISTRY": str(tmp_path / "registry.bin")}
    assert run(python, "-c", CODE, cwd=tmp_path, env=shell).strip().isdecimal()
    script = home / "bin/gstinfer"
    assert "run" in run(script, "--help", cwd=tmp_path, env=shell)
    source = "test:ball?width=64&height=48&frames=3"
    run(script, "run", source, "--model", "nanodet-coco", "--jsonl", "o.jsonl", cwd=tmp_path, env=shell)
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 3
