"""Payloads of user metas, with copy and release functions that are safe from any thread, also after Python has ended.

DeepStream calls ``copy_func(user_meta, NULL)`` for the payload of a copy, and ``release_func(user_meta, NULL)`` at the end
of an element, on whatever thread drops the buffer. A Python callback there would need the GIL, and would crash once the
interpreter is gone. So a payload is one immutable block with GLib's atomic reference count: a copy takes a reference, a
release gives it back. Both functions are a dozen bytes of machine code, written once, that fetch ``user_meta_data`` and
jump into GLib. The page they live on is never unmapped.
"""

from __future__ import annotations

import ctypes as C
import mmap
import platform
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from gstinfer.errors import HostError
from gstinfer.hosts.deepstream.libs import glib
from gstinfer.hosts.metas import codec
from gstinfer.results import FrameResults, SegmentationMap, Tensors

__all__ = [
    "RESULT",
    "SEGMENTATION",
    "TENSORS",
    "block",
    "free",
    "functions",
    "pack",
    "read_segmentation",
    "read_tensors",
    "segmentation",
    "tensors",
    "unpack",
]

RESULT = b"GSTINFER.RESULT"
"""Descriptor of our own user metas: a ``guint64`` length, then the bytes of ``metas.codec``."""
TENSORS, SEGMENTATION = 12, 13
"""``NVDSINFER_TENSOR_OUTPUT_META`` and ``NVDSINFER_SEGMENTATION_META``."""

_PAGE: list[mmap.mmap] = []
_X86_COPY = "f30f1efa 488b7f28 48b8{acquire} ffe0"
# endbr64; rax = meta->user_meta_data; if it is there: clear the field, jump to the function with it
_X86_RELEASE = "f30f1efa 488b4728 4885c0 7417 48c7472800000000 4889c7 48b8{release} ffe0 c3"
_ARM_COPY = "001440f9 50000058 00021fd6 {acquire}"
_ARM_RELEASE = "011440f9 a10000b4 1f1400f9 e00301aa 90000058 00021fd6 c0035fd6 1f2003d5 {release}"


def _code() -> tuple[bytes, bytes]:
    """Machine code of the copy and the release function for this processor.

    Raises:
        HostError: A processor that DeepStream does not run on.
    """
    g, machine = glib(), platform.machine()
    addresses = {
        "acquire": struct.pack("<Q", g.address("g_atomic_rc_box_acquire")).hex(),
        "release": struct.pack("<Q", g.address("g_atomic_rc_box_release")).hex(),
    }
    if machine in ("x86_64", "AMD64"):
        copy, release = _X86_COPY, _X86_RELEASE
    elif machine in ("aarch64", "arm64"):
        copy, release = _ARM_COPY, _ARM_RELEASE
    else:
        raise HostError(f"user metas are not written on a {machine}", hint="DeepStream runs on x86_64 and aarch64")
    return bytes.fromhex(copy.format(**addresses)), bytes.fromhex(release.format(**addresses))


@lru_cache(maxsize=1)
def functions() -> tuple[int, int]:
    """Addresses of the copy and the release function.

    Raises:
        HostError: The system allows no page of code.
    """
    copy, release = _code()
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as error:
        raise HostError(f"no memory for the functions of user metas: {error}") from error
    page[: len(copy)] = copy
    page[64 : 64 + len(release)] = release
    view = C.c_char.from_buffer(page)
    start = C.addressof(view)
    libc = C.CDLL(None, use_errno=True)
    if libc.mprotect(C.c_void_p(start), C.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
        raise HostError(
            f"the system allows no executable page for the functions of user metas (errno {C.get_errno()})",
            hint="a security policy forbids it: with SELinux, allow execmem for this process",
        )
    # A page that is exported cannot be closed; two references make it outlive everything, the interpreter too.
    _PAGE.append(page)
    C.pythonapi.Py_IncRef(C.py_object(page))
    C.pythonapi.Py_IncRef(C.py_object(view))
    return start, start + 64


def block(size: int) -> int:
    """Address of a fresh payload of so many bytes, owned by the caller until a user meta has it."""
    address: int = glib().box(size)
    return address


def free(address: int) -> None:
    """Gives back a payload that no user meta took."""
    glib().unbox(address)


def pack(results: FrameResults, width: int, height: int) -> int:
    """Results as a payload of ``RESULT``.

    Raises:
        HostError: See ``codec.encode``.
    """
    raw = codec.encode(results, width, height)
    address = block(8 + len(raw))
    C.c_uint64.from_address(address).value = len(raw)
    C.memmove(address + 8, raw, len(raw))
    return address


def unpack(address: int) -> FrameResults:
    """The results of a payload of ``RESULT``."""
    length = C.c_uint64.from_address(address).value
    return codec.decode(C.string_at(address + 8, length))[0]


class _Segmentation(C.Structure):
    """``NvDsInferSegmentationMeta``."""

    _fields_ = (
        ("classes", C.c_uint),
        ("width", C.c_uint),
        ("height", C.c_uint),
        ("class_map", C.c_void_p),
        ("probabilities", C.c_void_p),
        ("private", C.c_void_p),
        ("component_id", C.c_int),
    )


def segmentation(found: SegmentationMap) -> int:
    """A class map as ``NvDsInferSegmentationMeta``, in one block.

    ``class_probabilities_map`` is ``[classes, h, w]`` as nvinfer has it, with the confidence of a pixel's own class and
    zero for the others; it is left out where the confidence is not known.
    """
    class_map = np.ascontiguousarray(found.class_map, np.int32)
    height, width = class_map.shape
    classes = max(len(found.label or ()), int(class_map.max(initial=-1)) + 1)
    pixels, head = class_map.nbytes, C.sizeof(_Segmentation)
    wide = classes * pixels if found.confidence is not None else 0
    address = block(head + pixels + wide)
    meta = _Segmentation.from_address(address)
    meta.classes, meta.width, meta.height = classes, width, height
    meta.class_map, meta.probabilities = address + head, address + head + pixels if wide else None
    meta.private, meta.component_id = None, found.component_id
    C.memmove(address + head, class_map.ctypes.data, pixels)
    if found.confidence is not None:
        raw = (C.c_float * (classes * height * width)).from_address(address + head + pixels)
        maps = np.frombuffer(raw, np.float32).reshape(classes, height, width)
        maps[:] = np.where(class_map[None] == np.arange(classes)[:, None, None], found.confidence, 0)
    return address


def read_segmentation(address: int) -> SegmentationMap:
    """A class map from ``NvDsInferSegmentationMeta``; copied."""
    meta = _Segmentation.from_address(address)
    shape = (meta.height, meta.width)
    count = meta.height * meta.width
    class_map = np.frombuffer(C.string_at(meta.class_map, count * 4), np.int32).reshape(shape)
    confidence = None
    if meta.probabilities and meta.classes:
        raw = np.frombuffer(C.string_at(meta.probabilities, meta.classes * count * 4), np.float32)
        confidence = raw.reshape(meta.classes, *shape).max(0)
    return SegmentationMap(class_map, None, confidence, meta.component_id)


class _Dims(C.Structure):
    _fields_ = (("count", C.c_uint), ("d", C.c_uint * 8), ("elements", C.c_uint))


class _Layer(C.Structure):
    """``NvDsInferLayerInfo``."""

    _fields_ = (
        ("data_type", C.c_int),
        ("dims", _Dims),
        ("binding", C.c_int),
        ("name", C.c_void_p),
        ("buffer", C.c_void_p),
        ("is_input", C.c_int),
    )


class _TensorMeta(C.Structure):
    """``NvDsInferTensorMeta``."""

    _fields_ = (
        ("component_id", C.c_uint),
        ("count", C.c_uint),
        ("layers", C.c_void_p),
        ("host", C.c_void_p),
        ("device", C.c_void_p),
        ("gpu_id", C.c_int),
        ("private", C.c_void_p),
        ("network", C.c_uint * 3),
        ("keep_aspect", C.c_int),
        ("symmetric", C.c_int),
    )


_TYPES = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "int64": 4, "uint8": 5}
_NAMES = {number: name for name, number in _TYPES.items()}


