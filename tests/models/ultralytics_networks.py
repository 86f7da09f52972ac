"""Ultralytics architectures with random weights, made without a network from the package's own YAML files, as ONNX."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["exported", "library", "picture"]

TORCHVISION = '''
"""The little of torchvision that Ultralytics' predictor needs, where only torch is installed."""
import sys, types
import numpy as np
import torch

__version__ = "VERSION"
ops, transforms = types.ModuleType("torchvision.ops"), types.ModuleType("torchvision.transforms")
functional = types.ModuleType("torchvision.transforms.functional")


def nms(boxes, scores, iou_threshold):
    from ultralytics.utils.nms import TorchNMS
    return TorchNMS.nms(boxes, scores, iou_threshold)


class Compose:
    def __init__(self, steps):
        self.transforms = steps

    def __call__(self, picture):
        for step in self.transforms:
            picture = step(picture)
        return picture


class Nothing:
    """A step that does nothing to a picture that has the right size already, in pixels of 0..1."""
    def __init__(self, *_, **__):
        pass

    def __call__(self, picture):
        return picture


class ToTensor:
    def __call__(self, picture):
        return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).copy()).float() / 255


class InterpolationMode:
    BILINEAR = 1


ops.nms = nms
transforms.functional = functional
for made in (Compose, ToTensor, InterpolationMode):
    setattr(transforms, made.__name__, made)
for name in ("Resize", "CenterCrop", "Normalize"):
    setattr(transforms, name, Nothing)
for module in (ops, transforms, functional):
    sys.modules[module.__name__] = module
'''


def library(folder: Path) -> Any:
    """The package ``ultralytics``, told not to fetch or install anything; skips where it or torch is missing."""
    pytest.importorskip("torch")
    os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_CONFIG_DIR=str(folder))
    try:
        version("torchvision")
    except PackageNotFoundError:
        release = f"0.{int(version('torch').split('.')[1]) + 15}.0"  # Ultralytics holds it against torch's
        (folder / "torchvision").mkdir()
        (folder / "torchvision/__init__.py").write_text(TORCHVISION.replace("VERSION", release))
        about = folder / f"torchvision-{release}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torchvision\nVersion: {release}\n")
        sys.path.insert(0, str(folder))
    return pytest.importorskip("ultralytics")


def picture(height: int, width: int, seed: int) -> np.ndarray:
    """Uint8 ``[height,width,3]`` with areas, edges and fine detail."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3)).astype(np.float32)
    import cv2

    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(smooth + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)


def exported(folder: Path, name: str, classes: int, size: tuple[int, int], seed: int, **changes: Any) -> Path:
    """An architecture such as ``yolo11n-seg`` with so many classes, as an ONNX file for inputs of (height, width).

    Random weights would give next to no scores: the statistics of the layers come from a picture, and the last layers are
    scaled so that scores spread.
    """
    import torch
    from ultralytics import YOLO
    from ultralytics.utils import ROOT, YAML

    family = "11" if "11" in name else "26" if "26" in name else "v8"
    base = name.replace("11n", "11").replace("26n", "26").replace("v8n", "v8")
    about = YAML.load(ROOT / f"cfg/models/{family}/{base}.yaml")
    about.update(nc=classes, **changes)
    path = folder / f"{name}-{classes}.yaml"
    YAML.save(path, about)
    torch.manual_seed(seed)
    model = YOLO(str(path), verbose=False)
    net = model.model.eval()
    model.model.pt_path = str(path.with_suffix(".pt"))  # the export lies beside it
    _enliven(torch, net, size, seed)
    return Path(model.export(format="onnx", imgsz=list(size), simplify=False, opset=17, verbose=False))


def _enliven(torch: Any, net: Any, size: tuple[int, int], seed: int) -> None:
    # Statistics of one picture would let others explode, and grey margins are what frames of other shapes have.
    canvas = np.full((6, *size, 3), 114, np.uint8)
    for number, page in enumerate(canvas):
        height, width = size[0] - 40 * (number % 3), size[1] - 40 * (number // 3)
        page[:height, :width] = picture(height, width, seed + number)
    pixels = torch.from_numpy(canvas.transpose(0, 3, 1, 2).copy()).float() / 255
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        net(pixels)
    net.eval()
    last = net.model[-1]
    convolutions = [(n, m) for n, m in last.named_modules() if isinstance(m, torch.nn.Conv2d) and m.bias is not None]

    def scaled(name: str) -> Any:
        # Class logits around -2.5; sides of boxes around 3 cells, where they are no distribution over bins.
        centre = -2.5 if "cv3" in name else 3.0 if "cv2" in name and last.reg_max == 1 else 0.0

        def hook(module: Any, _: Any, output: Any) -> None:
            spread, mean = output.std((0, 2, 3)).clamp(min=1e-6), output.mean((0, 2, 3))
            module.weight.data *= (0.8 / spread)[:, None, None, None]
            module.bias.data = centre + (module.bias.data - mean) * 0.8 / spread

        return hook

    hooks = [m.register_forward_hook(scaled(n)) for n, m in convolutions]
    with torch.no_grad():
        net(pixels)
    for hook in hooks:
        hook.remove()
