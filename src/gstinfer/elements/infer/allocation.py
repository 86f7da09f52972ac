"""How many frames a decoder has to have room for, where it hands out surfaces of its own.

From GStreamer 1.24 on NVIDIA's decoders do so where ``num-output-surfaces`` is not 1, its default. With 0 they have as many as
the elements behind them ask for, and two more; a frame that finds none of them free is copied, as all are with 1.
"""

from __future__ import annotations

import ctypes as C
from typing import Any

from gstinfer.elements.compat import GstVideo
from gstinfer.hosts.gstbuffer import function, is_writable, library

__all__ = ["ask_for"]

MOST = 62
"""More than 64 surfaces, with the decoder's own two, NVDEC refuses."""

_gst = library("libgstreamer-1.0.so.0")
_release = function(_gst, "gst_object_unref", None, C.c_void_p)
_count = function(_gst, "gst_query_get_n_allocation_pools", C.c_uint, C.c_void_p)
_Number = C.POINTER(C.c_uint)
_parse = function(
    _gst,
    "gst_query_parse_nth_allocation_pool",
    *(None, C.c_void_p, C.c_uint, C.POINTER(C.c_void_p), _Number, _Number, _Number),
)
_numbers = C.c_uint, C.c_uint, C.c_uint
_set = function(_gst, "gst_query_set_nth_allocation_pool", None, C.c_void_p, C.c_uint, C.c_void_p, *_numbers)
_add = function(_gst, "gst_query_add_allocation_pool", None, C.c_void_p, C.c_void_p, *_numbers)


def ask_for(query: Any, frames: int) -> bool:
    """Adds to an ALLOCATION query that so many frames are held, where they lie in CUDA memory; others are not limited.

    Args:
        query: A ``Gst.Query`` that elements behind were asked already.
        frames: Held at a time.

    Returns:
        Whether it was added.
    """
    caps, _ = query.parse_allocation()
    features = caps.get_features(0) if caps is not None and caps.get_size() else None
    if features is None or not features.contains("memory:CUDAMemory"):
        return False
    # Inside of a vfunc the Python object borrows the query, so that it stays writable.
    if not is_writable(query):
        return False
    try:
        info = GstVideo.VideoInfo.new_from_caps(caps)
    except TypeError:  # what older versions do with caps that are no raw video
        info = None
    if info is None:
        return False
    _write(hash(query), frames, info.size)
    return True


def _write(query: int, frames: int, bytes_each: int) -> None:
    if not _count(query):
        # Who makes a pool from this makes buffers of this size.
        _add(query, None, bytes_each, min(MOST, frames), 0)
        return
    pool, size, least, most = C.c_void_p(), C.c_uint(), C.c_uint(), C.c_uint()
    _parse(query, 0, pool, size, least, most)
    needed = min(MOST, least.value + frames)
    _set(query, 0, pool, size.value, needed, most.value and max(most.value, needed))
    if pool:
        _release(pool)
