"""The element pyoverlay."""
