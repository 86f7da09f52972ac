"""Models of the user's own: every form a spec may have, and what is said when one goes wrong."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gstinfer import (
    Classifications,
    ConfigError,
    Detections,
    Device,
    FrameBatch,
    Model,
    ModelLoadError,
    PredictError,
    ResultError,
    UnknownNameError,
    as_model,
    option,
)
from gstinfer.model import LoadedModel, ModelSpec

PICTURE = np.zeros((48, 64, 3), np.uint8)

TWELVE_LINES = """
from gstinfer import Detections, Model

class Bright(Model):
    labels = ["dark", "bright"]

    def load(self, device):
        self.limit = 128

    def predict(self, batch):
        bright = [int(image.mean() > self.limit) for image in batch.images("rgb")]
        return [Detections([(0, 0, 9, 9)], class_id=[b]) for b in bright]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, empty; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def one_box(batch):
    return [Detections([(1, 2, 3, 4)]) for _ in batch]


class Tuned(Model):
    threshold = option(float, 0.5, "Least confidence", minimum=0, maximum=1)

    def predict(self, batch):
        return [Detections([(0, 0, 5, 5)], [self.threshold]) for _ in batch]


class Built(Model):
    """Its constructor takes arguments and does not call the base's, which is common."""

    gain = option(float, 1.0, "Factor")

    def __init__(self, weights, size=3):
        self.weights, self.size = weights, size

    def predict(self, batch):
        return [Detections([(0, 0, self.size, self.size * self.gain)], class_id=[len(self.weights)]) for _ in batch]


class Plain:
    """No Model at all: an object with predict."""

    labels = ("zero", "one")

    def __init__(self, value=1):
        self.value, self.closed = value, 0

    def predict(self, batch):
        return [Detections([(0, 0, 5, 5)], class_id=[self.value]) for _ in batch]

    def close(self):
        self.closed += 1


def make_plain(value):
    return Plain(value)


def with_setting(batch, size=5):
    return [Detections([(0, 0, size, size)]) for _ in batch]


def test_a_model_of_twelve_lines_by_module(folder):
    assert len([line for line in TWELVE_LINES.splitlines() if line.strip()]) <= 12
    (folder / "bright_models.py").write_text(TWELVE_LINES)
    with as_model("bright_models:Bright") as model:
        found = model.predict([PICTURE, PICTURE + 255])
    assert [f.label for f in found] == [["dark"], ["bright"]]


def test_two_files_of_one_name_do_not_collide(folder):
    for name, value in (("a", 1), ("b", 2)):
        (folder / name).mkdir()
        (folder / name / "helper_of_model.py").write_text("")
        (folder / name / "net.py").write_text(
            f"from gstinfer import Detections\ndef predict(batch):\n"
            f"    return [Detections([(0, 0, {value}, {value})]) for _ in batch]\n"
        )
    models = [as_model(f"{name}/net.py:predict") for name in ("a", "b")]
    assert [m.predict(PICTURE)[0].xyxy[0, 2] for m in models] == [1, 2]


def test_a_file_is_read_anew_each_time(folder):
    path = folder / "net.py"
    for value in (3, 4):
        path.write_text(
            f"from gstinfer import Detections\ndef predict(batch):\n    return [Detections([(0, 0, {value}, 9)])]\n#{value}"
        )
        assert as_model("net.py:predict").predict(PICTURE)[0].xyxy[0, 2] == value


def test_nested_names_and_the_folder_of_the_file(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "sizes_for_net.py").write_text("SIZE = 6")
    (folder / "sub" / "net.py").write_text(
        "from gstinfer import Detections\nfrom sizes_for_net import SIZE\n"
        "class Outer:\n    class Inner:\n        def predict(self, batch):\n"
        "            return [Detections([(0, 0, SIZE, SIZE)])]\n"
    )
    assert as_model("sub/net.py:Outer.Inner").predict(PICTURE)[0].xyxy[0, 2] == 6


@pytest.mark.parametrize("target", [one_box, Plain, Plain(), Tuned, Tuned(), lambda batch: [None] * len(batch)])
def test_every_form_predicts_arrays_and_lists(target):
    model = as_model(target)
    assert len(model.predict(PICTURE)) == 1
    assert len(model.predict([PICTURE] * 3)) == 3
    assert len(model.predict(np.stack([PICTURE] * 2))) == 2
    assert model.predict([]) == []


def test_an_object_keeps_labels_and_is_closed_once():
    target = Plain()
    with as_model(target) as model:
        assert model.predict(PICTURE)[0].label == ["one"]
    model.close()
    assert target.closed == 1


