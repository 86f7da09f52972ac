"""Helpers for tests of elements, models, trackers and publishers."""
