"""Draws results on pictures in place."""

from gstinfer.overlay.draw import Overlay
from gstinfer.overlay.style import Style

__all__ = ["Overlay", "Style"]
