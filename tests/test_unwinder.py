"""An error inside a C++ runtime is an exception, whatever was imported first; it used to end the process."""

from __future__ import annotations

import _ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gst
ORDERS = {
    "gstinfer first": "import gstinfer; gstinfer.register()",
    "numpy, GStreamer, gstinfer": (
        "import numpy, gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst; Gst.init(None); import gstinfer"
    ),
    "GStreamer, numpy, gstinfer": (
        "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst; Gst.init(None); import numpy, gstinfer"
    ),
    "ONNX Runtime first": "import onnxruntime, gstinfer; gstinfer.register()",
}


@pytest.fixture(scope="module")
def picky(tmp_path_factory):
    """A network whose matrix product fits 64x64 inputs only, though its input says any size."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "one"], ["output0"]),
    ]
    constants = [
        numpy_helper.from_array(np.zeros((3 * 64 * 64, 6), np.float32), "weights"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
    ]
    inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["b", 3, "h", "w"])]
    outputs = [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["b", 1, 6])]
    graph = helper.make_graph(nodes, "picky", inputs, outputs, constants)
    path = tmp_path_factory.mktemp("models") / "picky.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("order", ORDERS)
def test_a_wrong_input_is_an_exception_and_not_the_end_of_the_process(picky, order):
    code = f"""{ORDERS[order]}
from gstinfer.errors import ModelLoadError
try:
    gstinfer.as_model({str(picky)!r}, head="yolo-e2e", input_size="96x64")
except ModelLoadError as error:
    print("caught", type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "caught ModelLoadError"


def test_libraries_are_looked_at_while_other_threads_load_some(tmp_path):
    smallest = min(Path(_ctypes.__file__).parent.glob("*.so"), key=lambda path: path.stat().st_size)
    for number in range(300):
        shutil.copy(smallest, tmp_path / f"lib{number}.so")
    code = f"""
import ctypes, threading
from gstinfer.unwinder import _load_order

def load():
    for number in range(300):
        ctypes.CDLL(f"{tmp_path}/lib{{number}}.so")

thread = threading.Thread(target=load)
thread.start()
while thread.is_alive():
    _load_order()
names = [name for name in _load_order() if name.startswith("lib") and name[3:-3].isdigit()]
print(names == [f"lib{{number}}.so" for number in range(300)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
