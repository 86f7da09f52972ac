"""One object maps boxes, keypoints, masks and rotated boxes between a frame and a network's input, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.errors import ConfigError

__all__ = ["RESIZES", "ImageTransform", "Region", "clip_boxes", "obb_corners", "obb_hull"]

Float = NDArray[np.float32]
AnyFloat = NDArray[np.floating[Any]]

RESIZES = ("letterbox", "letterbox-topleft", "stretch", "crop")
"""How a picture is fitted into an input, see ``ImageTransform.plan``."""


def clip_boxes(xyxy: Float, width: float, height: float) -> Float:
    """Boxes ``[N,4]`` (x1,y1,x2,y2) clamped to a picture of the given size; a new array."""
    return np.clip(xyxy, 0, np.array([width, height, width, height], np.float32)).astype(np.float32)


def obb_corners(obb: Float) -> Float:
    """Corners ``[N,4,2]`` of rotated boxes ``[N,5]`` (cx, cy, w, h, angle in radians, clockwise in image axes)."""
    obb = np.asarray(obb, np.float32).reshape(-1, 5)
    cos, sin = np.cos(obb[:, 4]), np.sin(obb[:, 4])
    along = np.stack([obb[:, 2] / 2 * cos, obb[:, 2] / 2 * sin], -1)
    across = np.stack([-obb[:, 3] / 2 * sin, obb[:, 3] / 2 * cos], -1)
    centre = obb[:, :2]
    corners = [centre + along + across, centre + along - across, centre - along - across, centre - along + across]
    return np.stack(corners, 1).astype(np.float32)


def obb_hull(obb: Float) -> Float:
    """Upright hulls ``[N,4]`` (x1,y1,x2,y2) of rotated boxes ``[N,5]``."""
    corners = obb_corners(obb)
    if not len(corners):
        return np.zeros((0, 4), np.float32)
    return np.concatenate([corners.min(1), corners.max(1)], 1)


@dataclass(frozen=True)
class Region:
    """A rectangle of a frame that is a picture of its own: a crop, of which nothing is copied.

    Attributes:
        frame_size: (width, height) of the frame.
        origin: Top left of the rectangle in the frame, before it is turned.
        size: Its (width, height).
        angle: Its rotation around its centre, radians, clockwise in image axes.
    """

    frame_size: tuple[int, int]
    origin: tuple[float, float]
    size: tuple[int, int]
    angle: float = 0.0

    @property
    def is_slice(self) -> bool:
        """Whether slicing the frame's planes cuts it out."""
        return self.transform().is_slice

    def transform(self) -> ImageTransform:
        """Between pixels of the frame and of this picture: its ``*_to_frame`` methods map what was found here."""
        return ImageTransform(
            self.frame_size, self.size, (1.0, 1.0), (0, 0), self.size, self.origin, self.size, self.angle
        )

    def placed(self, transform: ImageTransform) -> ImageTransform:
        """A transform of this picture into an input as one of the frame into the same input."""
        whole = (0.0, 0.0), self.size
        if (transform.origin, transform.region) == whole:
            return replace(transform, frame_size=self.frame_size, origin=self.origin, region=self.size, angle=self.angle)
        # The cut's centre moves with this rectangle as it is turned.
        own, size = self.transform(), np.array(transform.region)
        origin = own.points_to_frame(np.array(transform.origin) + size / 2).astype(np.float64) - size / 2
        place = (float(origin[0]), float(origin[1]))
        return replace(transform, frame_size=self.frame_size, origin=place, angle=self.angle)