def tensors(found: Tensors, gpu_id: int = 0, network: tuple[int, int, int] = (0, 0, 0)) -> int:
    """Raw outputs as ``NvDsInferTensorMeta`` in host memory, in one block.

    Args:
        found: The outputs, without the batch axis.
        gpu_id: For the field of that name.
        network: Width, height and channels of the network's input, where they are known.

    Raises:
        HostError: A dtype or a rank that the struct does not know.
    """
    arrays = {}
    for name, value in found.outputs.items():
        array = np.ascontiguousarray(value)
        if array.dtype.name == "float64":
            array = array.astype(np.float32)
        if array.dtype.name not in _TYPES or array.ndim > 8:
            raise HostError(
                f"output {name!r} ({array.dtype}, {array.ndim} axes) does not fit into NvDsInferTensorMeta",
                hint=f"its types are {', '.join(_TYPES)}, with at most 8 axes",
            )
        arrays[name.encode() + b"\0"] = array
    count, at = len(arrays), C.sizeof(_TensorMeta)
    layers_at = at
    pointers_at = layers_at + count * C.sizeof(_Layer)
    names_at = pointers_at + 2 * 8 * count
    at = names_at + sum(map(len, arrays))
    places = []
    for array in arrays.values():
        at += -at % 64
        places.append(at)
        at += array.nbytes
    address = block(max(at, 1))
    C.memset(address, 0, at)
    meta = _TensorMeta.from_address(address)
    meta.component_id, meta.count, meta.gpu_id = found.component_id, count, gpu_id
    meta.layers, meta.host, meta.device = address + layers_at, address + pointers_at, address + pointers_at + 8 * count
    meta.network[:] = network
    layers = (_Layer * count).from_address(address + layers_at)
    pointers = (C.c_void_p * count).from_address(address + pointers_at)
    for number, ((title, array), place) in enumerate(zip(arrays.items(), places)):
        layer = layers[number]
        layer.data_type, layer.binding = _TYPES[array.dtype.name], number
        layer.dims.count, layer.dims.elements = array.ndim, array.size
        layer.dims.d[: array.ndim] = array.shape
        layer.name, layer.buffer = address + names_at, None
        C.memmove(address + names_at, title, len(title))
        names_at += len(title)
        pointers[number] = address + place
        C.memmove(address + place, array.ctypes.data, array.nbytes)
    return address


def read_tensors(address: int) -> Tensors | None:
    """Raw outputs from ``NvDsInferTensorMeta``, copied; None where they are on the GPU alone."""
    meta = _TensorMeta.from_address(address)
    outputs: dict[str, Any] = {}
    if not meta.layers or not meta.host:
        return None
    layers = (_Layer * meta.count).from_address(meta.layers)
    for layer, data in zip(layers, (C.c_void_p * meta.count).from_address(meta.host)):
        dtype = _NAMES.get(layer.data_type)
        if not data or dtype is None:
            continue
        shape = tuple(layer.dims.d[: layer.dims.count])
        raw = C.string_at(data, layer.dims.elements * np.dtype(dtype).itemsize)
        name = C.string_at(layer.name).decode("utf-8", "replace") if layer.name else str(len(outputs))
        outputs[name] = np.frombuffer(raw, dtype).reshape(shape)
    return Tensors(outputs, meta.component_id)
