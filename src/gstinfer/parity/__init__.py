"""A model in a pipeline held against the same model in a bare Python loop, frame by frame and step by step."""
