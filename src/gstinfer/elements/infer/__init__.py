"""The element pyinfer."""