def test_arguments_reach_classes_factories_options_and_functions():
    assert as_model(Tuned, threshold="0.75").predict(PICTURE)[0].confidence.tolist() == [0.75]
    built = as_model(Built, weights="abc", **{"size": 4, "gain": 2})
    assert built.predict(PICTURE)[0].xyxy[0].tolist() == [0, 0, 4, 8]
    assert built.predict(PICTURE)[0].class_id.tolist() == [3]
    assert as_model(Plain, value=0).predict(PICTURE)[0].label == ["zero"]
    assert as_model(make_plain, value=0).predict(PICTURE)[0].label == ["zero"]
    assert as_model(with_setting, size=7).predict(PICTURE)[0].xyxy[0, 2] == 7
    ready = Tuned()
    as_model(ready, threshold=0.1)
    assert ready.threshold == 0.1


@pytest.mark.parametrize(
    ("target", "known"),
    [
        (Tuned, "threshold"),
        (Built, "gain, size, weights"),
        (Plain, "value"),
        (with_setting, "size"),
        (one_box, "takes none"),
    ],
)
def test_an_unknown_argument_lists_the_known(target, known):
    arguments = {"weights": "x"} if target is Built else {}
    with pytest.raises(UnknownNameError, match=f"no (model argument|setting) 'colour'.*{known}"):
        as_model(target, colour="red", **arguments)


def test_a_bad_option_and_a_missing_argument():
    with pytest.raises(ConfigError, match=r"threshold=2\.0 is out of range"):
        as_model(Tuned, threshold=2)
    with pytest.raises(ModelLoadError, match=r"Built could not be made: TypeError: .*weights"):
        as_model(Built)
    with pytest.raises(ModelLoadError, match="abstract"):
        as_model(type("NoPredict", (Model,), {}))


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("", ConfigError, "no model is set"),
        ("yolo", UnknownNameError, r"no model 'yolo'; available: .*nanodet-coco"),
        ("nanodet-koko", UnknownNameError, "did you mean 'nanodet-coco'"),
        ("missing_module_of_mine:Net", ModelLoadError, "needs a module 'missing_module_of_mine'"),
        ("missing.py:Net", ModelLoadError, r"'missing\.py' does not exist"),
        ("net.py", ConfigError, r"write net\.py:ClassName"),
        ("json:Nothing", ModelLoadError, r"'json' has no 'Nothing'.*loads"),
        ("math:pi", ModelLoadError, "is a float, not a model"),
        ("net.pt", ConfigError, "PyTorch checkpoint"),
        ("missing.onnx", ModelLoadError, r"missing\.onnx does not exist"),
    ],
)
def test_specs_that_name_no_model(folder, spec, kind, words):
    with pytest.raises(kind, match=words):
        as_model(spec)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import a_library_not_there", "pip install the package that brings 'a_library_not_there'"),
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported(folder, source, words):
    (folder / "broken_model.py").write_text(source)
    for spec in ("broken_model:Net", "broken_model.py:Net"):
        with pytest.raises(ModelLoadError, match=f"importing 'broken_model.*{words}"):
            as_model(spec)


def test_a_module_of_the_current_folder_comes_first(folder):
    (folder / "my_first_net.py").write_text("from gstinfer import Detections\ndef net(batch): return [None]")
    sys.path.append(str(folder / "other"))
    assert as_model("my_first_net:net").predict(PICTURE) == [None]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ([None], "returned 1 results for a batch of 2"),
        ([None] * 3, "returned 3 results for a batch of 2"),
        (Detections([(0, 0, 1, 1), (0, 0, 2, 2)]), "returned a Detections, expected a list"),
        ({"boxes": 1, "scores": 2}, "returned a dict, expected a list"),
        (5, "returned a int, expected a list"),
        (["a", "b"], "a result of type .*str is not supported"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else "",
)
def test_results_of_another_kind_or_number(returned, words):
    with pytest.raises(ResultError, match=words):
        as_model(lambda batch: returned).predict([PICTURE, PICTURE])


def test_nothing_found_in_all_its_spellings():
    for nothing in (None, [None]):
        assert as_model(lambda batch, nothing=nothing: nothing).predict(PICTURE) == [None]
    (found,) = as_model(lambda batch: [Detections.empty()]).predict(PICTURE)
    assert len(found) == 0


def test_several_kinds_for_one_frame():
    both = (Detections([(0, 0, 4, 4)]), Classifications([1], [0.5]))
    ((boxes, classes),) = as_model(lambda batch: [both]).predict(PICTURE)
    assert len(boxes) == 1 and classes.label == ["1"]


