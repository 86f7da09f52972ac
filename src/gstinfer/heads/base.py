"""What every head is: raw tensors of a network -> results in frame pixels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from gstinfer.errors import ConfigError
from gstinfer.geometry import ImageTransform
from gstinfer.results import Result

__all__ = ["Head", "NetworkInfo", "TensorInfo", "Thresholds"]


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and type of a network's input or output.

    Attributes:
        name: As the file says.
        shape: Sizes; None where dynamic.
        dtype: NumPy name of the type.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class NetworkInfo:
    """What is known of a network before it runs.

    Attributes:
        inputs: In the file's order; pictures first.
        outputs: In the file's order.
        metadata: Text by key, such as Ultralytics' ``task``, ``names`` and ``stride``.
        labels: Class names, or None.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Thresholds:
    """What is kept of a network's candidates.

    Attributes:
        confidence: Least score, 0..1.
        iou: Overlap above which the weaker of two boxes is dropped.
        class_agnostic: Whether boxes of different classes suppress each other.
        limit: Most objects a frame.
    """

    confidence: float = 0.25
    iou: float = 0.45
    class_agnostic: bool = False
    limit: int = 300


class Head(ABC):
    """Decodes one family of outputs.

    Args:
        info: The network; shapes and names are bound here, once.
        layout: ``"auto"``, or for the families of ``layouts`` where the columns of a candidate lie.

    Attributes:
        name: The value of the ``head`` property that names it.
        thresholds: The family's own defaults.
        layouts: Whether ``layout`` means something for the family.
        any_size: Whether networks of the family take pictures of any size, whatever size their file was exported at.
        labels: Names of the decoded class ids: the network's own, else the family's where they are known for sure.

    Raises:
        ConfigError: The outputs or the labels do not fit the family, or the layout is ambiguous.
    """

    name: ClassVar[str]
    thresholds: ClassVar[Thresholds] = Thresholds()
    layouts: ClassVar[bool] = False
    any_size: ClassVar[bool] = False

    def __init__(self, info: NetworkInfo, layout: str = "auto") -> None:
        if layout != "auto" and not self.layouts:
            raise ConfigError(f"layout={layout} means nothing for head={self.name}", hint="leave layout=auto")
        self.info, self.layout = info, layout
        self.labels: Sequence[str] | Mapping[int, str] | None = info.labels

    def feeds(self, transforms: Sequence[ImageTransform]) -> dict[str, NDArray[Any]]:
        """Arrays for the inputs besides the picture, by input name, one row per transform."""
        return {}

    @classmethod
    def preprocessing(cls, info: NetworkInfo) -> dict[str, Any]:
        """Fields of ``Preprocessing`` that the family is trained with, where they differ from the defaults."""
        return {}

    def warming(self) -> AbstractContextManager[None]:
        """The context of a first run on an empty picture."""
        return nullcontext()

    @abstractmethod
    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        """One result per frame, in frame pixels, not yet clipped.

        Args:
            outputs: Arrays by name, batch first.
            transforms: One per frame; extra rows of the outputs are padding.
            thresholds: What to keep.
        """


