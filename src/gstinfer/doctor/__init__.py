"""Explains what is wrong with an installation."""
