"""pyinfer through real pads: results, properties, errors, caps, flushes."""

from __future__ import annotations

import gc
import subprocess
import time
from pathlib import Path

import pytest

from gstinfer.hosts.gstbuffer import BufferStruct
from gstinfer.testing import run_pipeline

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("models_for_tests.py")
RED = "videotestsrc num-buffers={n} pattern=red ! video/x-raw,format={f},width=64,height=64,framerate=30/1"


def infer(model: str, extra: str = "", *, n: int = 5, f: str = "RGB", tail: str = "fakesink name=sink") -> str:
    model = model if ":" in model or "/" in model else f"{MODELS}:{model}"
    return f"{RED.format(n=n, f=f)} ! pyinfer name=infer model={model} {extra} ! {tail}"


def test_every_frame_gets_its_result_and_keeps_its_pts():
    run = run_pipeline(infer("MeanColor"))
    assert run.eos
    assert run.pts == [int(i * 1e9 / 30) + (1 if i % 3 == 2 else 0) for i in range(5)] or run.pts == sorted(run.pts)
    assert len(run.results) == 5
    for result in run.results:
        assert result.inferred is True
        assert result.detections.class_id.tolist() == [255]
        assert result.detections.label == ["255"]
        assert result.detections.component_id.tolist() == [15]
    assert run.stats["infer"]["inferred"] == 5


@pytest.mark.parametrize("format_", ["RGB", "BGR", "RGBA", "BGRA", "RGBx", "BGRx", "NV12", "I420"])
def test_the_colour_oracle_sees_red_in_every_format(cases, format_):
    run = run_pipeline(infer(str(cases / "models/oracle_dyn.onnx"), "head=yolo-e2e", f=format_, n=1))
    assert run.error is None
    (box,) = run.boxes()[0]
    assert box == pytest.approx([4, 4, 52, 20], abs=0.6)
    assert run.results[0].detections.class_id.tolist() == [0]


@pytest.mark.parametrize(("pad", "right"), [(114, (8, 0, 86.3, 22.3)), (0, (8, 0, 72, 8))])
def test_the_padding_colour_shows_in_the_box(cases, pad, right):
    run = run_pipeline(
        "videotestsrc num-buffers=1 pattern=red ! video/x-raw,format=RGB,width=128,height=64 ! "
        f"pyinfer model={cases}/models/oracle_dyn.onnx head=yolo-e2e pad-value={pad} ! fakesink name=sink"
    )
    assert run.boxes()[0][0] == pytest.approx(right, abs=0.6)


@pytest.mark.parametrize("depth", [1, 4])
def test_results_belong_to_their_own_frames(depth):
    run = run_pipeline(
        "videotestsrc num-buffers=40 pattern=ball motion=sweep ! video/x-raw,format=GRAY8,width=32,height=32 ! tee name=t "
        f"t. ! queue ! pyinfer model={MODELS}:MeanColor frames-in-flight={depth} ! fakesink name=sink "
        "t. ! queue ! fakesink name=plain",
        keep_data=True,
    )
    assert run.eos and len(run.pts) == 40
    means = [int(sum(data) / len(data)) for data in run.data]
    assert [r.detections.class_id[0] for r in run.results] == pytest.approx(means, abs=1)


def test_properties_from_a_structure_reach_the_model():
    run = run_pipeline(infer("Options", 'model-args="size=20, word=(string)\\"two words\\""', n=1))
    assert run.boxes() == [[[0, 0, 20, 20]]]
    assert run.results[0].detections.label == ["two words"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ('model-args="sise=20"', "no model argument 'sise'; available: size, word"),
        ('model-args="size=0"', "size=0 is out of range"),
        ("confidence-threshold=3", "confidence-threshold=3.0 is out of range"),
        ("resize=squash", "resize='squash' is not known"),
        ("device=tpu", "unknown device 'tpu'"),
        ("process-mode=3", "process-mode=3 is out of range"),
        ("head=yolo", "head does not apply to the custom model"),
        ("filter-out-class-ids=a;b", "not a list of class ids"),
        ("infer-on-gie-id=3", "needs process-mode=2"),
    ],
)
def test_a_wrong_property_is_an_error_in_words(extra, message):
    run = run_pipeline(infer("Options", extra))
    assert run.error is not None and message in run.error
    assert run.results == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no-such-model", "no model 'no-such-model'; available: nanodet-coco"),
        ("no_such_module:Model", "needs a module 'no_such_module', which is not found"),
        ("/nowhere/model.onnx", "/nowhere/model.onnx"),
        ("/nowhere/file.py:Model", "the model file '/nowhere/file.py' does not exist"),
        (f"{MODELS}:Nothing", "has no 'Nothing'"),
    ],
)
def test_a_wrong_model_is_an_error_in_words(model, message):
    run = run_pipeline(f"{RED.format(n=3, f='RGB')} ! pyinfer model={model} ! fakesink name=sink")
    assert run.error is not None and message in run.error


