"""Decoding and results in the user's hands: head= and callback= functions, their errors, and new versions while playing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gstinfer import as_model
from gstinfer.errors import ConfigError, ModelLoadError, PredictError
from gstinfer.testing import run_pipeline

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("models_for_tests.py")
RED = "videotestsrc num-buffers={n} pattern=red ! video/x-raw,format=RGB,width={w},height={h},framerate=30/1"

DECODE = '''
import numpy as np
from gstinfer import Detections


def decode(outputs, transforms):
    results = []
    for rows, t in zip(outputs["output0"].transpose(0, 2, 1), transforms):
        rows = rows[rows[:, 4:].max(1) > 0.75]
        xyxy = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1)
        results.append(Detections(t.boxes_to_frame(xyxy), rows[:, 4:].max(1), rows[:, 4:].argmax(1)))
    return results
'''


def infer(extra: str, *, model: str = f"{MODELS}:function", n: int = 4, w: int = 64, h: int = 64) -> str:
    return f"{RED.format(n=n, w=w, h=h)} ! pyinfer name=infer model={model} {extra} ! fakesink name=sink"


@pytest.fixture()
def mine(tmp_path):
    """Writes the user's file; gives its path."""

    def write(content: str) -> Path:
        file = tmp_path / "mine.py"
        file.write_text(content)
        return file

    return write


class TestHead:
    def test_a_function_decodes_in_place_of_a_head(self, cases, mine):
        model = cases / "models/yolo_raw_nc2_nometa.onnx"
        run = run_pipeline(infer(f"head={mine(DECODE)}:decode labels=a,b", model=model, w=1280, h=720))
        assert run.error is None
        assert run.boxes() == [[[440, 260, 840, 460]]] * 4
        assert run.results[0].detections.label == ["b"]

    def test_in_python_with_thresholds_as_well(self, cases, mine):
        import numpy as np

        told = DECODE.replace("transforms)", "transforms, thresholds)", 1).replace("0.75", "thresholds.confidence")
        path = str(cases / "models/yolo_raw_nc2_nometa.onnx")
        picture = np.zeros((720, 1280, 3), np.uint8)
        for confidence, right in ((0.75, 1), (0.65, 2), (0.5, 3)):
            with as_model(path, head=f"{mine(told)}:decode", confidence_threshold=confidence) as model:
                assert len(model.predict([picture])[0]) == right

    def test_it_is_never_given_made_up_pictures(self, cases, mine):
        file = mine("CALLS = []\ndef decode(outputs, transforms):\n    raise ValueError('made up')\n")
        with as_model(str(cases / "models/yolo_raw_nc2.onnx"), head=f"{file}:decode") as model:
            import numpy as np

            with pytest.raises(PredictError, match=r"head .*mine.py:decode raised ValueError: made up") as caught:
                model.predict([np.zeros((8, 8, 3), np.uint8)])
            assert isinstance(caught.value.__cause__, ValueError)

    def test_padding_of_a_static_batch_is_hidden(self, tmp_path, mine):
        onnx = pytest.importorskip("onnx")
        from onnx import TensorProto, helper

        shape = [4, 3, 8, 8]
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        )
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
        file = mine(
            "from gstinfer import Tensors\n"
            "def decode(outputs, transforms):\n"
            "    assert len(outputs['y']) == len(transforms)\n"
            "    return [Tensors({'y': y}) for y in outputs['y']]\n"
        )
        run = run_pipeline(infer(f"head={file}:decode", model=tmp_path / "m.onnx"))
        assert run.error is None and run.results[3].tensors[0].outputs["y"].shape == (3, 8, 8)

    @pytest.mark.parametrize(
        ("head", "error", "message"),
        [
            ("nothing:decode", ModelLoadError, "the head 'nothing:decode' needs a module 'nothing'"),
            ("yolo99", ConfigError, "no head 'yolo99'"),
            ("json:__name__", ModelLoadError, "head=json:__name__ is a str, not a function"),
        ],
    )
    def test_what_is_no_function_is_said(self, cases, head, error, message):
        with pytest.raises((error, LookupError), match=message):
            as_model(str(cases / "models/yolo_raw_nc2.onnx"), head=head)

    def test_a_layout_means_nothing_then(self, cases, mine):
        with pytest.raises(ConfigError, match="layout=channels-last means nothing for head=function"):
            as_model(str(cases / "models/yolo_raw_nc2.onnx"), head=f"{mine(DECODE)}:decode", layout="channels-last")

    def test_a_file_beside_the_model_cannot_choose_code(self, cases, tmp_path, mine):
        model = tmp_path / "m.onnx"
        model.write_bytes((cases / "models/yolo_raw_nc2.onnx").read_bytes())
        (tmp_path / "m.onnx.gstinfer.toml").write_text(f'head = "{mine(DECODE)}:decode"\n')
        (tmp_path / "m.gstinfer.toml").write_text(f'head = "{mine(DECODE)}:decode"\n')
        with pytest.raises(ConfigError, match="names code"):
            as_model(str(model))

    def test_the_decoder_of_the_documentation_has_twelve_lines_at_most(self):
        assert len([text for text in DECODE.splitlines() if text.strip()]) <= 12


