"""Draws results on pictures in place."""
