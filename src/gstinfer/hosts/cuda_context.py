"""The CUDA context that decoder and network share.

GStreamer's CUDA elements make a context of their own unless the pipeline knows one (``gst.cuda.context``); torch and ONNX
Runtime use the device's primary context. The GPU works for one context at a time: with two of them each copy of a decoder
waits for the network's slice to end, and its thread spins meanwhile.
"""

from __future__ import annotations

import ctypes as C
from functools import lru_cache
from typing import Any

from gstinfer.errors import HostError
from gstinfer.hosts.gstbuffer import function, library

__all__ = ["announce"]


def announce(element: Any, index: int) -> bool:
    """Tells an element's pipeline about the primary context of a GPU (``HAVE_CONTEXT``), for elements that open after it.

    Args:
        element: A ``Gst.Element``, from NULL to READY.
        index: Of the GPU.

    Returns:
        False where this GStreamer cannot wrap a context (before 1.22), or has no CUDA library: elements make their own then.
    """
    context = _context(index)
    if not context:
        return False
    gst = library("libgstreamer-1.0.so.0", releases_gil=True)
    reference = function(gst, "gst_mini_object_ref", C.c_void_p, C.c_void_p)
    message = function(gst, "gst_message_new_have_context", C.c_void_p, C.c_void_p, C.c_void_p)
    post = function(gst, "gst_element_post_message", C.c_int, C.c_void_p, C.c_void_p)
    # The message takes the reference that it is given.
    return bool(post(hash(element), message(hash(element), reference(context))))


@lru_cache(maxsize=64)
def _context(index: int) -> int:
    """Address of a ``GstContext`` around the primary context, which both stay as long as the process; 0 where it cannot be."""
    try:
        cuda = library("libgstcuda-1.0.so.0", releases_gil=True)
    except HostError:
        return 0
    if not hasattr(cuda, "gst_cuda_context_new_wrapped") or not function(cuda, "gst_cuda_load_library", C.c_int)():
        return 0
    primary = _primary(index)
    wrapped = function(cuda, "gst_cuda_context_new_wrapped", C.c_void_p, C.c_void_p, C.c_uint)(primary, index)
    if not wrapped:
        return 0
    return function(cuda, "gst_context_new_cuda_context", C.c_void_p, C.c_void_p)(wrapped) or 0


def _primary(index: int) -> int:
    """The primary context (``CUcontext``) of a GPU; kept for good, as libraries that use it may load later.

    Raises:
        HostError: The driver refuses.
    """
    driver, device, context = C.CDLL("libcuda.so.1"), C.c_int(), C.c_void_p()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (C.byref(device), index)),
        ("cuDevicePrimaryCtxRetain", (C.byref(context), device)),
    ):
        code = driver[name](*arguments)
        if code:
            raise HostError(
                f"{name} of NVIDIA's driver fails with {code} for GPU {index}", hint="gstinfer doctor shows the GPUs"
            )
    return context.value or 0
