"""Fixed sizes of a file made free, without the onnx package."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gstinfer import ConfigError, as_model
from gstinfer.models.onnx_sizes import free_sizes

sys.path.insert(0, str(Path(__file__).parent))
import onnx_networks

onnx = pytest.importorskip("onnx")


def dims(value) -> list:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize(("layout", "right"), [("NCHW", [0, 2, 3]), ("NHWC", [0, 1, 2])])
def test_all_but_the_channels_become_free(tmp_path, layout, right):
    path = onnx_networks.oracle(tmp_path / "o.onnx", batch=2, layout=layout)
    before, after = onnx.load(path), onnx.load_from_string(free_sizes(path.read_bytes()))
    onnx.checker.check_model(after)
    assert [axis for axis, side in enumerate(dims(after.graph.input[0])) if isinstance(side, str)] == right
    assert 3 in dims(after.graph.input[0])
    # Rows of candidates are no pictures.
    assert dims(after.graph.output[0]) == dims(before.graph.output[0])
    del before.graph.input[:], after.graph.input[:]
    assert before == after


def test_a_network_exported_at_one_size_runs_at_another(tmp_path):
    path = onnx_networks.oracle(tmp_path / "o.onnx", batch=1, side=64)
    red = np.zeros((128, 128, 3), np.uint8)
    red[..., 0] = 255
    with pytest.raises(ConfigError, match="does not fit"):
        as_model(str(path), input_size="128", head="yolo-e2e")
    with as_model(str(path), input_size="128", head="yolo-e2e", any_size=True) as model:
        assert model.model.preprocessing.size == (128, 128)
        assert model.predict([red])[0].xyxy[0] == pytest.approx([4, 4, 52, 20], abs=0.5)


def test_centerface_is_not_held_to_the_size_of_its_file(assets):
    with as_model(str(assets / "models/centerface.onnx"), input_size="160x96") as model:
        assert model.model.preprocessing.size == (160, 96) and model.model.max_batch is None
        assert len(model.predict([np.zeros((96, 160, 3), np.uint8)] * 2)) == 2


@pytest.mark.parametrize("raw", [b"\x3a\x7f\x01", b"\x3a\xff", b"\x0b", b"\x3d\x00"])
def test_what_is_no_model_is_said(raw):
    with pytest.raises(ValueError, match=r"byte|short"):
        free_sizes(raw)
