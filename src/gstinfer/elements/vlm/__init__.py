"""The element pyvlm."""
