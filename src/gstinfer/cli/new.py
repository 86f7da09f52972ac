"""``gstinfer new``: a model of one's own that runs at once, with its test, and with an element of its own name on request."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from gstinfer.doctor import install
from gstinfer.errors import ConfigError

__all__ = ["new"]

MODEL = '''"""{title}: a model for GStreamer."""
import numpy as np
from gstinfer import Detections, Model, option


class {cls}(Model):
    """Boxes the bright part of a picture; put your network in its place."""

    labels = ("bright",)
    level = option(int, 200, "Least brightness of a pixel", minimum=0, maximum=255)

    def predict(self, batch):
        return [self.look(picture) for picture in batch.images("rgb")]

    def look(self, picture):
        rows, columns = np.nonzero(picture.mean(axis=2) >= self.level)
        if not len(rows):
            return None
        box = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        return Detections(xyxy=[box], confidence=[1.0], class_id=[0])
'''

TEST = '''"""Tests of {title}; run them with pytest."""
from pathlib import Path

import numpy as np
from gstinfer import as_model

MODEL = f"{{Path(__file__).parent / '{module}.py'}}:{cls}"


def test_a_bright_square_is_found():
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[10:20, 30:50] = 255
    (found,) = as_model(MODEL).predict([picture])
    assert found.xyxy.tolist() == [[30, 10, 50, 20]]


def test_nothing_is_found_in_the_dark():
    assert as_model(MODEL).predict([np.zeros((48, 64, 3), np.uint8)]) == [None]


def test_the_level_is_a_setting():
    assert as_model(MODEL, level=100).predict([np.full((48, 64, 3), 120, np.uint8)])[0] is not None
'''

ELEMENT = '''"""The model {title} as the GStreamer element {element}."""
import gstinfer

__gstelementfactory__ = gstinfer.element("{element}", model={spec!r})
'''

HIDING = sys.stdlib_module_names | {"gstinfer", "gi", "numpy", "cv2", "torch", "onnxruntime", "scipy", "click", "rich"}
TAKEN = {"pyinfer", "pytrack", "pyoverlay", "pypublish"}


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--element", is_flag=True, help="Also an element of that name, in your plugin folder.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Put the element in FOLDER/python/ instead, for GST_PLUGIN_PATH=FOLDER.",
)
def new(name: str, element: bool, directory: Path | None) -> None:
    """Writes a model NAME.py that runs as it is, and its test, into the current folder."""
    module = name.lower().replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module):
        raise ConfigError(
            f"{name!r} cannot be the name of a model", hint="use letters, digits, - and _, a letter first"
        )
    if module in HIDING or module in TAKEN:
        raise ConfigError(f"{name!r} is the name of something else already", hint=f"try my-{name}")
    cls = "".join(part.capitalize() for part in module.split("_"))
    here = Path.cwd()
    title = module.replace("_", " ").strip().capitalize()
    words = {"title": title, "cls": cls, "module": module, "element": module.replace("_", "")}
    words["spec"] = f"{here / module}.py:{cls}"
    files = {here / f"{module}.py": MODEL, here / f"test_{module}.py": TEST}
    folder = install.folder_for(directory) if element else None
    if folder is not None:
        files[folder / f"{module}_element.py"] = ELEMENT
    for file in files:
        if file.exists():
            raise ConfigError(f"{file} exists, and nothing was written", hint="choose another name or delete it")
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(**{k: v for k, v in words.items()}))
        except OSError as error:
            raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
        click.echo(f"wrote {file}")
    if folder is not None:
        install.announce(folder)
    variable = f"GST_PLUGIN_PATH={directory.absolute()} " if directory and element else ""
    step = words["element"] if element else f"pyinfer model={module}.py:{cls}"
    click.echo(
        f"try it:   {variable}gst-launch-1.0 videotestsrc num-buffers=5 ! {step} ! pypublish url=stdout: ! fakesink"
    )
    click.echo(f"test it:  {sys.executable} -m pytest test_{module}.py")
