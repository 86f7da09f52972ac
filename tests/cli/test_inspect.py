"""gstinfer inspect: networks with the reasons, and models in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gstinfer.cli.inspect import inspect
from gstinfer.errors import ConfigError, GstInferError, UnknownNameError

MODEL = '''
from gstinfer import Model, option

class Mine(Model):
    """Finds my things."""
    labels = ["thing", "other"]
    size = option(int, 64, "Side of the input", minimum=32)
    def load(self, device):
        raise RuntimeError("inspect does not load")
    def predict(self, batch):
        return [None] * len(batch)

def plain(batch):
    """A plain function."""
    return [None] * len(batch)
'''


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(inspect, arguments)


def rows(*arguments: str) -> dict[str, tuple[str, str]]:
    done = invoke(*arguments, "--json")
    assert done.exit_code == 0, done.output + str(done.exception)
    return {row["what"]: (row["value"], row["why"]) for row in json.loads(done.output)}


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MODEL)
    return f"{tmp_path}/mine.py"


def test_a_network_tells_everything_with_the_reason() -> None:
    said = rows("nanodet-coco")
    assert said["head"][0] == "gfl" and said["color"][0] == "bgr" and said["input-size"][0] == "416x416"
    assert "input_1 [1,3,416,416] float32" in said["input"][0]
    assert said["confidence-threshold"] == ("0.4", "part of nanodet-coco")
    assert said["labels"][0].startswith("person, bicycle") and said["labels"][1].startswith("80 names")
    assert all(why for _, why in said.values())


def test_labels_are_told_as_they_are(assets: Path) -> None:
    assert rows(str(assets / "models/movenet_multipose_256x320.onnx"))["labels"] == ("person", "1 name; the file or its family")
    value, why = rows(str(assets / "models/nanodet_coco_416.onnx"))["labels"]
    assert value == "none" and "the file" not in why


def test_a_setting_shows_as_set() -> None:
    assert rows("nanodet-coco", "--set", "confidence-threshold=0.7")["confidence-threshold"] == ("0.7", "set")


def test_a_model_in_python_is_made_and_not_loaded(mine: str) -> None:
    said = rows(f"{mine}:Mine", "--set", "size=96")
    assert said["class"] == ("Mine", "Finds my things.")
    assert said["size"] == ("96", "Side of the input (int, default 64)")
    assert said["labels"] == ("thing, other", "2 names")


def test_a_plain_function(mine: str) -> None:
    assert rows(f"{mine}:plain")["class"][0] == "plain"


def test_the_table_names_what_value_and_why(mine: str) -> None:
    output = invoke(f"{mine}:Mine").output
    assert all(word in output for word in ("what", "value", "why", "Side of the input"))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("no-such-model",), UnknownNameError, "nanodet-coco"),
        (("nanodet-coco", "--set", "bogus=1"), UnknownNameError, "bogus"),
        (("nanodet-coco", "--set", "bogus"), ConfigError, "NAME=VALUE"),
        (("missing.onnx",), GstInferError, "missing.onnx"),
        (("nanodet-coco", "--device", "tpu"), ConfigError, "tpu"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], error: type[Exception], words: str) -> None:
    done = invoke(*arguments)
    assert isinstance(done.exception, error) and words in str(done.exception)


def test_an_ambiguous_network_is_refused_with_the_candidates(cases: Path) -> None:
    done = invoke(str(cases / "models/yolo_rawT_nc2.onnx"))
    assert isinstance(done.exception, GstInferError) and "head" in str(done.exception)
