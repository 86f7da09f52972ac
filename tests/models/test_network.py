"""NetworkModel: what is decided, what is refused, and that a frame's content shows in its box."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_networks import METADATA, constant, oracle, sized

from gstinfer import ConfigError, Image, ModelLoadError, PredictError, UnknownNameError, as_model
from gstinfer.image import Device
from gstinfer.models.network import NetworkModel
from gstinfer.models.onnx import onnx_model

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)
BOXES = {
    RED: ((4, 4, 52, 20), "black"),
    GREEN: ((4, 4, 20, 52), "black"),
    BLUE: ((4, 4, 20, 20), "blue"),
    WHITE: ((4, 4, 52, 52), "blue"),
    BLACK: ((4, 4, 20, 20), "black"),
}


def plain(color, size=(64, 64), name="RGB"):
    """A picture of one colour in any format."""
    import cv2

    width, height = size
    rgb = np.full((height, width, 3), color, np.uint8)
    if name in ("I420", "NV12"):
        memory = cv2.cvtColor(rgb, cv2.COLOR_RGB2YUV_I420)
        quarter = height // 2, width // 2
        u, v = memory[height:].reshape(2, *quarter)
        chroma = (u, v) if name == "I420" else (np.stack([u, v], -1),)
        return Image(name, (memory[:height], *chroma), width, height)
    if name == "GRAY8":
        return Image(name, (rgb[..., 0].copy(),), width, height)
    order = [name.index(c) if c in name else 0 for c in "RGB"]
    plane = np.full((height, width, len(name)), 255, np.uint8)
    for channel, position in enumerate(order):
        plane[..., position] = rgb[..., channel]
    return Image(name, (plane,), width, height)


def shown(model, pictures):
    """Box and label of the one object in every picture."""
    found = model.predict(pictures)
    assert all(len(item) == 1 for item in found)
    return [(item.xyxy[0], item.label[0]) for item in found]


@pytest.mark.parametrize("color", BOXES)
@pytest.mark.parametrize("name", ["RGB", "BGR", "RGBA", "BGRx", "BGRA", "RGBx", "I420", "NV12"])
def test_the_content_of_a_frame_shows_in_its_box(tmp_path, name, color):
    model = as_model(str(oracle(tmp_path / "o.onnx")))
    (box, label), want = shown(model, [plain(color, name=name)])[0], BOXES[color]
    assert np.abs(box - want[0]).max() <= 0.5
    assert label == want[1]


@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("name", ["RGB", "BGR", "RGBA", "BGRx", "I420"])
def test_padding_colour_counts(tmp_path, name, quality):
    path = str(oracle(tmp_path / "o.onnx"))
    picture = plain(RED, (128, 64), name)
    for pad, want in ((114, (8, 0, 86.3, 22.3)), (0, (8, 0, 72, 8))):
        model = as_model(path, pad_value=pad, preprocess=quality)
        assert np.abs(shown(model, [picture])[0][0] - want).max() <= 0.5, pad


def test_static_batch_is_split_and_dynamic_batch_is_not(tmp_path):
    pictures = [plain(c) for c in (RED, GREEN, BLUE, WHITE, BLACK)]
    for batch, most in ((1, 1), (2, 2), ("batch", None)):
        model = as_model(str(oracle(tmp_path / "o.onnx", batch=batch)))
        assert model.model.max_batch == most
        for (box, label), color in zip(shown(model, pictures), BOXES):
            assert np.abs(box - BOXES[color][0]).max() <= 0.5 and label == BOXES[color][1]
        # A smaller batch after a larger one must not see the rows of the larger one.
        assert np.abs(shown(model, [plain(GREEN)])[0][0] - BOXES[GREEN][0]).max() <= 0.5


@pytest.mark.parametrize("options", [
    {"dtype": "float16"}, {"layout": "NHWC"}, {"dtype": "uint8", "full": 255.0}, {"dtype": "int32", "full": 255.0},
    {"dtype": "uint8", "full": 255.0, "layout": "NHWC"}, {"side": "size"}, {"dtype": "float16", "layout": "NHWC"},
], ids=str)  # fmt: skip
def test_inputs_of_every_kind(tmp_path, options):
    model = as_model(str(oracle(tmp_path / "o.onnx", **options)))
    spec = model.model.preprocessing
    assert (spec.dtype, spec.layout) == (options.get("dtype", "float32"), options.get("layout", "NCHW"))
    assert spec.size == (64, 64)
    for color, (want, label) in BOXES.items():
        (box, got), *_ = shown(model, [plain(color)])
        assert np.abs(box - want).max() <= 0.5 and got == label


def test_a_gray_network_sees_gray(tmp_path):
    model = as_model(str(oracle(tmp_path / "o.onnx", channels=1)))
    assert model.model.preprocessing.color == "gray"
    for picture in (plain(WHITE), plain(WHITE, name="GRAY8"), plain(WHITE, name="I420")):
        assert np.abs(shown(model, [picture])[0][0] - (4, 4, 52, 52)).max() <= 0.5
    luma = 0.299 * 32
    assert np.abs(shown(model, [plain(RED)])[0][0] - (4, 4, 20 + luma, 20 + luma)).max() <= 0.5
    with pytest.raises(ConfigError, match="one channel"):
        as_model(str(oracle(tmp_path / "o.onnx", channels=1)), color="bgr")


def test_a_colour_network_takes_gray_frames(tmp_path):
    model = as_model(str(oracle(tmp_path / "o.onnx")))
    assert np.abs(shown(model, [plain(WHITE, name="GRAY8")])[0][0] - (4, 4, 52, 52)).max() <= 0.5


def test_overrides_change_what_the_network_sees(tmp_path):
    path = str(oracle(tmp_path / "o.onnx"))
    assert np.abs(shown(as_model(path, color="bgr"), [plain(RED)])[0][0] - (4, 4, 20, 20)).max() <= 0.5
    assert np.abs(shown(as_model(path, scale=0.5 / 255), [plain(RED)])[0][0] - (4, 4, 36, 20)).max() <= 0.5
    moved = as_model(path, mean="0.5,0.5,0.5", std="2")
    assert np.abs(shown(moved, [plain(WHITE)])[0][0] - (4, 4, 28, 28)).max() <= 0.5
    stretched = as_model(path, resize="stretch")
    assert np.abs(shown(stretched, [plain(RED, (128, 64))])[0][0] - (8, 4, 104, 20)).max() <= 0.5
    corner = as_model(path, resize="letterbox-topleft", pad_value=0)
    # 0.5 of the picture is red: x2 = (20 + 16) * 2, and no padding is taken off.
    assert np.abs(shown(corner, [plain(RED, (128, 64))])[0][0] - (8, 8, 72, 40)).max() <= 0.5


def test_a_second_input_of_sizes_is_fed(tmp_path):
    model = as_model(str(sized(tmp_path / "d.onnx")))
    (found,) = model.predict([plain(RED, (128, 96))])
    # The network is stretched over the frame: its middle half is the frame's middle half.
    assert np.abs(found.xyxy[0] - (32, 24, 96, 72)).max() <= 0.5
    assert found.class_id.tolist() == [1]


def test_an_unknown_second_input_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="further input mystery"):
        as_model(str(sized(tmp_path / "d.onnx", name="mystery")), head="raw")


def test_shapes_the_file_does_not_say_are_measured(tmp_path):
    """Without it ``[1,6,84]`` with two names could not be told from its transpose."""
    output = np.zeros((1, 6, 84), np.float32)
    output[0, :4, 0], output[0, 5, 0] = (32, 32, 20, 10), 0.8
    names = {"task": "detect", "names": "{0: 'a', 1: 'b'}"}
    path = constant(tmp_path / "c.onnx", output, names, said=["n", "columns", "count"])
    (found,) = as_model(str(path)).predict([plain(RED)])
    assert found.label == ["b"] and np.abs(found.xyxy[0] - (22, 27, 42, 37)).max() < 0.1


def test_labels_from_a_file_whose_last_line_has_no_newline(tmp_path):
    path, names = oracle(tmp_path / "o.onnx"), tmp_path / "names.txt"
    for content in ("one\ntwo\nthree\nfour", "one\ntwo\nthree\nfour\n", "\ufeffone\r\ntwo\r\nthree\r\nfour\r\n\r\n"):
        names.write_text(content, encoding="utf-8", newline="")
        assert [label for _, label in shown(as_model(str(path), labels=str(names)), [plain(RED), plain(BLUE)])] == [
            "one",
            "four",
        ]


def test_too_few_labels_say_both_counts(tmp_path):
    output = np.zeros((1, 6, 84), np.float32)
    path = str(constant(tmp_path / "c.onnx", output, {"task": "detect"}))
    with pytest.raises(ConfigError, match=r"\b1 labels?\b.*\b2 classes"):
        as_model(path, labels="person")
    assert as_model(path, labels="person,car").model.labels == ("person", "car")
    with pytest.raises(ConfigError, match="does not exist"):
        as_model(path, labels=str(tmp_path / "missing.txt"))


def test_threshold_and_labels_change_while_it_runs(tmp_path):
    model = as_model(str(oracle(tmp_path / "o.onnx")))
    assert shown(model, [plain(BLUE)])[0][1] == "blue"
    model.model.labels = "k,l,m,n"
    assert shown(model, [plain(BLUE)])[0][1] == "n"
    model.model.labels = {3: "sky"}
    assert shown(model, [plain(BLUE)])[0][1] == "sky"
    model.model.labels = None
    assert shown(model, [plain(BLUE)])[0][1] == "blue"
    model.model.confidence_threshold = 0.95
    assert [len(item or ()) for item in model.predict([plain(BLUE)])] == [0]
    model.model.confidence_threshold = None
    assert len(shown(model, [plain(BLUE)])) == 1


def test_new_labels_that_do_not_fit_keep_the_old(tmp_path):
    output = np.zeros((1, 6, 84), np.float32)
    output[0, :4, 0], output[0, 5, 0] = (32, 32, 20, 10), 0.8
    model = as_model(str(constant(tmp_path / "c.onnx", output, {"task": "detect"})), labels="a,b")
    with pytest.raises(ConfigError):
        model.model.labels = "a"
    assert shown(model, [plain(RED)])[0][1] == "b"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_size": "640"}, "input-size=640x640 does not fit"),
        ({"input_size": "wide"}, "input-size='wide' is no size"),
        ({"mean": "1,2"}, "not one number and not three"),
        ({"resize": "cover"}, "resize='cover' is not known"),
        ({"confidence_threshold": 1.5}, "out of range"),
        ({"pad_value": 300}, "out of range"),
        ({"head": "yolo9000"}, "no head 'yolo9000'"),
        ({"confidense": 0.5}, "no setting 'confidense'.*did you mean 'confidence-threshold'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        as_model(str(oracle(tmp_path / "o.onnx")), **options)


def test_a_network_that_takes_no_pictures_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected pictures"):
        as_model(str(constant(tmp_path / "o.onnx", np.zeros((1, 1, 6)), METADATA, channels=4)))
    with pytest.raises(ConfigError, match="float64"):
        as_model(str(oracle(tmp_path / "o.onnx", dtype="float64")))


def test_a_wrong_input_size_shows_at_load(tmp_path):
    """A dynamic network whose weights want one size fails when it is warmed, not at the first frame."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((3 * 64 * 64, 6), np.float32), "weights")
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "one"], ["output0"]),
    ]
    graph = helper.make_graph(
        nodes, "t",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["b", 3, "h", "w"])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["b", 1, 6])],
        [weights, numpy_helper.from_array(np.array([1], np.int64), "one")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    assert as_model(str(path), head="yolo-e2e", input_size=64).model.preprocessing.size == (64, 64)
    with pytest.raises(ModelLoadError, match=r"m\.onnx"):
        as_model(str(path), head="yolo-e2e", input_size="96x64")


def test_a_sidecar_fills_in_and_options_override_it(tmp_path):
    output = np.zeros((1, 84, 6), np.float32)
    output[0, 0] = (32, 32, 20, 10, 0, 0.8)
    path = str(constant(tmp_path / "c.onnx", output))
    with pytest.raises(ConfigError, match="head"):
        as_model(path)
    sidecar = tmp_path / "c.onnx.gstinfer.toml"
    (tmp_path / "names.txt").write_text("cat\ndog")
    sidecar.write_text('head = "yolo"\nlayout = "channels-last"\nlabels = "names.txt"\nconfidence-threshold = 0.7\n')
    model = as_model(path)
    assert shown(model, [plain(RED)])[0][1] == "dog"
    assert model.model.thresholds.confidence == 0.7
    assert as_model(path, confidence_threshold=0.9).model.thresholds.confidence == 0.9
    assert dict((what, why) for what, _, why in model.model.describe())["confidence-threshold"] == "the sidecar file"
    sidecar.write_text("heat = 'yolo'")
    with pytest.raises(UnknownNameError, match="sidecar"):
        as_model(path)
    sidecar.write_text("head =")
    with pytest.raises(ConfigError, match=r"c\.onnx\.gstinfer\.toml cannot be read"):
        as_model(path)


def test_describe_says_what_was_decided_and_why(tmp_path):
    model = as_model(str(oracle(tmp_path / "o.onnx")), pad_value=7, confidence_threshold=0.3)
    rows = {what: (value, why) for what, value, why in model.model.describe()}
    assert rows["head"][0] == "yolo-e2e" and "metadata" in rows["head"][1]
    assert rows["input-size"] == ("64x64", "the input images [?,3,64,64] float32")
    assert rows["pad-value"] == ("7", "set")
    assert rows["confidence-threshold"] == ("0.3", "set")
    assert rows["labels"][0] == "4"
    assert rows["batch"][0] == "any"


def test_times_of_its_parts_add_up(tmp_path):
    model = as_model(str(oracle(tmp_path / "o.onnx")))
    assert set(model.model.stage_seconds.values()) == {0.0}, "the warm-up does not count"
    model.predict([plain(RED)] * 3)
    first = dict(model.model.stage_seconds)
    assert set(first) == {"prepare", "run", "decode"} and min(first.values()) > 0
    model.predict([plain(RED)])
    assert all(model.model.stage_seconds[key] > first[key] for key in first)


def test_a_closed_model_refuses_and_loads_again(tmp_path):
    model = onnx_model(str(oracle(tmp_path / "o.onnx")))
    with pytest.raises(PredictError, match="not loaded"):
        model.predict(plain(RED))
    assert model.describe() == []
    from gstinfer import FrameBatch

    for _ in range(2):
        model.load(Device())
        assert len(model.predict(FrameBatch.of([plain(RED)]))) == 1
        model.close()
        model.close()


def test_a_runtime_is_closed_when_the_network_is_refused(tmp_path):
    from gstinfer.models.onnx import OnnxRuntime

    opened = []

    class Recorded(OnnxRuntime):
        closed = False

        def close(self) -> None:
            self.closed = True
            super().close()

    def opener(device, threads):
        opened.append(Recorded(path, device, threads))
        return opened[-1]

    path = oracle(tmp_path / "o.onnx")
    with pytest.raises(ConfigError):
        NetworkModel(opener, input_size=32).load(Device())
    assert [runtime.closed for runtime in opened] == [True]


def test_metadata_the_reader_does_not_understand_is_no_crash(tmp_path):
    metadata = {**METADATA, "imgsz": "big", "names": "{0: 'a', 1: 'b', 2: 'c', 3: 'd'}", "stride": "x"}
    model = as_model(str(oracle(tmp_path / "o.onnx", metadata=metadata)))
    assert model.model.labels == ("a", "b", "c", "d")
