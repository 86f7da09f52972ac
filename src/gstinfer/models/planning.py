"""How a network's preprocessing is decided, and the reason for every field of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gstinfer.errors import ConfigError
from gstinfer.heads.base import NetworkInfo, TensorInfo
from gstinfer.heads.facts import input_size
from gstinfer.preprocess import Preprocessing

__all__ = ["FIELDS", "check_picture", "numbers", "plan", "size"]

FIELDS = {
    "size": "input_size",
    "resize": "resize",
    "pad_value": "pad_value",
    "color": "color",
    "scale": "scale",
    "mean": "mean",
    "std": "std",
    "layout": "input_layout",
    "dtype": "input_dtype",
    "quality": "preprocess",
}
"""Field of ``Preprocessing`` -> option that overrides it; layout and dtype are the network's alone."""

DTYPES = ("float32", "float16", "uint8", "int32")
CHANNELS = (1, 3)


def size(text: str) -> tuple[int, int]:
    """(width, height) from ``"640"`` or ``"640x480"``.

    Raises:
        ConfigError: It is neither.
    """
    parts = text.strip("()[] ").lower().replace(",", "x").split("x")
    try:
        sides = [int(part) for part in parts]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise ConfigError(f"input-size={text!r} is no size", hint="write 640 or 640x480 (width x height)")
    return sides[0], sides[-1]


def numbers(text: str) -> tuple[float, ...]:
    """One or three numbers from ``"0.5"`` or ``"0.485,0.456,0.406"``.

    Raises:
        ConfigError: It is neither.
    """
    try:
        values = tuple(float(part) for part in text.strip("()[] ").replace(";", ",").rstrip(",").split(","))
    except ValueError:
        values = ()
    if len(values) not in CHANNELS or not np.isfinite(values).all():
        raise ConfigError(f"{text!r} is not one number and not three", hint="write 0.5 or 0.485,0.456,0.406")
    return values


def plan(
    name: str,
    info: NetworkInfo,
    said: Mapping[str, tuple[Any, str]],
    habits: Mapping[str, Any],
    head: str,
) -> tuple[Preprocessing, dict[str, str]]:
    """The preprocessing, and by field why.

    Args:
        name: Of the model, for messages.
        info: The network.
        said: By option, the value set and by whom; (None, "") where nothing was.
        habits: Fields that the head's family is trained with.
        head: Its name.

    Raises:
        ConfigError: The input is no picture, or what was set does not fit it.
    """
    picture = info.inputs[0]
    layout, channels, sides = _axes(name, picture)
    values: dict[str, Any] = {"layout": layout, "dtype": picture.dtype}
    why = dict.fromkeys(FIELDS, "the usual")
    why["layout"] = why["dtype"] = f"the input {picture.name} {_shape(picture)} {picture.dtype}"
    if picture.dtype not in DTYPES:
        raise ConfigError(
            f"{name} wants {picture.dtype} pictures, which cannot be made", hint=f"export it for {', '.join(DTYPES)}"
        )
    for field, value in habits.items():
        values[field], why[field] = value, f"what head {head} is trained with"
    if picture.dtype in ("uint8", "int32"):
        # Normalising is the network's own work then: numbers around 0..1 would all be rounded away.
        for field, value in (("scale", 1.0), ("mean", (0.0,)), ("std", (1.0,))):
            values[field], why[field] = value, f"an input of {picture.dtype} takes pixels as they are"
    found = input_size(info)
    if found is not None:
        values["size"] = found
        why["size"] = why["layout"] if None not in sides else "the file's imgsz"
    for field, option in FIELDS.items():
        value, reason = said.get(option, (None, ""))
        if value is not None:
            values[field], why[field] = value, reason
    wanted = values.get("size")
    if wanted is not None and any(fixed not in (None, got) for fixed, got in zip(sides, wanted)):
        raise ConfigError(
            f"input-size={wanted[0]}x{wanted[1]} does not fit {name}, whose input {picture.name} is fixed at "
            f"{_shape(picture)}",
            hint="leave input-size unset, or export the network with a dynamic size",
        )
    if channels == 1:
        if said.get("color", (None, ""))[1] == "set":
            raise ConfigError(f"color={values['color']} does not fit {name}, whose input has one channel: gray")
        values["color"], why["color"] = "gray", why["layout"]
        for field in ("mean", "std"):
            given = values.get(field, (0.0,))
            if len(given) != 1 and not said.get(field, (None, ""))[1]:
                values[field] = (float(np.mean(given)),)
    return Preprocessing(**values), why


def _axes(name: str, picture: TensorInfo) -> tuple[str, int, tuple[int | None, int | None]]:
    """Layout, channels and (width, height) of an input."""
    check_picture(name, picture)
    _, first, middle, last = picture.shape
    if first in CHANNELS:
        return "NCHW", int(first or 0), (last, middle)
    if last in CHANNELS:
        return "NHWC", int(last or 0), (middle, first)
    return "NCHW", 3, (last, middle)


def check_picture(name: str, picture: TensorInfo) -> None:
    """Whether an input takes pictures, before anything is asked about its outputs.

    Raises:
        ConfigError: It does not.
    """
    if len(picture.shape) == 4:
        first, last = picture.shape[1], picture.shape[3]
        if first in CHANNELS or last in CHANNELS or (first is None and last is None):
            return
    raise ConfigError(
        f"{name} takes {picture.name} {_shape(picture)}, expected pictures: [batch,C,H,W] or [batch,H,W,C] "
        "with 1 or 3 channels"
    )


def _shape(picture: TensorInfo) -> str:
    return "[" + ",".join("?" if side is None else str(side) for side in picture.shape) + "]"
