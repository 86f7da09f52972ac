"""Exceptions become bus messages: one that leaves a vfunc would be printed and then count as success."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from gstinfer.elements.compat import DROPPED, Gst, post
from gstinfer.errors import (
    ConfigError,
    GstInferError,
    HostError,
    MissingDependencyError,
    ModelError,
    ModelLoadError,
    PredictError,
    PublishError,
    ResultError,
    UnknownNameError,
)
from gstinfer.frames import DropFrame, Flushed

__all__ = ["ERROR_CODES", "guard", "report"]


ERROR_CODES: dict[type[GstInferError], tuple[Any, Any]] = {
    GstInferError: (Gst.StreamError, Gst.StreamError.FAILED),
    ConfigError: (Gst.LibraryError, Gst.LibraryError.SETTINGS),
    UnknownNameError: (Gst.LibraryError, Gst.LibraryError.SETTINGS),
    MissingDependencyError: (Gst.CoreError, Gst.CoreError.MISSING_PLUGIN),
    HostError: (Gst.StreamError, Gst.StreamError.FORMAT),
    ModelError: (Gst.StreamError, Gst.StreamError.FAILED),
    ModelLoadError: (Gst.ResourceError, Gst.ResourceError.OPEN_READ),
    PredictError: (Gst.StreamError, Gst.StreamError.FAILED),
    ResultError: (Gst.StreamError, Gst.StreamError.FAILED),
    PublishError: (Gst.ResourceError, Gst.ResourceError.WRITE),
}
"""Class -> GStreamer's error domain and code."""


def report(element: Any, error: BaseException, kind: str = "error") -> None:
    """Posts an exception on the bus: its text and hint, with the traceback as debug information. Any thread."""
    if isinstance(error, GstInferError):
        entry = next(ERROR_CODES[cls] for cls in type(error).__mro__ if cls in ERROR_CODES)
        text = str(error)
    else:
        entry = (Gst.LibraryError, Gst.LibraryError.FAILED)
        text = f"{type(error).__name__}: {error}"
    debug = getattr(error, "debug", "") or "".join(traceback.format_exception(type(error), error, error.__traceback__))
    domain, code = entry
    post(element, kind, text, debug, domain.quark(), int(code))


def guard(failed: Any, flow: Callable[[Any], Any] = lambda value: value) -> Callable[..., Callable[..., Any]]:
    """Decorates a vfunc: an exception is posted as an element error, once, and ``failed`` is returned.

    Args:
        failed: What the vfunc returns on an error.
        flow: Puts a flow return into the form that the vfunc returns.
    """

    def decorate(vfunc: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(vfunc)
        def guarded(self: Any, *arguments: Any) -> Any:
            try:
                return vfunc(self, *arguments)
            except Flushed:
                return flow(Gst.FlowReturn.FLUSHING)
            except DropFrame:
                return flow(DROPPED)
            except (Exception, SystemExit) as error:
                if not self.failed:
                    report(self, error)
                    self.failed = True
                return failed

        return guarded

    return decorate