def test_no_model_says_how_to_set_one():
    run = run_pipeline(f"{RED.format(n=3, f='RGB')} ! pyinfer ! fakesink name=sink")
    assert "no model is set" in run.error and "model=nanodet-coco" in run.error


@pytest.mark.parametrize("model", ["nanodet-coco", f"{MODELS}:MeanColor"])
def test_cuda_without_a_gpu_is_an_error_and_never_a_silent_cpu_run(model):
    from gstinfer import gpu

    if gpu.device_count():
        pytest.skip("this machine has an NVIDIA GPU")
    run = run_pipeline(f"{RED.format(n=3, f='RGB')} ! pyinfer model={model} device=cuda ! fakesink name=sink")
    assert run.error is not None and "no NVIDIA GPU" in run.error and "device=cuda:0" in run.error
    assert run.results == []


class TestFailingModel:
    """A model that raises on its third frame."""

    def test_stop_posts_type_and_text_within_a_second(self):
        began = time.monotonic()
        run = run_pipeline(infer("RaisesOnThird"))
        assert time.monotonic() - began < 5
        assert "ValueError: the third frame is cursed" in run.error
        assert "Traceback" in run.debug and "models_for_tests.py" in run.debug
        assert len(run.results) == 2

    def test_pass_goes_on_uninferred(self):
        run = run_pipeline(infer("RaisesOnThird", "on-error=pass"))
        assert run.eos
        assert [r.inferred for r in run.results] == [True, True, False, True, True]
        assert run.results[2].detections is None
        assert any("cursed" in w for w in run.warnings)
        assert run.stats["infer"]["errors"] == 1

    @pytest.mark.parametrize("depth", [1, 3])
    def test_drop_leaves_the_frame_out(self, depth):
        run = run_pipeline(infer("RaisesOnThird", f"on-error=drop frames-in-flight={depth}"))
        assert run.eos and len(run.results) == 4
        assert run.stats["infer"]["dropped"] == 1

    def test_gst_launch_exits_non_zero(self, clean_env, tmp_path):
        subprocess.run(
            [Path(__file__).parents[2] / ".venv/bin/gstinfer", "setup"], env=clean_env, capture_output=True, check=True
        )
        done = subprocess.run(
            ["gst-launch-1.0", *infer("RaisesOnThird").split()],
            env=clean_env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0
        assert "the third frame is cursed" in done.stderr + done.stdout


def test_wrong_number_of_results_says_both_numbers():
    run = run_pipeline(infer("WrongCount"))
    assert "returned 0 results for a batch of 1" in run.error and "one result per frame" in run.error


def test_not_a_number_is_dropped_and_counted():
    run = run_pipeline(infer("NotANumber", n=2))
    assert run.boxes() == [[[0, 0, 5, 5]]] * 2
    assert run.stats["infer"]["objects-non-finite"] == 2


def test_a_tee_s_other_branch_stays_as_it_was():
    run = run_pipeline(
        f"{RED.format(n=10, f='I420')} ! tee name=t t. ! queue ! pyinfer model={MODELS}:function ! pyoverlay ! fakesink "
        "t. ! queue ! fakesink name=sink",
        keep_data=True,
    )
    assert run.eos and len(run.data) == 10
    assert set(run.results) == {None}
    plain = run_pipeline(f"{RED.format(n=10, f='I420')} ! fakesink name=sink", keep_data=True)
    assert run.data == plain.data


def test_interval_skips_and_says_so():
    run = run_pipeline(infer("MeanColor", "interval=2", n=7))
    assert [r.inferred for r in run.results] == [True, False, False, True, False, False, True]


def test_two_elements_add_their_objects_under_their_own_ids():
    run = run_pipeline(
        f"{RED.format(n=2, f='RGB')} ! pyinfer model={MODELS}:function unique-id=3 ! "
        f"pyinfer model={MODELS}:MeanColor unique-id=4 filter-out-class-ids=7 ! fakesink name=sink"
    )
    assert [r.detections.component_id.tolist() for r in run.results] == [[3, 4], [3, 4]]


def test_excluded_classes_are_left_out():
    run = run_pipeline(infer("MeanColor", 'filter-out-class-ids="3;255"', n=1))
    assert run.boxes() == [[]]


def test_caps_change_in_mid_stream_moves_the_results_to_the_new_size():
    run = run_pipeline(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=48 ! c.sink_0 "
        "videotestsrc num-buffers=3 ! video/x-raw,format=I420,width=32,height=16 ! c.sink_1 "
        f"concat name=c ! pyinfer model={MODELS}:function frames-in-flight=3 ! fakesink name=sink"
    )
    assert run.boxes() == [[[0, 0, 32, 24]]] * 3 + [[[0, 0, 16, 8]]] * 3


def test_a_model_is_swapped_while_playing_without_losing_a_frame():
    def at(pipeline, number: int) -> None:
        if number == 20:
            pipeline.get_by_name("infer").set_property("model-args", "word=two")
            pipeline.get_by_name("infer").set_property("model", f"{MODELS}:Number")
        time.sleep(0.005)

    run = run_pipeline(infer("Number", n=120), on_buffer=at)
    words = [r.detections.label[0] for r in run.results]
    assert run.eos and len(words) == 120
    assert words == ["one"] * words.count("one") + ["two"] * words.count("two") and words.count("two") > 20
    assert "gstinfer-model-updated" in run.messages


def test_a_failed_swap_keeps_the_old_model_and_warns_with_the_reason():
    def at(pipeline, number: int) -> None:
        if number == 10:
            pipeline.get_by_name("infer").set_property("model", "/nowhere/else.py:Model")
        if number == 60:
            assert pipeline.get_by_name("infer").get_property("model").endswith(":Number")
        time.sleep(0.005)

    run = run_pipeline(infer("Number", n=70), on_buffer=at)
    assert run.eos and {r.detections.label[0] for r in run.results} == {"one"}
    assert any("/nowhere/else.py" in w for w in run.warnings)


def test_a_slow_model_on_a_live_source_skips_and_keeps_every_picture():
    began = time.monotonic()
    run = run_pipeline(
        "videotestsrc num-buffers=60 is-live=true ! video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1 ! "
        f"pyinfer name=infer model={MODELS}:Slow ! fakesink name=sink sync=true"
    )
    assert len(run.pts) == 60
    assert time.monotonic() - began < 4
    kinds = [r.inferred for r in run.results]
    assert 7 <= kinds.count(True) <= 30
    assert run.stats["infer"]["late-skipped"] == kinds.count(False)


def test_a_live_source_can_wait_for_every_result():
    run = run_pipeline(
        "videotestsrc num-buffers=15 is-live=true ! video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1 ! "
        f"pyinfer name=infer model={MODELS}:Slow on-late=wait ! fakesink name=sink"
    )
    assert [r.inferred for r in run.results] == [True] * 15
    # 15 frames of 33 ms through a model of 100 ms: the last is about a second old.
    assert run.stats["infer"]["lag"] > 0.5
    assert run.stats["infer"]["late-skipped"] == 0


def test_leaving_playing_wakes_a_waiting_frame():
    began = []

    def stop(pipeline, number: int) -> None:
        began.append(number)

    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(infer("Slow", 'model-args="seconds=0.3"', n=1000))
    pipeline.set_state(Gst.State.PLAYING)
    time.sleep(0.5)
    started = time.monotonic()
    pipeline.set_state(Gst.State.NULL)
    assert time.monotonic() - started < 2


def test_a_model_that_hangs_is_noticed_with_stacks():
    debugs = []

    def watch(pipeline) -> None:
        bus = pipeline.get_bus()
        bus.enable_sync_message_emission()
        bus.connect("sync-message::warning", lambda _, message: debugs.append(message.parse_warning()[1]))

    run = run_pipeline(infer("Hangs", "watchdog=0.3"), prepare=watch)
    assert run.eos and len(run.warnings) == 1
    assert "Hangs has worked on one batch for more than 0.3 s" in run.warnings[0]
    assert "models_for_tests.py" in debugs[0] and "time.sleep(1)" in debugs[0]


def test_stats_come_over_the_bus():
    run = run_pipeline(infer("Slow", "stats-interval=0.1", n=6))
    assert run.messages.count("gstinfer-stats") >= 3


def test_a_model_file_with_new_content_is_loaded(tmp_path):
    path = tmp_path / "live.py"
    path.write_text(MODELS.read_text())

    def at(pipeline, number: int) -> None:
        if number == 10:
            path.write_text(MODELS.read_text().replace('"one", "Label"', '"new", "Label"'))
        time.sleep(0.02)

    run = run_pipeline(infer(f"{path}:Number", "model-watch=true", n=150), on_buffer=at)
    words = [r.detections.label[0] for r in run.results]
    assert words[0] == "one" and words[-1] == "new" and words == sorted(words, reverse=True)


def test_a_live_sink_waits_for_the_model_s_time_and_shows_every_picture():
    run = run_pipeline(
        "videotestsrc num-buffers=60 is-live=true ! video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1 ! "
        f"pyinfer name=infer model={MODELS}:Slow ! queue ! fakesink name=sink sync=true max-lateness=20000000 qos=true"
    )
    assert len(run.pts) == 60
    inferred = [r.inferred for r in run.results]
    assert 7 <= inferred.count(True) <= 30


def test_regions_of_interest_are_written_on_request_and_not_otherwise():
    from gstinfer.hosts.metas import roi

    counts = {}
    for mode in ("carrier", "roi"):

        def prepare(pipeline, mode=mode) -> None:
            from gi.repository import Gst

            def probe(_pad, info):
                counts[mode] = len(list(roi.read(info.get_buffer())))
                return Gst.PadProbeReturn.OK

            pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe)

        assert run_pipeline(infer("function", f"write-meta={mode}", n=1), prepare=prepare).eos
    assert counts["roi"] == counts["carrier"] + 1