def test_a_model_that_raises():
    def bad(batch):
        raise KeyError("weights")

    with pytest.raises(PredictError, match=r"bad\.predict\(\) raised KeyError: 'weights'") as caught:
        as_model(bad).predict(PICTURE)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_model_that_wants_to_end_the_program():
    def leaves(batch):
        sys.exit("not my day")

    with pytest.raises(PredictError, match=r"leaves\.predict\(\) raised SystemExit: not my day"):
        as_model(leaves).predict(PICTURE)


def test_a_load_that_raises_and_a_warmup_that_raises():
    closed = []

    class Bad(Model):
        def load(self, device):
            raise OSError("no weights here")

        def predict(self, batch):
            return [None]

        def close(self):
            closed.append(type(self).__name__)

    class Cold(Bad):
        def load(self, device):
            pass

        def warmup(self):
            raise RuntimeError("out of memory")

    with pytest.raises(ModelLoadError, match="Bad failed to load on cpu: OSError: no weights here"):
        as_model(Bad)
    assert closed == []
    with pytest.raises(ModelLoadError, match="Cold failed to load on cpu: RuntimeError: out of memory"):
        as_model(Cold)
    assert closed == ["Cold"]


def test_load_gets_the_device_and_predict_no_made_up_frames(monkeypatch):
    monkeypatch.setattr("gstinfer.gpu.device_count", lambda: 2)
    seen = []

    class Watch(Model):
        def load(self, device):
            seen.append(device)

        def predict(self, batch):
            seen.append(len(batch))
            return [None] * len(batch)

    model = as_model(Watch, device="cuda:1")
    assert seen == [Device("cuda", 1)]
    model.predict([PICTURE] * 2)
    assert seen[1:] == [2]
    with pytest.raises(ConfigError, match="unknown device 'tpu'"):
        as_model(Watch, device="tpu")


def test_not_finite_numbers_are_dropped_and_counted():
    rows = Detections([(0, 0, np.nan, 4), (0, 0, 4, 4)], [0.5, 0.9])
    model = as_model(lambda batch: [rows])
    (found,) = model.predict(PICTURE)
    assert found.confidence.tolist() == pytest.approx([0.9])
    assert model.loaded.dropped == {"non-finite": 1}


def test_classes_beyond_the_last_label_keep_their_number_and_are_counted():
    found = Detections([(0, 0, 4, 4), (0, 0, 5, 5)], [0.5, 0.9], [1, 7])
    loaded = LoadedModel(ModelSpec("x", "python", __name__, "Plain").build(), "plain", labels=["a", "b"])
    assert loaded._named(found).label == ["b", "7"]
    assert loaded._named(found.named(["x"] * 8)).label == ["x", "x"]
    loaded.labels = {1: "uno"}
    assert loaded._named(found).label == ["uno", "7"]
    assert loaded.dropped == {"unnamed": 1}


def test_boxes_are_clipped_to_the_frame():
    (found,) = as_model(lambda batch: [Detections([(-9, -9, 999, 999)])]).predict(PICTURE)
    assert found.xyxy.tolist() == [[0, 0, 64, 48]]


def test_slices_of_max_batch():
    calls = []

    class Two(Model):
        max_batch = 2

        def predict(self, batch):
            calls.append(len(batch))
            return [None] * len(batch)

    assert as_model(Two).predict([PICTURE] * 5) == [None] * 5
    assert calls == [2, 2, 1]


def test_labels_and_threshold_of_the_loaded_form_win_and_may_change():
    loaded = LoadedModel(
        ModelSpec("x", "python", __name__, "Plain").build(), "plain", labels=["a", "b"], confidence=0.5
    )
    loaded.load()
    assert loaded.predict(PICTURE)[0][0].label == ["b"]
    loaded.labels = {1: "uno"}
    assert loaded.predict(PICTURE)[0][0].label == ["uno"]
    loaded.labels = None
    assert loaded.predict(PICTURE)[0][0].label == ["one"]
    loaded.confidence = 1.01
    assert len(loaded.predict(PICTURE)[0][0]) == 0


def test_a_closed_model_is_not_loaded_again_in_silence():
    model = as_model(one_box)
    model.close()
    with pytest.raises(PredictError, match="not loaded"):
        model.predict(PICTURE)


def test_frames_keep_what_they_are():
    frames = FrameBatch.of([PICTURE]).frames
    seen = []
    as_model(lambda batch: seen.extend(batch)).predict(frames)
    assert seen == list(frames)
