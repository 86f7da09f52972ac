"""What the console, the control socket, REST and the metrics see of a running job, in one process or in several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from gstinfer.app.sources import Source

if TYPE_CHECKING:
    from gstinfer.app.session import Job

__all__ = ["Running", "Stream"]


class Stream(Protocol):
    """One input: ``branch.Branch``, or ``workers.Row`` for one that runs in another process."""

    source: Source

    @property
    def state(self) -> str:
        """``"ready"``, ``"connecting"``, ``"playing"``, ``"stalled"``, ``"ended"`` or ``"failed"``."""

    @property
    def running(self) -> bool:
        """Whether frames come or may come."""

    @property
    def error(self) -> str:
        """Why it failed, or empty."""

    @property
    def warnings(self) -> Sequence[str]:
        """What its elements warned of, once each."""

    def report(self) -> dict[str, Any]:
        """All of it as plain values; see ``Branch.report``."""


class Running(Protocol):
    """All inputs: ``session.Session`` or ``workers.Workers``. Any thread may call its methods."""

    @property
    def job(self) -> Job:
        """What was asked for."""

    @property
    def branches(self) -> Sequence[Stream]:
        """The inputs, those that ended too."""

    @property
    def model(self) -> str:
        """Spec of the model."""

    @property
    def error(self) -> str:
        """What failed apart from the inputs, or empty."""

    @property
    def written(self) -> Sequence[Path]:
        """The video files that are finished."""

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""

    def find(self, name: str) -> Stream:
        """The newest input of a stream's name; see ``Session.find``."""

    def add_source(self, text: str, name: str = "") -> Stream:
        """Adds an input and starts it; see ``Session.add_source``."""

    def remove_source(self, name: str) -> Stream:
        """Ends one input, its files finished; see ``Session.remove_source``."""

    def swap(self, model: str) -> None:
        """Exchanges the model of all streams; see ``Session.swap``."""

    def report(self) -> dict[str, Any]:
        """The model and every stream, as plain values."""

    def stop(self) -> None:
        """Ends all streams with their files finished; also from a signal handler."""

    def exit(self, code: int) -> NoReturn:
        """Ends the process, and those it started, at once."""
