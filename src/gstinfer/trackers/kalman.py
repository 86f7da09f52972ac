"""A Kalman filter for the boxes of many tracks at once.

The state of a box is (cx, cy, w, h) and its velocity, the noise grows with the box, as in SORT, ByteTrack and BoT-SORT.
With constant velocity and independent noise the four coordinates never mix, so the 8 x 8 covariance is four blocks of
2 x 2, kept as three numbers a coordinate: variance of the position, covariance, variance of the velocity. That is the
same filter, without a matrix product or an inversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["STATE", "boxes", "correct", "initiate", "predict"]

STATE: list[tuple[str, str, int]] = [
    ("position", "f8", 4),
    ("velocity", "f8", 4),
    ("var_position", "f8", 4),
    ("covariance", "f8", 4),
    ("var_velocity", "f8", 4),
]
"""Fields of a structured array of tracks that the functions here read and write."""

POSITION_NOISE, VELOCITY_NOISE = 1 / 20, 1 / 160
"""Standard deviations as a share of the box's width or height, per 1/30 s."""

Float = NDArray[np.float64]


def initiate(tracks: NDArray[Any], xyxy: Float) -> None:
    """Fills the state of new tracks from their first boxes ``[N,4]``; at rest, with a wide velocity."""
    position = _measure(xyxy)
    noise = _scale(position)
    tracks["position"] = position
    tracks["velocity"] = 0
    tracks["var_position"] = (2 * POSITION_NOISE * noise) ** 2
    tracks["covariance"] = 0
    tracks["var_velocity"] = (10 * VELOCITY_NOISE * noise) ** 2


def predict(tracks: NDArray[Any], dt: Float) -> None:
    """Moves tracks ahead.

    Args:
        tracks: Structured array with the fields of ``STATE``.
        dt: ``[N]`` steps of 1/30 s, 0 or more.
    """
    dt = dt[:, None]
    noise = _scale(tracks["position"])
    tracks["position"] += dt * tracks["velocity"]
    tracks["position"][:, 2:] = np.maximum(tracks["position"][:, 2:], 1.0)
    drift = dt * tracks["var_velocity"]
    tracks["var_position"] += dt * (2 * tracks["covariance"] + drift + (POSITION_NOISE * noise) ** 2)
    tracks["covariance"] += drift
    tracks["var_velocity"] += dt * (VELOCITY_NOISE * noise) ** 2


def correct(tracks: NDArray[Any], xyxy: Float) -> NDArray[Any]:
    """The tracks after each has seen its box ``[N,4]``; writes in place and returns them."""
    position = tracks["position"]
    residual = _measure(xyxy) - position
    var, cov = tracks["var_position"], tracks["covariance"]
    total = var + (POSITION_NOISE * _scale(position)) ** 2
    gain, gain_velocity = var / total, cov / total
    tracks["position"] = position + gain * residual
    tracks["velocity"] += gain_velocity * residual
    tracks["var_velocity"] -= gain_velocity * cov
    tracks["covariance"] = cov - gain * cov
    tracks["var_position"] = var - gain * var
    return tracks


def boxes(tracks: NDArray[Any]) -> Float:
    """Boxes ``[N,4]`` (x1,y1,x2,y2) of tracks."""
    centre, half = tracks["position"][:, :2], tracks["position"][:, 2:] / 2
    return np.concatenate([centre - half, centre + half], 1)


def _measure(xyxy: Float) -> Float:
    low, high = xyxy[:, :2], xyxy[:, 2:]
    return np.concatenate([(low + high) / 2, high - low], 1)


def _scale(position: Float) -> Float:
    """What the noise of each coordinate is a share of: width, height, width, height, at least a pixel."""
    size = np.maximum(position[:, 2:], 1.0)
    return np.concatenate([size, size], 1)
