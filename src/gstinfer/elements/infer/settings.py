"""The properties of pyinfer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.cores import parse_cores
from gstinfer.errors import ConfigError
from gstinfer.geometry import RESIZES
from gstinfer.settings import Settings, option

__all__ = ["MODEL_SETTINGS", "OBJECT_SETTINGS", "InferSettings", "class_ids", "class_thresholds"]


def _ids(text: Any) -> str:
    """Class ids as nvinfer writes them: ``0:2:3`` or ``0;2;3``; commas too."""
    text = str(text).strip()
    for part in filter(None, text.replace(";", ":").replace(",", ":").split(":")):
        if not part.strip().lstrip("-").isdigit():
            raise ConfigError(f"{text!r} is not a list of class ids", hint="write them as 0;2;3")
    return text


def class_ids(text: str) -> NDArray[np.int32]:
    """The numbers in a checked list of class ids."""
    parts = text.replace(";", ":").replace(",", ":").split(":")
    return np.array([int(part) for part in parts if part.strip()], np.int32)


def _cores(text: Any) -> str:
    parse_cores(str(text))
    return str(text)


def _thresholds(text: Any) -> str:
    """Least confidence by class: ``0:0.4;2:0.6``, ``*`` for the classes that are not named."""
    class_thresholds(str(text))
    return str(text)


def class_thresholds(text: str) -> dict[int, float]:
    """Least confidence by class id; -1 stands for every other class.

    Raises:
        ConfigError: The text is no such list.
    """
    found: dict[int, float] = {}
    for part in filter(None, (p.strip() for p in text.replace(",", ";").split(";"))):
        name, _, value = part.partition(":")
        try:
            found[-1 if name.strip() == "*" else int(name)] = float(value)
        except ValueError as error:
            raise ConfigError(f"class-thresholds: {part!r} is not CLASS:CONFIDENCE", hint="write 0:0.4;2:0.6") from error
    return found


class InferSettings(Settings):
    """Properties of pyinfer; names and defaults are nvinfer's where it has them."""

    model = option(
        str, "", "Model: a ready one (nanodet-coco), a file (yolo.onnx), module:Name or file.py:Name", mutable=True
    )
    model_args = option(
        str,
        "",
        "Keyword arguments for the model: key=value, key=value; a change applies to the next model",
        mutable=True,
    )
    shadow_model = option(
        str,
        "",
        "A second model on a share of the frames: stats and the bus tell how it differs, nothing of it is published",
        mutable=True,
    )
    shadow_share = option(float, 0.1, "Share of the frames that shadow-model sees", minimum=0, maximum=1, mutable=True)
    model_watch = option(bool, False, "Load the model again when its file has new content")
    device = option(str, "auto", "Where the model runs: auto (where the frames are), cpu, cuda or cuda:N")
    batch_size = option(
        int,
        0,
        "Most frames in one batch; 0 for one of each stream, or half of its frames in flight",
        minimum=0,
        maximum=1024,
    )
    batch_timeout = option(int, 10_000, "Microseconds an open batch waits after the model became free", minimum=0)
    scheduling = option(
        str,
        "fair",
        "Which frames share a batch: one of each stream in turn, whatever is there at once, or full batches",
        choices=("fair", "latency", "throughput"),
    )
    watchdog = option(float, 0.0, "Warn when a batch takes longer than this many seconds; 0 for never", minimum=0)
    stats_interval = option(float, 0.0, "Post stats on the bus every so many seconds; 0 for never", minimum=0)
    model_instance_id = option(str, "", "Elements with the same id share one model and its batches")
    confidence_threshold = option(
        float,
        None,
        "Least confidence of an object; -1 for the model's own",
        minimum=0,
        maximum=1,
        unset=-1.0,
        mutable=True,
    )
    iou_threshold = option(
        float,
        None,
        "Overlap above which the weaker box goes; -1 for the model's own",
        minimum=0,
        maximum=1,
        unset=-1.0,
        mutable=True,
    )
    labels = option(str, "", "Class names: a file with one per line, or a,b,c", mutable=True)
    head = option(str, "auto", "How the outputs are decoded; auto decides by metadata, names and shapes or refuses")
    layout = option(
        str, "auto", "Axis of the channels in the outputs", choices=("auto", "channels-first", "channels-last")
    )
    input_size = option(str, "", "Input size as WIDTHxHEIGHT or one number; empty for the model's own")
    resize = option(
        str,
        "",
        "How a frame becomes the input; empty for the model's own",
        choices=("", *RESIZES),
    )
    pad_value = option(int, None, "Grey level of the padding; -1 for the model's own", minimum=0, maximum=255, unset=-1)
    color = option(str, "", "Channel order of the input; empty for the model's own", choices=("", "rgb", "bgr", "gray"))
    scale = option(float, None, "Factor on 0..255 pixels; -1 for the model's own", minimum=0, unset=-1.0)
    mean = option(str, "", "Subtracted after scaling: one value or one per channel, a,b,c")
    std = option(str, "", "Divided by after that: one value or one per channel, a,b,c")
    preprocess = option(
        str, "", "fast resizes first, exact converts colour first; empty for fast", choices=("", "fast", "exact")
    )
    tracker = option(
        str, "", "Tracker inside the element, one step for a whole batch; empty for none (pytrack is the element for it)"
    )
    tracker_args = option(str, "", "Settings of that tracker: key=value,key=value")
    interval = option(int, 0, "Batches skipped after each one that is inferred", minimum=0)
    unique_id = option(int, 15, "Number of this element in the metadata", minimum=1)
    process_mode = option(int, 1, "1 for whole frames, 2 for objects", minimum=1, maximum=2)
    infer_on_gie_id = option(int, -1, "Objects of this element only; -1 for all (process-mode 2)", minimum=-1)
    infer_on_class_ids = option(str, "", "Objects of these classes only, as 0:2:3 (process-mode 2)", check=_ids)
    input_object_min_width = option(int, 0, "Least width of an object in pixels (process-mode 2)", minimum=0)
    input_object_min_height = option(int, 0, "Least height of an object in pixels (process-mode 2)", minimum=0)
    input_object_max_width = option(
        int, 0, "Greatest width of an object in pixels; 0 for any (process-mode 2)", minimum=0
    )
    input_object_max_height = option(
        int, 0, "Greatest height of an object in pixels; 0 for any (process-mode 2)", minimum=0
    )
    secondary_reinfer_interval = option(
        int,
        None,
        "Frames after which a tracked object is inferred again; -1 for classes on growth alone, objects in every frame "
        "(process-mode 2)",
        minimum=0,
        unset=-1,
    )
    classes_per_object = option(
        int, 1, "Best classes of a classifier that are attached to an object (process-mode 2)", minimum=1
    )
    callback = option(
        str, "", "module:function or file.py:function that sees and may edit the results of each frame"
    )
    reload = option(bool, False, "Load the functions of head and callback again when their file changes")
    class_thresholds = option(
        str, "", "Least confidence by class, as 0:0.4;2:0.6, * for the others; above confidence-threshold", check=_thresholds
    )
    topk = option(int, 0, "Most objects of one class in a frame, the surest first; 0 for all", minimum=0)
    filter_out_class_ids = option(str, "", "Classes that are left out, as 0;2;3", check=_ids)
    on_late = option(
        str,
        "auto",
        "A frame of a live source whose turn has passed: skip inference, drop it or wait; auto skips",
        choices=("auto", "skip", "drop", "wait"),
    )
    frames_in_flight = option(
        int, 1, "Frames of one stream in flight: above 1 decoding, inference and drawing overlap", minimum=1, maximum=64
    )
    cpu_cores = option(
        str,
        "",
        "Cores for the threads that run this element's Python, as 3 or 0,4-7; empty for any",
        check=_cores,
    )
    write_meta = option(
        str,
        "auto",
        "Metadata for other elements beside our own: auto, none (carrier), GstAnalytics or regions of interest",
        choices=("auto", "carrier", "analytics", "roi"),
    )
    config_file_path = option(
        str, "", "Configuration file of nvinfer, text or YAML; properties that are set go before what it says"
    )
    model_engine_file = option(str, "", "nvinfer's name for model", mutable=True)
    gpu_id = option(
        int, None, "GPU that DeepStream's frames must be on; -1 for the one they are on", minimum=0, unset=-1
    )
    frame_access = option(
        str,
        "surface",
        "How DeepStream's batches are reached: NvBufSurface and structs, or NVIDIA's Python bindings (RGB only)",
        choices=("surface", "pyservicemaker"),
    )
    output_tensor_meta = option(bool, False, "Write raw outputs as NvDsInferTensorMeta (DeepStream, head=raw)")
    stream_id = option(str, "", "Name of the stream; empty for the id of its STREAM_START")
    on_error = option(
        str,
        "stop",
        "When the model fails on a frame: stop, pass it on uninferred, or drop it",
        choices=("stop", "pass", "drop"),
    )


OBJECT_SETTINGS = (
    "infer_on_gie_id",
    "infer_on_class_ids",
    "input_object_min_width",
    "input_object_min_height",
    "input_object_max_width",
    "input_object_max_height",
    "secondary_reinfer_interval",
    "classes_per_object",
)
"""Settings of process-mode 2 alone."""

MODEL_SETTINGS = (
    "confidence_threshold",
    "iou_threshold",
    "labels",
    "head",
    "layout",
    "input_size",
    "resize",
    "pad_value",
    "color",
    "scale",
    "mean",
    "std",
    "preprocess",
)
"""Settings that are handed to the model when they are set."""
