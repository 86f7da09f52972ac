"""What is to be written on one frame, made ready before the first meta is acquired.

Everything that can fail happens while planning: values are checked, and strings, masks and payloads allocated. What a plan
owns is freed unless the writer took it over.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gstinfer.hosts.deepstream import payload
from gstinfer.hosts.deepstream.libs import glib
from gstinfer.hosts.deepstream.reader import FrameReader
from gstinfer.results import Attribute, Detections

__all__ = ["Change", "FramePlan", "Fresh", "NewObjects", "Owned"]


class Owned:
    """Memory that a plan allocated."""

    def __init__(self) -> None:
        self._things: list[tuple[Callable[[int], None], Iterable[int]]] = []
        self._glib = glib()

    def text(self, text: str) -> int:
        """A g_malloc'ed string."""
        address: int = self._glib.strdup(text.replace("\0", "").encode("utf-8", "replace"))
        self._things.append((self._glib.free, [address]))
        return address

    def texts(self, words: list[bytes], places: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A g_malloc'ed string for each place among words, made in one call."""
        held = [C.c_char_p(word) for word in words]
        starts = np.array([C.c_void_p.from_buffer(word).value for word in held], np.uint64)
        # The last one ends the list.
        given = np.zeros(len(places) + 1, np.uint64)
        given[:-1] = starts[places]
        listed = self._glib.strdupv(given.ctypes.data)
        found = np.frombuffer(C.string_at(listed, given.nbytes - given.itemsize), np.uint64)
        self._glib.free(listed)
        self._things.append((self._glib.free, found))
        return found

    def bytes(self, array: NDArray[Any]) -> int:
        """A g_malloc'ed copy of an array."""
        address: int = self._glib.malloc(array.nbytes)
        self._things.append((self._glib.free, [address]))
        C.memmove(address, array.ctypes.data, array.nbytes)
        return address

    def payload(self, address: int) -> int:
        """Takes a payload's block over."""
        self._things.append((payload.free, [address]))
        return address

    def hand_over(self) -> None:
        """The metas own everything now."""
        self._things.clear()

    def free(self) -> None:
        """Frees what nobody took."""
        while self._things:
            release, addresses = self._things.pop()
            for address in addresses:
                release(int(address))


@dataclass
class NewObjects:
    """Objects to be acquired, one record each.

    Attributes:
        records: ``Layout.object`` records.
        address: Of the first record.
        parents: Address of each one's parent, 0 for none, or ``-1 - place`` of an earlier one among these.
        classifiers: By row: attributes to attach, by component.
        users: By row: (type, payload).
    """

    records: NDArray[Any]
    address: int
    parents: list[int]
    classifiers: dict[int, list[tuple[Attribute, ...]]] = field(default_factory=dict)
    users: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether nothing is attached to any of them."""
        return not (self.classifiers or self.users or any(self.parents))


@dataclass
class Change:
    """What becomes of an object that is there already.

    Attributes:
        address: Of its meta.
        writes: (offset, bytes) into it.
        text: New display text, or 0.
        dropped: Components whose classifier metas go.
        classifiers: Attributes to attach.
        users: (type, payload).
    """

    address: int
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    text: int = 0
    dropped: list[int] = field(default_factory=list)
    classifiers: list[tuple[Attribute, ...]] = field(default_factory=list)
    users: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class FramePlan:
    """Everything for one frame.

    Attributes:
        frame: Address of the frame meta.
        inferred: Whether ``bInferDone`` is set.
        new: Lots of objects, in order.
        changes: Of objects that are there.
        removed: Addresses of objects that go.
        users: (type, payload) of user metas of the frame.
        displays: ``Layout.display`` records.
        fresh: Detections that become new objects, until ``Planner.finish`` has made them.
    """

    frame: int
    inferred: bool
    new: list[NewObjects] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    users: list[tuple[int, int]] = field(default_factory=list)
    displays: list[NDArray[Any]] = field(default_factory=list)
    fresh: Fresh | None = None


class Fresh:
    """Rows of a frame's detections that have no object yet; ``rows`` None stands for all of them."""

    __slots__ = ("_rows", "now", "reader", "size")

    def __init__(
        self, now: Detections, rows: NDArray[np.int64] | None, reader: FrameReader, size: tuple[int, int]
    ) -> None:
        self.now, self._rows, self.reader, self.size = now, rows, reader, size

    def __len__(self) -> int:
        return len(self.now) if self._rows is None else len(self._rows)

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.arange(len(self.now)) if self._rows is None else self._rows

    def column(self, name: str) -> NDArray[Any]:
        column: NDArray[Any] = getattr(self.now, name)
        return column if self._rows is None else column[self._rows]

    def keep(self, good: NDArray[np.bool_]) -> None:
        self._rows = self.rows[good]

    def labels(self) -> list[str]:
        names = self.now.label
        if names is None:
            return [str(c) for c in self.column("class_id").tolist()]
        return names if self._rows is None else [names[row] for row in self._rows]
