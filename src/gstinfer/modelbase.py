"""The class a user subclasses, and plain functions and objects in its form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from gstinfer.frames import FrameBatch
from gstinfer.image import Device
from gstinfer.settings import Settings

__all__ = ["Model", "WrappedModel"]


class Model(Settings, ABC):
    """A network and everything around it. Users subclass it; every method but ``predict`` has a default.

    Attributes:
        labels: Class names by index, or None when unknown.
        max_batch: Most frames that one ``predict`` takes, or None for any number.
    """

    labels: Sequence[str] | Mapping[int, str] | None = None
    max_batch: int | None = None

    def load(self, device: Device) -> None:
        """Opens the network on a device; called once, off the streaming thread's hot path."""

    @abstractmethod
    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        """One result per frame, in order: any kind of ``results``, a tuple of them, a foreign result, or None."""

    def close(self) -> None:
        """Lets go of the network."""


class WrappedModel(Model):
    """A plain function or an object with ``predict`` as a Model."""

    def __init__(self, target: Any, predict: Any) -> None:
        super().__init__()
        self._target, self._predict = target, predict
        self.labels = getattr(target, "labels", None)
        self.max_batch = getattr(target, "max_batch", None)
        if callable(getattr(target, "warmup", None)):
            self.warmup = target.warmup

    def load(self, device: Device) -> None:
        if callable(getattr(self._target, "load", None)):
            self._target.load(device)
        self.labels = getattr(self._target, "labels", self.labels)

    def predict(self, batch: FrameBatch) -> Sequence[Any]:
        result: Sequence[Any] = self._predict(batch)
        return result

    def close(self) -> None:
        if callable(getattr(self._target, "close", None)):
            self._target.close()
