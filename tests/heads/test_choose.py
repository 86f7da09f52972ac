"""The order of the evidence, and what is refused."""

from __future__ import annotations

import pytest

from gstinfer.errors import ConfigError, UnknownNameError
from gstinfer.heads import LAYOUTS, NAMES, TensorInfo, choose
from gstinfer.heads.base import Head

from .support import network, numbered

BIG = (640, 640)


def test_the_names_are_the_documented_ones():
    assert " ".join(sorted(NAMES)) == (
        "auto centerface classify detr gfl movenet raw semantic ssd yolo yolo-cls yolo-e2e yolo-obb yolo-pose yolo-seg "
        "yolov5 yolox"
    )
    assert LAYOUTS == ("auto", "channels-first", "channels-last")


def test_unknown_names_list_the_known():
    info = network({"output0": (1, 84, 8400)}, BIG)
    with pytest.raises(UnknownNameError, match="did you mean 'yolo'"):
        choose(info, head="yol")
    with pytest.raises(UnknownNameError, match="channels-last"):
        choose(info, layout="nhwc")


def test_the_property_beats_the_metadata():
    info = network({"output0": (1, 300, 6)}, BIG, metadata={**numbered(2), "end2end": "True"})
    assert choose(info).head.name == "yolo-e2e"
    decision = choose(info, head="detr")
    assert decision.head.name == "detr" and "was set" in decision.reasons[0]


def test_the_metadata_beats_names_and_shapes():
    info = network({"dets": (1, 300, 4), "labels": (1, 300, 7)}, metadata={"head": "raw"})
    assert choose(info).head.name == "raw"


@pytest.mark.parametrize(
    ("metadata", "shape", "expected"),
    [
        ({"task": "detect", "names": "{0: 'a', 1: 'b'}"}, (1, 6, 8400), ("yolo", "channels-first")),
        ({"task": "detect", "names": "['a', 'b']"}, (1, 8400, 6), ("yolo", "channels-last")),
        ({"task": "detect", "names": str({i: "n" for i in range(80)})}, (1, 300, 6), ("yolo-e2e", "channels-last")),
        ({**numbered(80), "args": "{'nms': True, 'batch': 1}"}, (1, 300, 6), ("yolo-e2e", "channels-last")),
        ({**numbered(80), "args": "{'nms': False}"}, (1, 84, 8400), ("yolo", "channels-first")),
        ({"task": "pose", "kpt_shape": "[17, 3]", "names": "{0: 'p'}"}, (1, 56, 8400), ("yolo-pose", "channels-first")),
        ({"task": "pose", "kpt_shape": "[17, 3]", "names": "{0: 'p'}", "end2end": "True"}, (1, 300, 57),
         ("yolo-pose", "channels-last")),
        ({"task": "obb", "names": "{0: 'a', 1: 'b'}"}, (1, 7, 8400), ("yolo-obb", "channels-first")),
        ({"task": "obb", "names": "{0: 'a', 1: 'b'}", "end2end": "True"}, (1, 300, 7), ("yolo-obb", "channels-last")),
        ({"head": "RTDETRDecoder", "task": "detect"}, (1, 300, 6), ("detr", "auto")),
        ({"description": "Ultralytics rtdetr-l model", "task": "detect", **numbered(80)}, (1, 300, 84), ("detr", "auto")),
        ({"stride": "32", "names": "['a', 'b']"}, (1, 25200, 7), ("yolov5", "channels-last")),
        ({"task": "classify", "names": "{0: 'a', 1: 'b'}"}, (1, 2), ("yolo-cls", "auto")),
        ({"head": "yolox"}, (1, 8400, 85), ("yolox", "auto")),
    ],
)  # fmt: skip
def test_metadata_settles_what_shapes_cannot(metadata, shape, expected):
    decision = choose(network({"output0": shape}, BIG, metadata=metadata))
    assert (decision.head.name, decision.layout) == expected
    assert "metadata" in decision.reasons[0]


@pytest.mark.parametrize(
    ("shape", "readings"),
    [
        ((1, 300, 6), ["yolo-e2e", "detr"]),
        ((1, 7, 8400), ["yolo", "yolo-obb"]),
        ((1, 25200, 7), ["yolov5", "yolo-obb"]),
        ((1, 8400, 85), ["yolo", "yolox", "yolov5"]),
        ((1, 84, 84), ["yolo layout=channels-first", "yolo layout=channels-last"]),
        ((1, 1000), ["classify", "raw"]),
        ((1, 21, 80, 80), ["semantic", "raw"]),
    ],
)
def test_colliding_shapes_are_refused_with_their_readings(shape, readings):
    with pytest.raises(ConfigError) as caught:
        choose(network({"out": shape}, (64, 64) if shape == (1, 84, 84) else BIG))
    for reading in readings:
        assert f"head={reading}" in str(caught.value)
    assert "set head=" in caught.value.hint