@dataclass(frozen=True)
class ImageTransform:
    """How a rectangle of a frame was placed into a network's input.

    A frame point p maps to ``(p - origin) * scale + pad``. ``pad`` holds the integer left and top padding as the picture
    was really padded, ``scale`` the true scale of each axis.

    Attributes:
        frame_size: (width, height) of the frame.
        input_size: (width, height) of the network's input.
        scale: (x, y) factor from frame to input pixels.
        pad: (left, top) padding in input pixels.
        origin: Top left of the rectangle in the frame; (0, 0) for whole frames.
        region: (width, height) of that rectangle; the frame's size for whole frames.
        content: (width, height) of the resized picture inside the input, without padding.
        angle: Rotation of the rectangle around its centre in radians; 0 for upright ones.
    """

    frame_size: tuple[int, int]
    input_size: tuple[int, int]
    scale: tuple[float, float]
    pad: tuple[int, int]
    content: tuple[int, int]
    origin: tuple[float, float] = (0.0, 0.0)
    region: tuple[float, float] = (0.0, 0.0)
    angle: float = 0.0

    @classmethod
    def plan(
        cls,
        frame_size: tuple[int, int],
        input_size: tuple[int, int],
        resize: str = "letterbox",
        *,
        origin: tuple[float, float] = (0.0, 0.0),
        region: tuple[float, float] | None = None,
        angle: float = 0.0,
    ) -> ImageTransform:
        """Plans a resize of a frame, or of a rectangle of it, into an input.

        Args:
            frame_size: (width, height) of the frame.
            input_size: (width, height) of the input.
            resize: One of ``RESIZES``. The padding of ``"letterbox"`` is ``round(pad / 2 - 0.1)`` left and top,
                Ultralytics' rule. ``"crop"`` takes the largest part of the input's shape around the middle, of whole
                pixels: the shorter side fills the input, as classifiers have it.
            origin: Top left of the rectangle in the frame.
            region: Its (width, height); the frame when None.
            angle: Its rotation around its centre, radians.

        Raises:
            ConfigError: Unknown resize or an empty size.
        """
        width, height = region or frame_size
        in_w, in_h = input_size
        left = top = 0
        if min(width, height, in_w, in_h) <= 0:
            raise ConfigError(f"cannot resize {width}x{height} into {in_w}x{in_h}: a side is empty")
        if resize == "stretch":
            new_w, new_h = in_w, in_h
        elif resize in ("letterbox", "letterbox-topleft"):
            ratio = min(in_w / width, in_h / height)
            new_w = min(in_w, max(1, round(width * ratio)))
            new_h = min(in_h, max(1, round(height * ratio)))
            if resize == "letterbox":
                left, top = round((in_w - new_w) / 2 - 0.1), round((in_h - new_h) / 2 - 0.1)
        elif resize == "crop":
            ratio = max(in_w / width, in_h / height)
            new_w, new_h = in_w, in_h
            cut_w, cut_h = min(width, max(1, round(in_w / ratio))), min(height, max(1, round(in_h / ratio)))
            beside, above = (width - cut_w) / 2, (height - cut_h) / 2
            if not angle:
                beside, above = math.floor(beside), math.floor(above)
            origin, (width, height) = (origin[0] + beside, origin[1] + above), (cut_w, cut_h)
        else:
            raise ConfigError(f"unknown resize {resize!r}", hint=f"use one of {', '.join(RESIZES)}")
        scale = (new_w / width, new_h / height)
        return cls(frame_size, input_size, scale, (left, top), (new_w, new_h), origin, (width, height), angle)

    def __post_init__(self) -> None:
        if self.region == (0.0, 0.0):
            object.__setattr__(self, "region", self.frame_size)

    @property
    def is_slice(self) -> bool:
        """Whether the rectangle is upright, of whole pixels and inside the frame, so that slicing cuts it out."""
        sides = tuple(zip(self.origin, self.region, self.frame_size))
        return not self.angle and all(
            o == int(o) and r == int(r) and o >= 0 and r >= 1 and o + r <= n for o, r, n in sides
        )

    def _rotation(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        centre = np.array(self.origin) + np.array(self.region) / 2
        return np.array([[cos, -sin], [sin, cos]]), centre

    def points_to_input(self, points: AnyFloat) -> Float:
        """Points ``[...,2]`` (x, y) in frame pixels to input pixels."""
        exact = np.asarray(points, np.float64)
        if self.angle:
            rotation, centre = self._rotation()
            exact = (exact - centre) @ rotation + centre
        return ((exact - self.origin) * self.scale + self.pad).astype(np.float32)

    def points_to_frame(self, points: AnyFloat) -> Float:
        """Points ``[...,2]`` (x, y) in input pixels to frame pixels; not clipped."""
        exact = (np.asarray(points, np.float64) - self.pad) / self.scale + self.origin
        if self.angle:
            rotation, centre = self._rotation()
            exact = (exact - centre) @ rotation.T + centre
        return exact.astype(np.float32)

    def boxes_to_input(self, xyxy: Float) -> Float:
        """Boxes ``[N,4]`` in frame pixels to input pixels."""
        return self._boxes(xyxy, self.points_to_input)

    def to_frame(self, found: Any) -> Any:
        """``Detections`` in input pixels as detections of the frame, clipped to it."""
        return found.placed(self)

    def boxes_to_frame(self, xyxy: Float) -> Float:
        """Boxes ``[N,4]`` in input pixels to frame pixels; not clipped (un-letterbox first, clamp after)."""
        return self._boxes(xyxy, self.points_to_frame)

    def _boxes(self, xyxy: Float, to: Callable[[Float], Float]) -> Float:
        xyxy = np.asarray(xyxy, np.float32).reshape(-1, 4)
        if not self.angle:
            return to(xyxy.reshape(-1, 2, 2)).reshape(-1, 4)
        x1, y1, x2, y2 = xyxy.T
        corners = to(np.stack([x1, y1, x2, y1, x2, y2, x1, y2], 1).reshape(-1, 4, 2))
        return np.concatenate([corners.min(1), corners.max(1)], 1).reshape(-1, 4)

    def keypoints_to_frame(self, keypoints: Float) -> Float:
        """Keypoints ``[N,K,3]`` (x, y, score) in input pixels to frame pixels."""
        keypoints = np.array(keypoints, np.float32)
        if keypoints.size:
            keypoints[..., :2] = self.points_to_frame(keypoints[..., :2])
        return keypoints

    def obb_to_frame(self, obb: Float) -> Float:
        """Rotated boxes ``[N,5]`` (cx, cy, w, h, radians) in input pixels to frame pixels.

        Under unequal scales a rotated box becomes a parallelogram; the rectangle on its long axis is kept.
        """
        obb = np.asarray(obb, np.float32).reshape(-1, 5)
        centre = self.points_to_frame(obb[:, :2])
        sx, sy = self.scale
        cos, sin = np.cos(obb[:, 4]), np.sin(obb[:, 4])
        ux, uy = obb[:, 2] * cos / sx, obb[:, 2] * sin / sy
        vx, vy = -obb[:, 3] * sin / sx, obb[:, 3] * cos / sy
        if abs(sx - sy) < 1e-3 * sx:
            angle = obb[:, 4]
        else:
            long_w = np.hypot(ux, uy) >= np.hypot(vx, vy)
            angle = np.where(long_w, np.arctan2(uy, ux), np.arctan2(-vx, vy))
        return np.stack(
            [centre[:, 0], centre[:, 1], np.hypot(ux, uy), np.hypot(vx, vy), angle + self.angle], 1
        ).astype(np.float32)

    def masks_to_frame(self, masks: NDArray[np.float32], threshold: float = 0.5) -> NDArray[np.bool_]:
        """Probability masks ``[N,h,w]`` that span the input to boolean masks ``[N,H,W]`` of the frame."""
        import cv2

        width, height = self.frame_size
        out = np.zeros((len(masks), height, width), bool)
        if not len(masks):
            return out
        mask_h, mask_w = masks.shape[1:]
        # Frame pixel centre -> mask pixel index, so that no intermediate crop is rounded.
        xs, ys = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
        points = self.points_to_input(np.stack([xs, ys], -1))
        map_x = (points[..., 0] * (mask_w / self.input_size[0]) - 0.5).astype(np.float32)
        map_y = (points[..., 1] * (mask_h / self.input_size[1]) - 0.5).astype(np.float32)
        # A crop says nothing about what lies outside of it.
        inside = ((points >= 0) & (points <= np.array(self.input_size, np.float32))).all(-1)
        for i, mask in enumerate(masks):
            probability = cv2.remap(
                np.ascontiguousarray(mask, np.float32), map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
            )
            out[i] = (probability > threshold) & inside
        return out