@pytest.mark.parametrize("depth", [1, 8])
def test_the_age_of_live_results_is_bounded(depth):
    ages: list[float] = []

    def note(pipeline, number: int) -> None:
        now = pipeline.get_clock().get_time() - pipeline.get_base_time()
        ages.append(now / 1e9 - (number - 1) / 30)

    run = run_pipeline(
        "videotestsrc num-buffers=90 is-live=true ! video/x-raw,format=GRAY8,width=32,height=32,framerate=30/1 ! "
        f"pyinfer name=infer model={MODELS}:Slow frames-in-flight={depth} ! queue ! fakesink name=sink sync=false",
        on_buffer=note,
    )
    assert len(run.pts) == 90
    inferred = sorted(age for age, result in zip(ages, run.results) if result.inferred)
    assert len(inferred) >= 15
    # Three times the model's 0.1 s and one frame, and half a second for a machine that does other things as well.
    assert inferred[int(len(inferred) * 0.95)] <= 0.334 + 0.5
    print(f"95th percentile of a result's age: {inferred[int(len(inferred) * 0.95)]:.3f} s")


@pytest.mark.parametrize("extra", ["", "frames-in-flight=3", "interval=1", "tracker=bytetrack"])
def test_nobody_holds_a_buffer_that_has_left(extra):
    """It would be copied before the next element writes, and its memory come back only with the garbage."""
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    def references(element: str) -> set[int]:
        found = []

        def look(pad, info):
            found.append(BufferStruct.from_address(hash(info.get_buffer())).refcount)
            return Gst.PadProbeReturn.OK

        pipeline = Gst.parse_launch(
            f"videotestsrc num-buffers=30 ! video/x-raw,format=GRAY8,width=32,height=32 ! {element} ! fakesink name=sink "
            "sync=false enable-last-sample=false"
        )
        pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, look)
        pipeline.set_state(Gst.State.PLAYING)
        pipeline.get_bus().timed_pop_filtered(20 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
        pipeline.set_state(Gst.State.NULL)
        assert len(found) == 30
        return set(found)

    gc.disable()
    try:
        assert references(f"pyinfer model={MODELS}:Number {extra}") == references("identity")
    finally:
        gc.enable()
