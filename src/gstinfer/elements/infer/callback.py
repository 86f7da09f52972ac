"""A user's function that sees, and may edit, the results of each frame."""

from __future__ import annotations

from dataclasses import replace

from gstinfer.errors import ModelError, PredictError, ResultError
from gstinfer.frames import Frame
from gstinfer.reload import UserFunction
from gstinfer.results import Detections, FrameResults
from gstinfer.sanitize import Dropped, sanitize

__all__ = ["Callback"]


class Callback:
    """Calls ``function(frame, results)`` on the streaming thread.

    What it returns takes the results' place; None keeps them, with what was changed in them. Dirty rows that it made are
    dropped like those of a model.

    Args:
        text: ``module:function`` or ``file.py:function``.

    Raises:
        ConfigError: The text names no function.
    """

    def __init__(self, text: str) -> None:
        self.function = UserFunction(text, "callback")
        self.dropped = Dropped()

    def load(self) -> None:
        """Imports the function.

        Raises:
            ModelLoadError: It cannot be imported.
        """
        self.function.load()

    def __call__(self, frame: Frame) -> None:
        """Gives the function a frame.

        Raises:
            PredictError: The function raised; its exception is the cause.
            ResultError: It returned something else.
        """
        name = self.function.text
        try:
            found = self.function(frame, frame.results)
        except ModelError:
            raise
        except (Exception, SystemExit) as error:
            raise PredictError(f"callback {name} raised {type(error).__name__}: {error}") from error
        if found is None:
            found = frame.results
        if not isinstance(found, FrameResults):
            raise ResultError(
                f"callback {name} returned a {type(found).__name__}, expected FrameResults or None",
                hint="change results.detections and the like, and return results or nothing",
            )
        if found.detections is not None:
            clean = sanitize(found.detections, frame.width, frame.height, self.dropped)
            assert isinstance(clean, Detections)
            found = replace(found, detections=clean.named(None))
        frame.results = found
