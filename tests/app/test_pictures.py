"""Pictures: what Pillow reads, upright, with the colours of the file."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.gst
pytest.importorskip("gi")

from gstinfer.app.pictures import file_of, in_order, open_picture
from gstinfer.errors import HostError

RED = (255, 0, 0)


def test_names_in_order_of_their_numbers():
    assert in_order(["b.png", "a10.png", "a9.png", "1/a.png", "010.png", "9.png"]) == [
        "1/a.png", "9.png", "010.png", "a9.png", "a10.png", "b.png",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "ppm"])
def test_kinds_of_files(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (5, 3), RED).save(path, **({"lossless": True} if suffix == "webp" else {}))
    assert open_picture(str(path)).tolist() == [[list(RED)] * 5] * 3


@pytest.mark.parametrize(
    ("mode", "color", "rgb"),
    [("L", 7, (7, 7, 7)), ("RGBA", (*RED, 128), RED), ("P", 0, (0, 0, 0)), ("1", 1, (255,) * 3), ("LA", (9, 1), (9, 9, 9))],
)
def test_modes(tmp_path, mode, color, rgb):
    path = tmp_path / "a.png"
    Image.new(mode, (4, 2), color).save(path)
    assert open_picture(str(path))[0, 0].tolist() == list(rgb)


def test_16_bits_are_scaled_and_not_saturated(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.array([[0, 40000, 65535]], np.uint16)).save(path)
    assert open_picture(str(path))[0, :, 0].tolist() == [0, 156, 255]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_comes_out_upright(tmp_path, orientation, suffix):
    """The upright picture is 48x32, red at its top left, green at its top right."""
    upright = Image.new("RGB", (48, 32), (0, 0, 255))
    upright.paste(RED, (0, 0, 24, 16))
    upright.paste((0, 255, 0), (24, 0, 48, 16))
    turn = Image.Transpose
    undo = {
        2: turn.FLIP_LEFT_RIGHT, 3: turn.ROTATE_180, 4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE, 6: turn.ROTATE_90, 7: turn.TRANSVERSE, 8: turn.ROTATE_270,
    }  # fmt: skip
    stored = upright if orientation == 1 else upright.transpose(undo[orientation])
    exif = Image.Exif()
    exif[274] = orientation
    path = tmp_path / f"a.{suffix}"
    stored.save(path, exif=exif)
    found = open_picture(str(path))
    assert found.shape == (32, 48, 3)
    assert [int(found[4, x].argmax()) for x in (8, 40)] == [0, 1] and int(found[28, 8].argmax()) == 2


def test_what_cannot_be_read(tmp_path):
    whole, cut, text = tmp_path / "a.png", tmp_path / "cut.png", tmp_path / "text.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)).save(whole)
    cut.write_bytes(whole.read_bytes()[:3000])
    text.write_text("no picture")
    for path, reason in ((cut, "truncated"), (text, "no picture"), (tmp_path / "gone.png", "no such file")):
        with pytest.raises(HostError, match=reason):
            open_picture(str(path))


def test_a_frame_knows_its_file():
    files = [f"{n}.png" for n in range(100)]
    for fps in (1, 7, 25, 30):
        assert [file_of(files, fps, n * 10**9 // fps) for n in range(100)] == files
