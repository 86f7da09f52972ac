"""nvinfer's configuration files as pyinfer's settings."""

from __future__ import annotations

import textwrap

import pytest

from gstinfer.elements.infer.nvinfer_config import read_config
from gstinfer.elements.infer.settings import InferSettings, class_thresholds
from gstinfer.errors import ConfigError

INI = """
    [property]
    gpu-id=0
    net-scale-factor=0.00392156862745098
    # a comment
    offsets=127.5;63.75;0
    model-color-format=1
    onnx-file=net.onnx
    model-engine-file=net.onnx_b4_gpu0_fp16.engine
    labelfile-path=labels.txt
    batch-size=4
    network-mode=2
    num-detected-classes=80
    interval=2
    gie-unique-id=7
    process-mode=1
    network-type=0
    cluster-mode=2
    maintain-aspect-ratio=1
    symmetric-padding=1
    infer-dims=3;384;640
    filter-out-class-ids=2;5
    parse-bbox-func-name=NvDsInferParseYolo
    custom-lib-path=/opt/lib/libparser.so
    [class-attrs-all]
    pre-cluster-threshold=0.25
    nms-iou-threshold=0.45
    topk=300
    [class-attrs-3]
    pre-cluster-threshold=0.6
    roi-top-offset=10
"""

YAML = """
    property:
      gpu-id: 0
      net-scale-factor: 0.00392156862745098
      offsets: 127.5;63.75;0   # trailing
      model-color-format: 1
      onnx-file: "net.onnx"
      labelfile-path: labels.txt
      batch-size: 4
      network-type: 0
      cluster-mode: 2
      maintain-aspect-ratio: 1
      symmetric-padding: 1
    class-attrs-all:
      pre-cluster-threshold: 0.25
      nms-iou-threshold: 0.45
"""


def written(folder, text, name="config.txt"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_text(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"x")
    found = read_config(written(tmp_path, INI))
    settings = InferSettings(**found.settings)
    assert settings.model == str(tmp_path / "net.onnx"), "the engine is not there"
    assert settings.labels == str(tmp_path / "labels.txt")
    assert (settings.color, settings.resize, settings.pad_value, settings.input_size) == ("bgr", "letterbox", 0, "640x384")
    assert settings.scale == pytest.approx(1 / 255) and settings.std == "1"
    assert [float(v) for v in settings.mean.split(",")] == pytest.approx([0.5, 0.25, 0])
    assert (settings.batch_size, settings.interval, settings.unique_id, settings.topk) == (4, 2, 7, 300)
    assert (settings.confidence_threshold, settings.iou_threshold) == (0.25, 0.45)
    assert class_thresholds(settings.class_thresholds) == {-1: 0.25, 3: 0.6}
    assert settings.filter_out_class_ids == "2;5"
    assert [line.split("=")[0] for line in found.ignored] == [
        "[class-attrs-3] roi-top-offset",
        "parse-bbox-func-name",
        "custom-lib-path",
    ]
    assert "head=" in found.ignored[1]


def test_yaml_says_the_same(tmp_path):
    one = read_config(written(tmp_path, YAML, "config.yml")).settings
    other = read_config(written(tmp_path, INI)).settings
    assert {k: other[k] for k in one if k not in ("model", "class_thresholds")} == {
        k: one[k] for k in one if k not in ("model", "class_thresholds")
    }
    assert one["model"] == str(tmp_path / "net.onnx")


def test_the_engine_goes_first_where_it_is(tmp_path):
    (tmp_path / "net.onnx_b4_gpu0_fp16.engine").write_bytes(b"x")
    assert read_config(written(tmp_path, INI)).settings["model"].endswith(".engine")


def test_defaults_are_those_of_nvinfer(tmp_path):
    """No factor, no offsets, stretched, RGB, black."""
    settings = InferSettings(**read_config(written(tmp_path, "[property]\nonnx-file=a.onnx\n")).settings)
    assert (settings.scale, settings.mean, settings.std, settings.resize) == (1.0, "0", "1", "stretch")
    assert (settings.color, settings.pad_value, settings.confidence_threshold) == ("rgb", 0, None)


def test_padding_at_the_bottom_and_right(tmp_path):
    found = read_config(written(tmp_path, "[property]\nmaintain-aspect-ratio=1\n"))
    assert found.settings["resize"] == "letterbox-topleft"


def test_secondary_classifier(tmp_path):
    (tmp_path / "labels.txt").write_text("sedan;suv;van\n")
    text = """
        [property]
        process-mode=2
        network-type=1
        operate-on-gie-id=1
        operate-on-class-ids=0;2
        input-object-min-width=64
        secondary-reinfer-interval=90
        classifier-threshold=0.51
        labelfile-path=labels.txt
    """
    settings = InferSettings(**read_config(written(tmp_path, text)).settings)
    assert (settings.process_mode, settings.head, settings.labels) == (2, "classify", "sedan,suv,van")
    assert (settings.infer_on_gie_id, settings.infer_on_class_ids) == (1, "0;2")
    assert (settings.input_object_min_width, settings.secondary_reinfer_interval) == (64, 90)
    assert settings.confidence_threshold == 0.51


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[application]\nx=1\n", "no section 'property'"),
        ("[property]\nnet-scale-factor=many\n", "not a number"),
        ("[property]\nnetwork-type=9\n", "network-type=9"),
        ("[property]\nmodel-color-format=4\n", "model-color-format"),
        ("key without section", "cannot be read"),
    ],
)
def test_what_cannot_be_read(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        read_config(written(tmp_path, text))


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.txt"):
        read_config(tmp_path / "nowhere.txt")


def test_clustering_that_is_not_there_is_said(tmp_path):
    found = read_config(written(tmp_path, "[property]\ncluster-mode=1\n[class-attrs-all]\neps=0.7\n"))
    assert any("DBSCAN" in line for line in found.ignored) and any("eps" in line for line in found.ignored)


@pytest.mark.parametrize("text", ["1", "a:0.5", "1:x"])
def test_class_thresholds_are_checked(text):
    with pytest.raises(ConfigError):
        InferSettings(class_thresholds=text)
