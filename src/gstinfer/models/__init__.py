"""Runtimes, and the ready models that ship with the package."""
