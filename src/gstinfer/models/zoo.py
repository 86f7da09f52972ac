"""Ready models that ship with the package."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from gstinfer.image import Device
from gstinfer.models.network import NetworkModel

__all__ = ["nanodet_coco"]


def nanodet_coco(**options: Any) -> NetworkModel:
    """NanoDet on the 80 COCO classes (Apache-2.0), 416x416, some 25 ms a frame on two CPU cores.

    Args:
        **options: Those of ``NetworkModel``.
    """
    data = files("gstinfer") / "data"

    def opened(device: Device, threads: int) -> Any:
        from gstinfer.models.onnx import OnnxRuntime

        with as_file(data / "nanodet_coco_416.onnx") as path:
            return OnnxRuntime(path, device, threads)

    defaults: dict[str, Any] = {
        "head": "gfl",
        "labels": (data / "coco80.txt").read_text("utf-8").splitlines(),
        # Trained on BGR pixels of 0..255 with these means and deviations; see NOTICE for its origin.
        "resize": "letterbox",
        "pad_value": 114,
        "color": "bgr",
        "scale": 1.0,
        "mean": "103.53,116.28,123.675",
        "std": "57.375,57.12,58.395",
        "confidence_threshold": 0.4,
        "iou_threshold": 0.6,
    }
    return NetworkModel(opened, name="nanodet-coco", defaults=defaults, **options)