def test_labels_settle_a_collision():
    info = network({"out": (1, 7, 8400)}, BIG, labels=["a", "b", "c"])
    assert choose(info).head.name == "yolo"
    info = network({"out": (1, 7, 8400)}, BIG, labels=["a", "b"])
    assert choose(info).head.name == "yolo-obb"
    assert choose(network({"out": (1, 10)}, labels="abcdefghij")).head.name == "classify"


def test_nothing_known_names_raw():
    with pytest.raises(ConfigError, match="head=raw"):
        choose(network({"a": (1, 3, 4, 5, 6)}))


def test_outputs_are_known_by_name_in_any_order():
    for names in (("dets", "labels"), ("labels", "dets")):
        decision = choose(network({names[0]: (1, 300, 4), names[1]: (1, 300, 4)}, BIG))
        assert decision.head.name == "detr" and decision.head.boxes == "dets"
    inputs = [TensorInfo("images", (1, 3, 64, 64)), TensorInfo("orig_target_sizes", (1, 2), "int64")]
    info = network({"scores": (1, 9), "labels": (1, 9), "boxes": (1, 9, 4)}, inputs=inputs)
    assert choose(info).head.name == "detr"
    with pytest.raises(ConfigError, match="orig_target_sizes"):
        choose(network({"scores": (1, 9), "labels": (1, 9), "boxes": (1, 9, 4)}), head="detr")


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 0, 3, 2, 1, 4), (3, 4, 5, 0, 1, 2)])
def test_gfl_is_matched_by_shape_in_any_order(order):
    sizes = [(1, 2704, 80), (1, 676, 80), (1, 169, 80), (1, 2704, 44), (1, 676, 44), (1, 169, 44)]
    info = network({f"x{i}": sizes[i] for i in order}, (416, 416))
    decision = choose(info)
    assert decision.head.name == "gfl"
    assert [(level.scores, level.boxes, level.stride) for level in decision.head.levels] == [
        ("x0", "x3", 8),
        ("x1", "x4", 16),
        ("x2", "x5", 32),
    ]


def test_gfl_scores_as_wide_as_distances_need_help():
    sizes = {f"x{i}": (1, n, 32) for i, n in enumerate([1600, 400, 100, 1600, 400, 100])}
    with pytest.raises(ConfigError, match="which are scores"):
        choose(network(sizes, (320, 320)))
    named = {f"{kind}_{n}": (1, n, 32) for kind in ("cls", "dis") for n in (1600, 400, 100)}
    assert choose(network(named, (320, 320))).head.levels[0].scores == "cls_1600"


@pytest.mark.parametrize(
    ("outputs", "head", "layout", "count"),
    [
        ({"o": (1, 84, 8400)}, "yolo", "channels-first", 80),
        ({"o": (1, 25200, 85)}, "yolov5", "auto", 80),
        ({"o": (1, 8400, 85)}, "yolox", "auto", 80),
        ({"o": (1, 10)}, "classify", "auto", 10),
        ({"s": (1, 1917, 20), "b": (1, 1917, 1, 4)}, "ssd", "auto", 20),
        ({"pred_boxes": (1, 300, 4), "logits": (1, 300, 7)}, "detr", "auto", 7),
        ({"o": (1, 5, 80, 80)}, "semantic", "channels-first", 5),
        ({"o": (1, 6, 56)}, "movenet", "auto", 1),
    ],
)
def test_labels_must_fit_the_columns(outputs, head, layout, count):
    names = [str(i) for i in range(count)]
    assert choose(network(outputs, BIG, labels=names), head, layout).head.name == head
    with pytest.raises(ConfigError, match=f"{count + 3} labels do not fit"):
        choose(network(outputs, BIG, labels=[*names, "x", "y", "z"]), head, layout)


def test_a_layout_that_means_nothing_is_an_error():
    with pytest.raises(ConfigError, match="means nothing for head=classify"):
        choose(network({"o": (1, 10)}), "classify", "channels-last")


@pytest.mark.parametrize("head", [n for n in NAMES if n not in ("auto", "raw")])
def test_a_head_that_does_not_fit_says_what_it_needs(head):
    with pytest.raises(ConfigError, match=f"head={head}"):
        choose(network({"o": (1, 2, 3, 4, 5)}), head)


def test_a_head_of_yolo_finds_its_layout_in_the_grid():
    assert choose(network({"o": (1, 84, 6)}), "yolo").layout == "channels-last"
    assert choose(network({"o": (1, 6, 84)}), "yolo").layout == "channels-first"
    with pytest.raises(ConfigError, match="layout=channels-first or layout=channels-last"):
        choose(network({"o": (1, 84, 84)}), "yolo")
    with pytest.raises(ConfigError, match="layout="):
        choose(network({"o": (1, 77, 99)}), "yolo")


def test_a_decision_binds_a_head():
    decision = choose(network({"o": (1, 3)}), "raw")
    assert isinstance(decision.head, Head) and decision.layout == "auto"


def test_names_with_gaps_are_refused():
    with pytest.raises(ConfigError, match="numbered"):
        choose(network({"o": (1, 6, 84)}, metadata={"task": "detect", "names": "{1: 'a', 2: 'b'}"}))
