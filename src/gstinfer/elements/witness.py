"""Keeps the witness on frames that pass elements which lose it.

The region of interest of the whole frame says whether a frame was cropped or turned since it was analysed
(``hosts/metas/roi.py``). Elements that bring frames to a GPU and back, or convert them there, keep metas without tags, such
as our record, and drop all regions, so that the record could not be trusted behind them. An element that writes results
therefore looks for those behind its source pad, and probes on their pads put back what went in. What crops or turns frames
before or behind them still shows.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Iterator
from typing import Any

from gstinfer.elements.compat import Gst, event_number
from gstinfer.hosts.gstbuffer import function, is_writable, library
from gstinfer.hosts.metas import roi

__all__ = ["MOVERS", "keep_witness"]

MOVERS = frozenset(("cudadownload", "cudaupload", "cudaconvert", "gldownload", "glupload", "glcolorconvert"))
"""Factories of elements that give frames other memory or another format and leave size and picture as they are.

``GstCudaBaseTransform`` and ``GstGLBaseFilter``, from which they come, copy metas that have no tag, or ``video`` alone.
Those that can also scale, turn or mix, as ``cudaconvertscale``, are not among them: what they drop is dropped rightly.
"""

_MOST_PADS = 1000
_BUFFERS = Gst.PadProbeType.BUFFER | Gst.PadProbeType.PUSH
_RECONFIGURE = int(Gst.EventType.RECONFIGURE)
_OK, _REMOVE = Gst.PadProbeReturn.OK, Gst.PadProbeReturn.REMOVE

_gobject = library("libgobject-2.0.so.0")
_glib = library("libglib-2.0.so.0")
_quark = function(_glib, "g_quark_from_string", C.c_uint32, C.c_char_p)
_replace_qdata = function(
    _gobject, "g_object_replace_qdata", C.c_int, C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p
)


class _ProbeInfo(C.Structure):
    """``GstPadProbeInfo`` up to ``data``."""

    _fields_ = (("type", C.c_int), ("id", C.c_ulong), ("data", C.c_void_p))


class _Flag:
    """A yes or no on a pad, which any thread may change; whoever does so learns that it was the one."""

    def __init__(self, name: bytes) -> None:
        self._key = _quark(name)

    def set(self, pad: Any) -> bool:
        return bool(_replace_qdata(hash(pad), self._key, None, 1, None, None))

    def clear(self, pad: Any) -> bool:
        return bool(_replace_qdata(hash(pad), self._key, 1, None, None, None))


_waiting, _listening, _kept = _Flag(b"gstinfer-look"), _Flag(b"gstinfer-listen"), _Flag(b"gstinfer-witness")


def keep_witness(pad: Any) -> None:
    """Has the witness put back behind every mover that frames from a source pad pass.

    Movers are looked for when the pad's next buffer leaves, and again with the first one after something was linked
    behind it. Each gets its probes once, however many elements find it, and keeps them. Any thread.

    Args:
        pad: A source ``Gst.Pad`` of an element that writes results.
    """
    if _listening.set(pad):
        pad.add_probe(Gst.PadProbeType.EVENT_UPSTREAM, _upstream)
    _look_soon(pad)


def _look_soon(pad: Any) -> None:
    # In the streaming thread: whoever links elements may hold locks of theirs.
    if _waiting.set(pad):
        pad.add_probe(_BUFFERS, _look)


def _upstream(pad: Any, info: Any) -> Any:
    if event_number(_data(info)) == _RECONFIGURE:
        _look_soon(pad)
    return _OK


def _look(pad: Any, info: Any) -> Any:
    _waiting.clear(pad)
    for entry, exit in _movers(pad):
        if _kept.set(entry):
            passing = _Passing()
            entry.add_probe(_BUFFERS, passing.enters)
            exit.add_probe(_BUFFERS, passing.leaves)
    return _REMOVE


class _Passing:
    """The frame that is inside a mover; its streaming thread only.

    Lists of buffers come apart before the sink pad of a ``GstBaseTransform``, and none leaves it.
    """

    __slots__ = ("_place",)

    def __init__(self) -> None:
        self._place: tuple[int, int, int, int] | None = None

    def enters(self, pad: Any, info: Any) -> Any:
        """Notes where the analysed picture lies; nothing is known of a frame that has no witness."""
        self._place = roi.witness(_data(info))
        return _OK

    def leaves(self, pad: Any, info: Any) -> Any:
        """Puts the witness on the frame where it was lost. In passthrough it is there, and the frame is left alone."""
        place, self._place = self._place, None
        if place is not None and roi.witness(buffer := _data(info)) is None and is_writable(buffer):
            x, y, width, height = place
            roi.mark_frame(buffer, width, height, x, y)
        return _OK


def _data(info: Any) -> int:
    """Address of the buffer or event in a probe's hands; a Python object of it would take a reference."""
    return _ProbeInfo.from_address(hash(info)).data or 0


def _movers(pad: Any) -> Iterator[tuple[Any, Any]]:
    """Sink and source pad of each mover behind a source pad, through tees and bins."""
    waiting = [pad]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_PADS:
        entry = waiting.pop().get_peer()
        if entry is None or entry in seen:
            continue
        seen.add(entry)
        exits = _linked_inside(entry)
        waiting += exits
        # The pads inside of a ghost pad belong to no element.
        element = entry.get_parent_element()
        factory = None if element is None else element.get_factory()
        if factory is not None and factory.get_name() in MOVERS:
            yield from ((entry, exit) for exit in exits)


def _linked_inside(pad: Any) -> list[Any]:
    """Pads that what arrives at a sink pad may leave by."""
    found: list[Any] = []
    iterator = pad.iterate_internal_links()
    while iterator is not None:
        outcome, other = iterator.next()
        if outcome == Gst.IteratorResult.OK:
            found.append(other)
        elif outcome == Gst.IteratorResult.RESYNC:
            found.clear()
            iterator.resync()
        else:
            break
    return found
