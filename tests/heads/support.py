"""Descriptions of networks, without a runtime, and of ONNX files."""

from __future__ import annotations

from typing import Any

import numpy as np

from gstinfer.geometry import ImageTransform
from gstinfer.heads import Head, NetworkInfo, TensorInfo, Thresholds
from gstinfer.preprocess import Preprocessing


def network(outputs: dict[str, Any], size=(64, 64), labels=None, metadata=None, inputs=None) -> NetworkInfo:
    """A network whose outputs have these shapes, or those of these arrays."""
    shapes = {n: tuple(o.shape) if isinstance(o, np.ndarray) else tuple(o) for n, o in outputs.items()}
    picture = TensorInfo("images", (1, 3, size[1], size[0]))
    return NetworkInfo(
        tuple(inputs or (picture,)),
        tuple(TensorInfo(n, s) for n, s in shapes.items()),
        metadata or {},
        None if labels is None else tuple(labels),
    )


def numbered(count: int) -> dict[str, str]:
    """Metadata of an Ultralytics detector with so many classes."""
    return {"task": "detect", "names": str({i: f"c{i}" for i in range(count)}), "stride": "32"}


def session(path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def described(opened: Any, labels=None) -> NetworkInfo:
    """The NetworkInfo of an ONNX Runtime session."""
    types = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int32)": "int32", "tensor(int64)": "int64"}

    def infos(values: Any) -> tuple[TensorInfo, ...]:
        return tuple(
            TensorInfo(v.name, tuple(d if isinstance(d, int) else None for d in v.shape), types[v.type]) for v in values
        )

    return NetworkInfo(
        infos(opened.get_inputs()), infos(opened.get_outputs()), opened.get_modelmeta().custom_metadata_map, labels
    )


def planned(head: Head, info: NetworkInfo, frame=(1280, 720), size=(64, 64)) -> ImageTransform:
    fields = {**type(head).preprocessing(info), "size": size}
    return ImageTransform.plan(frame, size, Preprocessing(**fields).resize)


def run_case(path, head: Head, frame=(1280, 720), thresholds: Thresholds | None = None) -> Any:
    """One frame of zeros through a case's file and a head."""
    opened = session(path)
    info = described(opened)
    transform = planned(head, info, frame)
    picture = info.inputs[0]
    feeds = {picture.name: np.zeros([1 if d is None else d for d in picture.shape], picture.dtype)}
    feeds.update(head.feeds([transform]))
    outputs = dict(zip([o.name for o in info.outputs], opened.run(None, feeds)))
    return head.decode(outputs, [transform], thresholds or head.thresholds)[0]