class TestCallback:
    def test_it_sees_each_frame_and_edits_in_place(self, mine):
        file = mine(
            "def edit(frame, results):\n"
            "    assert frame.image.size == (64, 64) and results.inferred\n"
            "    results.detections.xyxy[:, 2] = 8 + frame.sequence\n"
        )
        run = run_pipeline(infer(f"callback={file}:edit"))
        assert run.error is None
        assert run.boxes() == [[[0, 0, 8 + n, 32]] for n in range(4)]

    def test_what_it_returns_counts(self, mine):
        file = mine(
            "from dataclasses import replace\n"
            "from gstinfer import Detections\n"
            "def edit(frame, results):\n"
            "    boxes = [[1, 1, 5, 5], [0, 0, float('nan'), 9], [60, 60, 99, 99]]\n"
            "    return replace(results, detections=Detections(boxes, class_id=[3, 4, 5]))\n"
        )
        run = run_pipeline(infer(f"callback={file}:edit"))
        assert run.boxes() == [[[1, 1, 5, 5], [60, 60, 64, 64]]] * 4
        assert run.results[0].detections.label == ["3", "5"]

    def test_it_is_told_of_skipped_frames(self, mine, tmp_path):
        file = mine(
            "def edit(frame, results):\n"
            f"    open({str(tmp_path / 'seen')!r}, 'a').write(f'{{frame.sequence}}{{results.inferred}} ')\n"
        )
        assert run_pipeline(infer(f"callback={file}:edit interval=1")).eos
        assert (tmp_path / "seen").read_text() == "0True 1False 2True 3False "

    def test_on_objects_too(self, mine):
        objects = Path(__file__).with_name("objects_for_tests.py")
        file = mine("def edit(frame, results):\n    results.detections = results.detections[1:]\n")
        run = run_pipeline(
            f"{RED.format(n=2, w=64, h=64)} ! pyinfer model={objects}:Corners unique-id=1 ! "
            f"pyinfer model={objects}:Tint process-mode=2 unique-id=2 callback={file}:edit ! fakesink name=sink"
        )
        assert [[a.label for a in row] for row in run.results[0].detections.attributes] == [["red"]]

    RAISES = "def edit(frame, results):\n    if frame.sequence == 2:\n        raise KeyError('mine')\n"

    def test_its_error_stops_with_its_traceback_on_the_bus(self, mine):
        run = run_pipeline(infer(f"callback={mine(self.RAISES)}:edit"))
        assert "callback" in run.error and "KeyError: 'mine'" in run.error
        assert "raise KeyError('mine')" in run.debug and "mine.py" in run.debug
        assert len(run.results) == 2

    def test_its_error_passes_the_frame_uninferred(self, mine):
        run = run_pipeline(infer(f"callback={mine(self.RAISES)}:edit on-error=pass"))
        assert run.eos and [r.inferred for r in run.results] == [True, True, False, True]
        assert run.results[2].detections is None and run.stats["infer"]["errors"] == 1
        assert "KeyError" in run.warnings[0]

    def test_its_error_drops_the_frame(self, mine):
        run = run_pipeline(infer(f"callback={mine(self.RAISES)}:edit on-error=drop"))
        assert run.eos and len(run.results) == 3 and run.stats["infer"]["dropped"] == 1

    def test_another_result_is_refused(self, mine):
        run = run_pipeline(infer(f"callback={mine('def edit(f, r): return 3')}:edit"))
        assert "returned a int, expected FrameResults or None" in run.error

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("edit", "callback='edit' names no function"),
            ("/nowhere/x.py:edit", "the callback file '/nowhere/x.py' does not exist"),
        ],
    )
    def test_a_wrong_name_is_an_error_before_the_first_frame(self, text, message):
        run = run_pipeline(infer(f"callback={text}"))
        assert message in run.error and run.results == []


