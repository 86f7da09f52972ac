"""Reads a configuration file of nvinfer, as text or YAML, into pyinfer's settings.

nvinfer computes ``net-scale-factor * (pixel - offset)``; here a channel is ``(pixel * scale - mean) / std``, so that the
mean is the offset times the factor. What cannot be honoured is listed, with the reason where there is one.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gstinfer.errors import ConfigError

__all__ = ["NvinferConfig", "read_config"]

COLORS = {"0": "rgb", "1": "bgr", "2": "gray"}
HEADS = {"0": "auto", "1": "classify", "2": "semantic", "3": "auto", "100": "raw"}
SUPPRESSION = {"0": "group-rectangles", "1": "DBSCAN", "3": "a hybrid of DBSCAN and NMS"}
COPIED = {
    "gpu-id": "gpu_id",
    "batch-size": "batch_size",
    "interval": "interval",
    "gie-unique-id": "unique_id",
    "process-mode": "process_mode",
    "operate-on-gie-id": "infer_on_gie_id",
    "operate-on-class-ids": "infer_on_class_ids",
    "filter-out-class-ids": "filter_out_class_ids",
    "output-tensor-meta": "output_tensor_meta",
    "input-object-min-width": "input_object_min_width",
    "input-object-min-height": "input_object_min_height",
    "input-object-max-width": "input_object_max_width",
    "input-object-max-height": "input_object_max_height",
    "secondary-reinfer-interval": "secondary_reinfer_interval",
}
"""Keys of ``[property]`` whose value is a setting as it is."""
HARMLESS = {
    "network-mode": "the precision is the model's own",
    "num-detected-classes": "the model and its labels say how many",
    "output-blob-names": "the outputs are known to the model",
    "scaling-filter": "pictures are resized bilinearly",
    "scaling-compute-hw": "the GPU resizes",
    "workspace-size": "engines are not built here",
    "force-implicit-batch-dim": "engines are not built here",
    "is-classifier": "network-type says so",
}
"""Keys that change nothing here, and why; not worth a warning."""
CUSTOM = "outputs are decoded by gstinfer's own heads; name one with head=, or give a function, head=file.py:decode"
REASONS = {"custom-lib-path": CUSTOM, "parse-bbox-func-name": CUSTOM, "parse-classifier-func-name": CUSTOM}
REASONS |= {"parse-bbox-instance-mask-func-name": CUSTOM, "parse-segmentation-func-name": CUSTOM}


@dataclass
class NvinferConfig:
    """What a file says.

    Attributes:
        settings: Values of pyinfer's settings, by attribute name.
        ignored: Keys that cannot be honoured, as ``section: key`` with the reason.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def read_config(path: str | Path) -> NvinferConfig:
    """Reads a file; paths in it are taken from its own folder.

    Raises:
        ConfigError: It is missing, is no configuration of nvinfer, or a value cannot be read.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config-file-path={path}: {error}", hint=f"looked in {Path.cwd()}") from error
    sections = _yaml(text, path) if path.suffix.lower() in (".yml", ".yaml") else _ini(text, path)
    if "property" not in sections:
        raise ConfigError(
            f"config-file-path={path}: no section 'property'; it has {', '.join(sections) or 'none'}",
            hint="give the configuration of nvinfer itself, not that of deepstream-app",
        )
    return _Reader(sections, path).read()


def _ini(text: str, path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=("#", ";"), strict=False, interpolation=None, default_section="\0"
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ConfigError(f"config-file-path={path} cannot be read: {error}") from error
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _yaml(text: str, path: Path) -> dict[str, dict[str, str]]:
    """The two levels that such a file has: sections, and ``key: value`` below them."""
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        if not line or line in ("---", "...") or line.startswith("%"):
            continue
        key, colon, value = line.strip().partition(":")
        value = value.strip().strip("'\"")
        if not colon or (line[0] in " \t" and current is None):
            raise ConfigError(f"config-file-path={path}, line {number}: {raw.strip()!r} is not 'key: value'")
        if line[0] not in " \t":
            current = sections.setdefault(key, {})
        elif current is not None:
            current[key.strip()] = value
    return sections


class _Reader:
    def __init__(self, sections: dict[str, dict[str, str]], path: Path) -> None:
        self.sections, self.path = sections, path
        self.found = NvinferConfig()
        self.property = dict(sections["property"])

    def take(self, key: str, default: str = "") -> str:
        """The value of a key of ``[property]``, which then counts as honoured."""
        return self.property.pop(key, default).strip()

    def number(self, section: str, key: str, value: str, kind: Callable[[str], Any] = float) -> Any:
        try:
            return kind(value)
        except ValueError as error:
            raise ConfigError(f"{self.path}: [{section}] {key}={value!r} is not a number") from error

    def read(self) -> NvinferConfig:
        settings = self.found.settings
        for key, name in COPIED.items():
            if key in self.property:
                value = self.take(key)
                settings[name] = value
        if settings.get("secondary_reinfer_interval") is not None:
            self._reinfer(settings)
        network = self.take("network-type", "1" if self.property.get("is-classifier") == "1" else "0")
        if network not in HEADS:
            raise ConfigError(f"{self.path}: network-type={network} is not known", hint=f"known are {', '.join(HEADS)}")
        settings["head"] = HEADS[network]
        self._model(settings)
        self._labels(settings, network)
        self._preprocessing(settings)
        self._thresholds(settings, network)
        for key, value in self.property.items():
            if key not in HARMLESS:
                reason = REASONS.get(key)
                self.found.ignored.append(f"{key}={value.strip()}" + (f" ({reason})" if reason else ""))
        return self.found

    def _reinfer(self, settings: dict[str, Any]) -> None:
        """nvinfer's own default is the largest number it knows: on growth alone."""
        if self.number("property", "secondary-reinfer-interval", settings["secondary_reinfer_interval"], int) >= 2**31 - 1:
            del settings["secondary_reinfer_interval"]

    def _file(self, value: str) -> Path:
        path = Path(value).expanduser()
        return path if path.is_absolute() else self.path.parent / path

    def _model(self, settings: dict[str, Any]) -> None:
        engine, onnx = self.take("model-engine-file"), self.take("onnx-file")
        files = [self._file(value) for value in (engine, onnx) if value]
        there = [path for path in files if path.is_file()]
        if there or files:
            settings["model"] = str((there or files)[0])

    def _labels(self, settings: dict[str, Any], network: str) -> None:
        value = self.take("labelfile-path")
        if not value:
            return
        path = self._file(value)
        settings["labels"] = str(path)
        if network == "1" and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            if ";" in text:
                # A classifier's file has a line for each attribute and its labels between semicolons.
                lines = text.splitlines()
                if len(lines) > 1:
                    self.found.ignored.append(f"labelfile-path: attributes after the first of {len(lines)}")
                settings["labels"] = ",".join(word.strip().replace(",", " ") for word in lines[0].split(";") if word.strip())

    def _preprocessing(self, settings: dict[str, Any]) -> None:
        factor = self.number("property", "net-scale-factor", self.take("net-scale-factor", "1.0"))
        settings["scale"], settings["std"] = factor, "1"
        offsets = [self.number("property", "offsets", v) for v in self.take("offsets").split(";") if v.strip()]
        settings["mean"] = ",".join(repr(value * factor) for value in offsets) or "0"
        color = self.take("model-color-format", "0")
        if color not in COLORS:
            raise ConfigError(f"{self.path}: model-color-format={color} is not known", hint="0 RGB, 1 BGR, 2 gray")
        settings["color"] = COLORS[color]
        centred = self.take("symmetric-padding", "0") == "1"
        kept = self.take("maintain-aspect-ratio", "0") == "1"
        settings["resize"] = ("letterbox" if centred else "letterbox-topleft") if kept else "stretch"
        settings["pad_value"] = 0
        sizes = [v for v in re.split(r"[;x,]", self.take("infer-dims")) if v.strip()]
        if len(sizes) == 3:
            last = self.take("network-input-order", "0") == "1"
            height, width = sizes[:2] if last else sizes[1:]
            settings["input_size"] = f"{int(width)}x{int(height)}"

    def _thresholds(self, settings: dict[str, Any], network: str) -> None:
        threshold = self.take("classifier-threshold")
        if network == "1" and threshold:
            settings["confidence_threshold"] = self.number("property", "classifier-threshold", threshold)
        cluster = self.take("cluster-mode")
        if cluster in SUPPRESSION:
            self.found.ignored.append(f"cluster-mode={cluster} (overlaps are suppressed by NMS, not by {SUPPRESSION[cluster]})")
        each: dict[str, float] = {}
        for section, values in self.sections.items():
            match = re.fullmatch(r"class-attrs-(all|\d+)", section)
            if match is None:
                if section != "property":
                    self.found.ignored.append(f"section [{section}]")
                continue
            self._class(settings, section, match[1], dict(values), each)
        if each:
            settings["confidence_threshold"] = min(each.values())
            if len(each) > 1 or "all" not in each:
                settings["class_thresholds"] = ";".join(
                    f"{'*' if name == 'all' else name}:{value:g}" for name, value in sorted(each.items())
                )
        if cluster == "4":
            settings["iou_threshold"] = 1.0

    def _class(
        self, settings: dict[str, Any], section: str, name: str, values: dict[str, str], each: dict[str, float]
    ) -> None:
        for key in ("pre-cluster-threshold", "threshold"):
            if key in values:
                each.setdefault(name, self.number(section, key, values.pop(key)))
        if name == "all":
            for key, setting, kind in (("nms-iou-threshold", "iou_threshold", float), ("topk", "topk", int)):
                if key in values:
                    value = self.number(section, key, values.pop(key), kind)
                    if not (setting == "topk" and value < 1):
                        settings[setting] = value
        neutral = {"post-cluster-threshold", "eps", "minBoxes", "dbscan-min-score", "group-threshold"}
        for key, value in values.items():
            try:
                zero = float(value) == 0
            except ValueError:
                zero = False
            if not zero and not (key in neutral and self.sections["property"].get("cluster-mode", "").strip() in ("2", "4")):
                self.found.ignored.append(f"[{section}] {key}={value.strip()}")
