"""Many streams, one shared model: each result with its own frame, nothing lost, nobody waits for the silent."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.gst
MODELS = Path(__file__).with_name("models_for_tests.py")
BOXES = {"red": (4, 4, 52, 20), "green": (4, 4, 20, 52), "blue": (4, 4, 20, 20), "white": (4, 4, 52, 52)}


def branch(color: str, frames: int, number: int, extra: str, model: str, tail: str = "") -> str:
    return (
        f"videotestsrc num-buffers={frames} pattern={color} ! video/x-raw,format=RGB,width=64,height=64,framerate=30/1 ! "
        f"pyinfer name=infer{number} model={model} model-instance-id=shared stream-id={color}{number} {extra} ! "
        f"{tail}fakesink name=sink{number} sync=false async=false"
    )


def collect(description: str, count: int, timeout: float = 60) -> tuple[dict[int, list], list[str], dict]:
    """Runs branches with sinks sink0, sink1, ...: (pts, results) of each, error texts, and stats of infer0."""
    import gstinfer

    gstinfer.register()
    from gi.repository import Gst

    pipeline = Gst.parse_launch(description)
    seen: dict[int, list] = defaultdict(list)

    def probe(_pad, info, number):
        buffer = info.get_buffer()
        seen[number].append((buffer.pts, gstinfer.read(buffer)))
        return Gst.PadProbeReturn.OK

    for number in range(count):
        sink = pipeline.get_by_name(f"sink{number}")
        sink.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, probe, number)
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(int(timeout * Gst.SECOND), Gst.MessageType.EOS | Gst.MessageType.ERROR)
    errors = []
    if message is None:
        errors.append("hangs")
    elif message.type == Gst.MessageType.ERROR:
        errors.append(message.parse_error()[0].message)
    stats = pipeline.get_by_name("infer0").get_property("stats")
    stats = {stats.nth_field_name(i): stats.get_value(stats.nth_field_name(i)) for i in range(stats.n_fields())}
    pipeline.set_state(Gst.State.NULL)
    return seen, errors, stats


def check(seen, plan: list[tuple[str, int]]) -> None:
    for number, (color, frames) in enumerate(plan):
        assert len(seen[number]) == frames
        pts = [p for p, _ in seen[number]]
        assert pts == sorted(pts) and len(set(pts)) == frames
        for _, result in seen[number]:
            assert result.stream_id == f"{color}{number}"
            assert result.detections.xyxy[0].tolist() == pytest.approx(BOXES[color], abs=0.6)


@pytest.mark.parametrize("extra", ["batch-size=4", "batch-size=2", "frames-in-flight=3", "scheduling=latency"])
def test_three_sources_of_different_length_share_a_model(cases, extra):
    plan = [("red", 30), ("green", 10), ("blue", 20)]
    model = f"{cases}/models/oracle_dyn.onnx head=yolo-e2e"
    seen, errors, stats = collect(" ".join(branch(c, n, i, extra, model) for i, (c, n) in enumerate(plan)), 3)
    assert errors == []
    check(seen, plan)
    assert stats["frames"] == 60
    if "frames-in-flight" in extra or extra == "batch-size=4":
        assert stats["batch-fill"] > 1


def test_a_static_batch_is_split_and_nothing_dropped(cases):
    plan = [("red", 12), ("green", 12), ("blue", 12)]
    model = f"{cases}/models/oracle_b1.onnx head=yolo-e2e"
    seen, errors, _ = collect(" ".join(branch(c, n, i, "batch-size=3", model) for i, (c, n) in enumerate(plan)), 3)
    assert errors == []
    check(seen, plan)


def test_eight_sources_of_many_frames(cases):
    colors = ["red", "green", "blue", "white"] * 2
    plan = [(color, 200) for color in colors]
    model = f"{cases}/models/oracle_dyn.onnx head=yolo-e2e"
    seen, errors, stats = collect(" ".join(branch(c, n, i, "", model) for i, (c, n) in enumerate(plan)), 8)
    assert errors == []
    check(seen, plan)
    assert stats["frames"] == 1600


def test_ids_are_counted_per_stream():
    description = " ".join(
        f"videotestsrc num-buffers=8 ! video/x-raw,format=RGB,width=64,height=64 ! "
        f"pyinfer name=infer{i} model={MODELS}:function model-instance-id=x stream-id=s{i} ! pytrack ! "
        f"fakesink name=sink{i} async=false"
        for i in range(3)
    )
    seen, errors, _ = collect(description, 3)
    assert errors == []
    for number in range(3):
        assert seen[number][-1][1].detections.tracker_id.tolist() == [1]


@pytest.mark.parametrize("callback", ["", f"callback={MODELS}:unchanged"])
def test_a_tracker_inside_predicts_skipped_frames_in_their_turn_whatever_is_in_flight(callback):
    def run(depth: int) -> list:
        seen, errors, _ = collect(
            "videotestsrc num-buffers=40 ! video/x-raw,format=GRAY8,width=320,height=240,framerate=30/1 ! pyinfer name=infer0 "
            f"model={MODELS}:Moves tracker=bytetrack interval=2 frames-in-flight={depth} {callback} ! "
            "fakesink name=sink0 sync=false",
            1,
        )
        assert errors == []
        assert [r.inferred for _, r in seen[0]] == [n % 3 == 0 for n in range(40)]
        return [None if (d := r.detections) is None else (d.xyxy.tolist(), d.tracker_id.tolist()) for _, r in seen[0]]

    assert run(4) == run(1)


def test_elements_of_one_id_must_agree(cases):
    model = f"{cases}/models/oracle_dyn.onnx head=yolo-e2e"
    _, errors, _ = collect(
        branch("red", 5, 0, "batch-size=2", model) + " " + branch("blue", 5, 1, "batch-size=3", model), 2
    )
    assert len(errors) == 1
    assert "model-instance-id=shared is in use with other settings" in errors[0]
    assert "batch_size" in errors[0]


def test_a_stream_that_ended_does_not_hold_the_others():
    description = (
        f"videotestsrc num-buffers=3 ! video/x-raw,width=32,height=32 ! pyinfer name=infer0 model={MODELS}:function "
        "model-instance-id=e batch-timeout=5000000 ! fakesink name=sink0 async=false "
        f"videotestsrc num-buffers=40 ! video/x-raw,width=32,height=32 ! pyinfer name=infer1 model={MODELS}:function "
        "model-instance-id=e batch-timeout=5000000 ! fakesink name=sink1 async=false"
    )
    seen, errors, _ = collect(description, 2, timeout=4)
    assert errors == [] and len(seen[0]) == 3 and len(seen[1]) == 40


def test_a_tracker_inside_pyinfer_counts_per_stream_and_predicts_skipped_frames():
    description = " ".join(
        f"videotestsrc num-buffers=12 ! video/x-raw,format=RGB,width=64,height=64 ! "
        f"pyinfer name=infer{i} model={MODELS}:function model-instance-id=t stream-id=s{i} tracker=bytetrack interval=2 ! "
        f"fakesink name=sink{i} async=false"
        for i in range(3)
    )
    seen, errors, _ = collect(description, 3)
    assert errors == []
    for number in range(3):
        assert seen[number][-3][1].detections.tracker_id.tolist() == [1]
        skipped = seen[number][-2][1]
        assert skipped.inferred is False
        assert skipped.detections.tracker_id.tolist() == [1] and skipped.detections.data["predicted"][0]


def test_both_trackers_give_the_same_ids(bikes):
    def ids(chain: str) -> list[list[int]]:
        seen, errors, _ = collect(
            f"filesrc location={bikes} ! decodebin ! videoconvert ! identity eos-after=120 ! {chain} ! fakesink name=sink0",
            1,
            timeout=120,
        )
        assert errors == []
        # A frame or two more may come before the end does.
        return [result.detections.tracker_id.tolist() for _, result in seen[0]][:120]

    inside = ids("pyinfer name=infer0 model=nanodet-coco tracker=bytetrack")
    assert inside == ids("pyinfer name=infer0 model=nanodet-coco ! pytrack")
    assert len(inside) == 120 and max(max(frame, default=0) for frame in inside) > 5