def stat(infer, name: str) -> int:
    return infer.get_property("stats").get_value(name) or 0


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


class TestReload:
    """The file changes while the pipeline plays."""

    LIVE = "videotestsrc is-live=true num-buffers={n} ! video/x-raw,format=RGB,width=1280,height=720,framerate=30/1 ! "

    def test_a_callback_changes_and_a_broken_one_does_not_count(self, mine):
        file = mine("def edit(frame, results):\n    results.detections.class_id[:] = 1\n")
        marker = file.with_name("seen")

        def work(pipeline):
            infer = pipeline.get_by_name("infer")

            def change():
                until(lambda: stat(infer, "inferred") > 3)
                file.write_text(f"open({str(marker)!r}, 'w').close()\nraise RuntimeError('half written')\n")
                until(marker.exists)
                file.write_text("def edit(frame, results):\n    results.detections.class_id[:] = 2\n")
                until(lambda: stat(infer, "reloads") > 0)
                time.sleep(0.3)
                pipeline.send_event(Gst.Event.new_eos())

            from gi.repository import Gst

            threading.Thread(target=change, daemon=True).start()

        run = run_pipeline(
            f"{self.LIVE.format(n=600)} pyinfer name=infer model={MODELS}:function callback={file}:edit reload=true "
            "on-late=wait ! fakesink name=sink",
            prepare=work,
            timeout=30,
        )
        classes = [int(r.detections.class_id[0]) for r in run.results]
        assert run.error is None and run.stats["infer"]["reloads"] == 1
        assert classes == sorted(classes) and set(classes) == {1, 2}
        assert len([w for w in run.warnings if "half written" in w]) == 1

    def test_a_head_changes(self, cases, mine):
        file = mine(DECODE)

        def work(pipeline):
            infer = pipeline.get_by_name("infer")

            def change():
                until(lambda: stat(infer, "inferred") > 3)
                file.write_text(DECODE.replace("0.75", "0.65"))
                until(lambda: stat(infer, "reloads") > 0)
                time.sleep(0.3)
                pipeline.send_event(Gst.Event.new_eos())

            from gi.repository import Gst

            threading.Thread(target=change, daemon=True).start()

        run = run_pipeline(
            f"{self.LIVE.format(n=600)} pyinfer name=infer model={cases}/models/yolo_raw_nc2_nometa.onnx "
            f"head={file}:decode reload=true on-late=wait ! fakesink name=sink",
            prepare=work,
            timeout=30,
        )
        counts = [len(r.detections) for r in run.results]
        assert run.error is None and counts == sorted(counts) and set(counts) == {1, 2}

    @pytest.mark.parametrize("reload", [True, False])
    def test_files_are_watched_only_when_asked_and_only_while_it_runs(self, mine, reload):
        def watching():
            return [t.name for t in threading.enumerate() if t.name.startswith("gstinfer:watch")]

        seen = []
        run = run_pipeline(
            infer(f"callback={mine('def edit(f, r): pass')}:edit reload={reload}"),
            on_buffer=lambda pipeline, number: seen.append(watching()),
        )
        assert run.eos and seen == [["gstinfer:watch mine.py"] if reload else []] * 4
        assert watching() == []
