"""The element pypublish."""
