"""Codecs between FrameResults and GStreamer metadata, shared by the system and CUDA hosts."""
