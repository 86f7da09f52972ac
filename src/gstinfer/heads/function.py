"""Decoding by a function of the user's own, in place of a head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from gstinfer.errors import ModelError, PredictError
from gstinfer.geometry import ImageTransform
from gstinfer.heads.base import Head, NetworkInfo, Thresholds
from gstinfer.results import Result

__all__ = ["FunctionHead"]


class FunctionHead(Head):
    """Calls ``function(outputs, transforms)``, or with the thresholds as a third argument.

    Outputs are arrays by name with one row a frame; what comes back is one result per frame, in frame pixels, of any kind
    that ``Model.predict`` may return.

    Args:
        info: The network.
        function: The user's.
        told: How the user named it.
        thresholds: Whether it takes them.
        layout: Nothing but ``"auto"``.
    """

    name = "function"

    def __init__(
        self,
        info: NetworkInfo,
        function: Callable[..., Any],
        told: str,
        thresholds: Callable[[], bool] = lambda: False,
        layout: str = "auto",
    ) -> None:
        super().__init__(info, layout)
        self.function, self.told, self._takes_thresholds = function, told, thresholds
        self._warming = False

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Within it the function is not called: it is never given made-up pictures."""
        self._warming = True
        try:
            yield
        finally:
            self._warming = False

    def decode(
        self, outputs: Mapping[str, NDArray[Any]], transforms: Sequence[ImageTransform], thresholds: Thresholds
    ) -> list[Result | tuple[Result, ...]]:
        if self._warming:
            return [()] * len(transforms)
        count = len(transforms)
        rows = {name: array[:count] if array.ndim and len(array) > count else array for name, array in outputs.items()}
        further = (thresholds,) if self._takes_thresholds() else ()
        try:
            found: list[Result | tuple[Result, ...]] = self.function(rows, list(transforms), *further)
        except ModelError:
            raise
        except (Exception, SystemExit) as error:
            raise PredictError(f"head {self.told} raised {type(error).__name__}: {error}") from error
        return found
