"""The element pytrack."""
